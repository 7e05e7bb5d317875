"""Actions on the broker in the middle of a run: pure values, which the command carries out.

``at`` counts from the first step of the measured load, or from the step that ``step`` names. A node is a name, or a
word for a node that is known only at that moment: ``leader`` (of the first queue of the measured load), ``killed`` and
``paused`` (the node that was killed or paused last). A node whose drive fails stops, and counts as killed; ``heal``
starts the node again with a drive that works.

In a run over hosts an action may be on a whole host (``kill-host``), or on links between hosts
(:mod:`perftest.spec.link_actions`); every broker node there has the name of its host.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final

from perftest.spec.fields import Bandwidth, Count, Key, Seconds, Share

LEADER, KILLED, PAUSED = "leader", "killed", "paused"


class Do(StrEnum):
    """What an action does."""

    KILL = "kill"
    RESTART = "restart"
    PAUSE = "pause"
    RESUME = "resume"
    TRANSFER_LEADER = "transfer-leader"
    ADD_MEMBER = "add-member"
    REMOVE_MEMBER = "remove-member"
    SLOW = "slow"
    PROFILE = "profile"
    FILL = "fill"
    FREE = "free"
    FAIL = "fail"
    HEAL = "heal"
    KILL_HOST = "kill-host"
    PAUSE_HOST = "pause-host"
    RESUME_HOST = "resume-host"
    PARTITION = "partition"
    LATENCY = "latency"
    LOSS = "loss"
    BANDWIDTH = "bandwidth"
    RECONNECT = "reconnect"


ON_DRIVES: Final = frozenset({Do.SLOW, Do.PROFILE, Do.FILL, Do.FREE, Do.FAIL, Do.HEAL})
"""Actions on a drive, which takes a drive that is modelled."""
ON_HOSTS: Final = frozenset({Do.KILL_HOST, Do.PAUSE_HOST, Do.RESUME_HOST})
"""Actions on everything that runs on a host."""
ON_LINKS: Final = frozenset({Do.PARTITION, Do.LATENCY, Do.LOSS, Do.BANDWIDTH, Do.RECONNECT})
"""Actions on links between hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedAction:
    """An action on a node, a drive, a host or links in the middle of the run."""

    at_s: Annotated[Seconds, Key("time since the first step began, or since the step of this number began")] = field(
        metadata={"alias": "at"}
    )
    do: Annotated[Do, Key("what the action does")]
    node: Annotated[
        str, Key("a node by name; leader: that of the first queue; killed, paused: the last such node", longest=100)
    ] = LEADER
    step: Annotated[Count, Key("number of the step that the time counts from; 0: of the run")] = 0
    drive: Annotated[str, Key("for slow, profile, fill, free, fail, heal: a modelled drive", longest=100)] = ""
    factor: Annotated[float, Key("for slow: how many times as long everything takes; 1 ends the slowness")] = 1.0
    profile: Annotated[str, Key("for profile: the name of the drive's new profile", longest=100)] = ""
    peer: Annotated[str, Key("for links: the host at the other end; left out: all other hosts", longest=100)] = ""
    one_way: Annotated[bool, Key("for links: only what goes from node to peer")] = False
    latency_s: Annotated[Seconds, Key("for latency: how long each packet takes more, one way")] = field(
        default=0.0, metadata={"alias": "latency"}
    )
    loss: Annotated[Share, Key("for loss: the share of packets that are lost")] = 0.0
    bandwidth_mbit: Annotated[Bandwidth, Key("for bandwidth: the most that passes; 0: no limit")] = field(
        default=0.0, metadata={"alias": "bandwidth"}
    )
