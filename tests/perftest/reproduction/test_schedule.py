"""Which trials run, and in which order, within the time that there is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from perftest.exits import CliError
from perftest.reproduction.experiments import Experiment, chosen
from perftest.reproduction.schedule import EndedTrial, FindingTrial, TrialLimits, TrialUnit, fitting, units

LIMITS = TrialLimits(rounds=2, rounds_max=3, step_s=10)
SHORT, LONG = (chosen([f"flow_control/{name}"], ())[0] for name in ("confirms", "in_flight"))
ON_DRIVES = chosen(["disks/pure_four_queues"], ("all",))[0]


def left(experiments: Sequence[Experiment], ended: Sequence[EndedTrial] = (), decided: bool = False) -> list[TrialUnit]:
    return units(experiments, ("reference", "rabbitmq"), LIMITS, ended, lambda _pair: decided)


def shown(several: Sequence[TrialUnit]) -> list[str]:
    return [f"{unit.trials[0].workload.rpartition('/')[2]} {unit.pair[1]} {unit.trials[0].round}" for unit in several]


def test_the_shortest_go_first_and_brokers_take_turns_round_by_round() -> None:
    assert shown(left([LONG, SHORT], decided=True)) == [
        "confirms reference 1", "confirms rabbitmq 1", "in_flight reference 1", "in_flight rabbitmq 1",
        "confirms reference 2", "confirms rabbitmq 2", "in_flight reference 2", "in_flight rabbitmq 2",
    ]  # fmt: skip


def test_only_the_undecided_get_more_rounds() -> None:
    assert shown(left([SHORT]))[-2:] == ["confirms reference 3", "confirms rabbitmq 3"]


def test_layouts_of_a_round_run_in_one_go() -> None:
    first = left([ON_DRIVES])[0]
    assert [trial.layout for trial in first.trials] == [f"disks/{n}_{kind}" for kind, n in LAYOUTS_OF_FOUR]
    assert {trial.round for trial in first.trials} == {1}


LAYOUTS_OF_FOUR = [(kind, number) for number in ("one", "two", "three") for kind in ("ssd", "hdd")]


def test_what_does_not_fit_is_left_for_shorter_ones_but_no_round_is_skipped() -> None:
    several = left([LONG, SHORT])
    taken, later = fitting(several, several[0].length_s * 3.1)
    assert [unit.pair[0] for unit in taken][:1] == ["flow_control/confirms"]
    for unit in later:
        earlier = [each for each in taken if each.pair == unit.pair]
        assert all(each.trials[0].round < unit.trials[0].round for each in earlier)
    assert sum(unit.length_s for unit in taken) <= several[0].length_s * 3.1
    assert fitting(several, 0.0) == ([], several)


def test_what_ran_or_was_refused_does_not_run_again() -> None:
    ran = FindingTrial("flow_control/confirms", "reference", "", 1)
    refused = FindingTrial("flow_control/confirms", "rabbitmq", "", 1)
    ended = [EndedTrial(trial=ran, run="r"), EndedTrial(trial=refused, reason="not installed", is_refused=True)]
    assert shown(left([SHORT], ended)) == ["confirms reference 2", "confirms reference 3"]


def test_a_failure_is_tried_again_once() -> None:
    failed = EndedTrial(trial=FindingTrial("flow_control/confirms", "reference", "", 1), reason="the broker died")
    assert shown(left([SHORT], [failed], decided=True))[0] == "confirms reference 1"
    assert shown(left([SHORT], [failed] * 2, decided=True)) == ["confirms rabbitmq 1", "confirms rabbitmq 2"]


def test_a_source_is_all_of_its_workloads_with_findings() -> None:
    assert {each.name for each in chosen(["flow_control"], ())} > {SHORT.name, LONG.name}
    assert all(each.plan.findings or each.objectives for each in chosen([], ("all",)))
    two = chosen(["disks/pure_four_queues"], ("one_hdd", "disks/two_ssd"))[0]
    assert set(two.layouts) == {"disks/two_ssd", "disks/one_hdd"}


@pytest.mark.parametrize(
    ("names", "layouts", "what"),
    [
        (["flow_contrl"], (), "there is no source 'flow_contrl'"),
        (["flow_control/in_flght"], (), "there is no workload"),
        (["disks/pure_one_queue"], ("one_hd",), "there is no layout 'one_hd'"),
        (["scale/thousand_queues"], (), "no finding and no objective is stated"),
    ],
)
def test_a_wrong_name_is_refused(names: list[str], layouts: tuple[str, ...], what: str) -> None:
    with pytest.raises(CliError, match=what):
        chosen(names, layouts)
