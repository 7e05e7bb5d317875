"""A reproduction on disk: what is kept, what goes on, and what the command of a trial says."""

from __future__ import annotations

from pathlib import Path

import pytest

from perftest.cli.main import call
from perftest.exits import CliError, Exit
from perftest.reproduction.campaign import STATE, Campaign, ReproductionRequest, continued, read
from perftest.reproduction.commands import measured, words_of
from perftest.reproduction.experiments import chosen
from perftest.reproduction.schedule import EndedTrial, FindingTrial, TrialLimits

NAME = "flow_control/confirms"
REQUEST = ReproductionRequest(names=(NAME,), brokers=("reference", "rabbitmq"), limits=TrialLimits(rounds=2))
TRIAL = FindingTrial(NAME, "reference", "", 1)
ON_DRIVES = FindingTrial("disks/pure_one_queue", "rabbitmq", "disks/one_hdd", 2)


class Clock:
    """Time that goes on by what each trial takes."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Machine:
    """Measures trials in 60 s each; ``fails`` are the numbers of those that end otherwise."""

    def __init__(self, clock: Clock, interrupted_at: int = 0) -> None:
        self.clock = clock
        self.interrupted_at = interrupted_at
        self.ran: list[FindingTrial] = []

    def __call__(self, trial: FindingTrial, _place: Path) -> EndedTrial:
        self.ran.append(trial)
        if len(self.ran) == self.interrupted_at:
            raise KeyboardInterrupt
        self.clock.now += 60
        return EndedTrial(trial=trial, run="run")


def campaign(place: Path) -> Campaign:
    return Campaign(place, REQUEST, chosen(REQUEST.names, REQUEST.layouts), [])


def never(_pair: object) -> bool:
    return False


def test_trials_run_until_the_time_is_over_and_are_kept(tmp_path: Path) -> None:
    clock = Clock()
    machine = Machine(clock)
    campaign(tmp_path).go_on(150, machine, never, clock)
    assert [trial.broker for trial in machine.ran] == ["reference", "rabbitmq"]
    asked, ended = read(tmp_path)
    assert asked == REQUEST and [each.trial for each in ended] == machine.ran and ended[0].length_s == 60


def test_an_interrupted_reproduction_goes_on_where_it_was(tmp_path: Path) -> None:
    clock = Clock()
    with pytest.raises(KeyboardInterrupt):
        campaign(tmp_path).go_on(1000, Machine(clock, interrupted_at=2), never, clock)
    asked, ended = read(tmp_path)
    again = Campaign(tmp_path, asked, chosen(asked.names, asked.layouts), ended)
    machine = Machine(clock)
    again.go_on(clock() + 10_000, machine, never, clock)
    assert TRIAL not in machine.ran and machine.ran[0] == FindingTrial(NAME, "rabbitmq", "", 1)
    assert len(again.runs((NAME, "reference"))) == REQUEST.limits.rounds_max


def test_a_named_workload_goes_on_alone_and_with_more_rounds(tmp_path: Path) -> None:
    request = ReproductionRequest(names=("locality",), limits=TrialLimits(rounds=1, rounds_max=1))
    Campaign(tmp_path, request, chosen(request.names, request.layouts), []).save()
    name = "locality/quorum_local"
    again = continued(tmp_path, (name,), {"rounds": 2})
    assert {unit.pair for unit in again.left(never)} == {(name, "reference")} and len(again.left(never)) == 2
    assert len(again.experiments) == 5, "the page has all of them"
    with pytest.raises(CliError, match=r"has no flow_control/confirms"):
        continued(tmp_path, (NAME,), {})


def test_what_was_measured_cannot_be_changed_by_going_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    campaign(tmp_path).save()
    assert call(["reproduce", "--resume", str(tmp_path), "--step", "3s", "--broker", "rabbitmq"]) == 2
    assert "leave out --broker, --step" in capsys.readouterr().err


def test_another_rabbitmq_is_for_rabbitmq(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "locality", "--out", str(tmp_path), "--rabbitmq-home", str(tmp_path), "--dry-run"]
    assert call(words) == 2 and "add --broker rabbitmq" in capsys.readouterr().err
    assert call([*words, "--broker", "rabbitmq"]) == 0
    request = ReproductionRequest(names=(NAME,), rabbitmq_home="/opt/rabbitmq")
    Campaign(tmp_path, request, chosen(request.names, request.layouts), []).save()
    assert read(tmp_path)[0] == request


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 99}', '{"schema": 1, "asked": {}, "cells": []}'])
def test_a_damaged_state_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / STATE).write_text(text)
    with pytest.raises(CliError, match="cannot be continued") as refused:
        read(tmp_path)
    assert refused.value.code is Exit.USAGE


def test_a_trial_is_a_command_for_its_broker(tmp_path: Path) -> None:
    confirms, on_drives = chosen([NAME], ())[0], chosen(["disks/pure_one_queue"], ("all",))[0]
    words = " ".join(words_of(TRIAL, confirms, 12, tmp_path))
    assert words.startswith(f"sweep {NAME} --broker reference --set step.duration=12s --set step.warmup=2s")
    assert "--layout" not in words
    words = " ".join(words_of(ON_DRIVES, on_drives, 12, tmp_path))
    assert "--broker rabbitmq --layout disks/one_hdd --drives fuse" in words
    assert "--rabbitmq-home" not in " ".join(words_of(TRIAL, confirms, 12, tmp_path, "/opt/rabbitmq"))
    words = " ".join(words_of(ON_DRIVES, on_drives, 12, tmp_path, "/opt/rabbitmq"))
    assert "--broker rabbitmq --rabbitmq-home /opt/rabbitmq --layout" in words
    simulated = FindingTrial("disks/pure_one_queue", "simulated", "disks/one_hdd", 3)
    words = " ".join(words_of(simulated, on_drives, 12, tmp_path))
    assert words.startswith("simulate disks/pure_one_queue --layout disks/one_hdd") and "--seed 3 --steady 10s" in words


@pytest.mark.parametrize(
    ("code", "output", "reason", "is_refused"),
    [
        (2, "error: RabbitMQ is not installed\n  at   --broker\n", "RabbitMQ is not installed", True),
        (1, "starting …\nerror: no space left\n", "no space left", False),
        (1, "", "the command ended with 1", False),
    ],
)
def test_a_trial_without_a_run_says_why(tmp_path: Path, code: int, output: str, reason: str, is_refused: bool) -> None:
    def run(_words: object, log: Path) -> int:
        log.write_text(output)
        return code

    found = measured(TRIAL, tmp_path, chosen([NAME], ())[0], 12, run)
    assert (found.run, found.reason, found.is_refused) == ("", reason, is_refused)


def test_a_run_with_results_counts_whatever_its_checks_say(tmp_path: Path) -> None:
    def run(_words: object, _log: Path) -> int:
        made = tmp_path / "20261130-run"
        made.mkdir()
        for name in ("manifest.json", "result.json"):
            (made / name).write_text("{}")
        return Exit.UNTRUSTED

    assert measured(TRIAL, tmp_path, chosen([NAME], ())[0], 12, run).run == "20261130-run"


def test_an_interrupted_trial_interrupts_all(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        measured(TRIAL, tmp_path, chosen([NAME], ())[0], 12, lambda _words, _log: Exit.INTERRUPTED)
