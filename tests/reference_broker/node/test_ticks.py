"""Elections at a start: few enough at a time that they come to something, and all of them in the end."""

from __future__ import annotations

from reference_broker.node.replication.ticks import PATIENCE_TICKS, UNDER_WAY_MAX, Campaigns
from reference_broker.types import GroupId

GROUPS = [GroupId(number) for number in range(1, 1001)]


def test_only_so_many_are_under_way_and_each_decision_lets_the_next_begin() -> None:
    """Ten thousand at once would outlast their own timers, and begin again and again."""
    stood: list[GroupId] = []
    campaigns = Campaigns(stood.append)
    campaigns.begin(GROUPS)
    assert stood == GROUPS[:UNDER_WAY_MAX]
    for number, group in enumerate(GROUPS, 1):
        campaigns.decided(group)
        campaigns.decided(group)
        assert stood == GROUPS[: UNDER_WAY_MAX + number]


def test_an_election_that_comes_to_nothing_does_not_keep_the_others_waiting() -> None:
    """Its group may have lost its other members for good."""
    stood: list[GroupId] = []
    campaigns = Campaigns(stood.append)
    campaigns.begin(GROUPS)
    for _ in range(PATIENCE_TICKS - 1):
        campaigns.tick()
    assert len(stood) == UNDER_WAY_MAX
    campaigns.tick()
    assert len(stood) == 2 * UNDER_WAY_MAX
    for _ in range(PATIENCE_TICKS * len(GROUPS) // UNDER_WAY_MAX):
        campaigns.tick()
    assert stood == GROUPS


def test_what_was_decided_meanwhile_is_not_begun() -> None:
    """Somebody else leads it, or it is gone."""
    stood: list[GroupId] = []
    campaigns = Campaigns(stood.append)
    campaigns.begin(GROUPS)
    for group in GROUPS[UNDER_WAY_MAX:]:
        campaigns.decided(group)
    for group in GROUPS[:UNDER_WAY_MAX]:
        campaigns.decided(group)
    assert stood == GROUPS[:UNDER_WAY_MAX]


def test_what_is_asked_for_twice_is_begun_once_at_a_time() -> None:
    """Each link that comes up asks anew."""
    stood: list[GroupId] = []
    campaigns = Campaigns(stood.append)
    campaigns.begin(GROUPS[:5])
    campaigns.begin(GROUPS[:5])
    assert stood == GROUPS[:5]
