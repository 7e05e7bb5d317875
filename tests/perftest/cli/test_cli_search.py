"""``perftest search`` with probes whose outcome is known."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import workloads
from perftest.engine.api import StopRequest
from perftest.measuring.measured_rabbitmq import Measured
from perftest.results.trust import NOT_THE_BROKERS, Status, step_checks
from perftest.series import probes
from perftest.series.probes import REMEDIES, Probe, ProbeLimit
from perftest.series.reproduce import plan_of_words
from perftest.spec.cluster import Product
from perftest.spec.codec import plan_from_json
from perftest.spec.plan import Plan

Call = Callable[..., tuple[int, str, str]]
SLO = ("--slo", "e2e.p99<20ms")
BUSY = "the busiest load worker used 99% of a core: the generator, not the broker, set this rate"


@dataclass
class Broker:
    """Takes the place of the target and of the runs: keeps up to ``limit`` a second, and is fast up to ``fast``."""

    limit: float = 1000.0
    fast: float = 800.0
    verdict: str = "ok"
    interrupt_after: int = 1000
    generator: float = 1e9
    """Beyond this rate the load generator is the limit."""
    plans: list[Plan] = field(default_factory=list, repr=False)
    commands: list[list[str]] = field(default_factory=list, repr=False)

    def probe(
        self, plan: Plan, out: Path, _cluster: object, stop: StopRequest, command: Sequence[str], _drives: object
    ) -> Probe:
        self.plans.append(plan)
        self.commands.append(list(command))
        if len(self.plans) > self.interrupt_after:
            stop.finish_step()
        settings = plan.steps[0].settings
        asked = settings.rate * settings.publishers if settings.rate is not None else None
        rate = self.limit if asked is None else min(asked, self.limit)
        if asked is None:
            rate *= min(settings.in_flight or 100, 100) / 100
        p99 = 5e6 if rate <= self.fast else 80e6
        row = {
            "label": plan.steps[0].label,
            "settings": {"consumers": settings.consumers},
            "published": int(rate * 10),
            "delivered": int(rate * 10),
            "published_per_s": rate,
            "delivered_per_s": rate,
            "latency": {"e2e": {"count": 1000, "p99_ns": p99, "max_ns": 2 * p99}},
        }
        ledger = {"verdict": self.verdict, "lost": int(self.verdict != "ok")}
        limits = (ProbeLimit(BUSY, REMEDIES["generator_cpu"]),) if rate > self.generator else ()
        return Probe(
            path=out / "run",
            rows=[row],
            ledger=ledger,
            faults=(BUSY,) * len(limits),
            interrupted=stop.finishing,
            limits=limits,
        )


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """No process is started."""
    made = Broker()

    @contextmanager
    def target(_plan: Plan, _kept: object, _out: Path, _layout: object) -> Iterator[None]:
        yield None

    @contextmanager
    def rabbitmq(plan: Plan, *_where: object) -> Iterator[Measured]:
        started = plan.cluster.broker is Product.RABBITMQ
        yield Measured(plan=plan.changed(uris=("amqp://127.0.0.1:1",)) if started else plan, facts={})

    monkeypatch.setattr(probes, "probe", made.probe)
    monkeypatch.setattr(probes, "rabbitmq", rabbitmq)
    monkeypatch.setattr(probes, "target", target)
    return made


def record(out: Path) -> dict[str, Any]:
    (path,) = out.glob("*-search-*/search.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_the_highest_rate_that_meets_the_objective(call: Call, broker: Broker, tmp_path: Path) -> None:
    """Found within the tolerance, both ends confirmed, with the command that shows it again."""
    code, out, _ = call("search", *SLO, "--slo", "loss==0", "--out", str(tmp_path))
    found = record(tmp_path)
    assert code == 0
    assert 760 <= found["rate"] <= 800 < found["fails_at"] <= 840
    assert found["converged"] is True
    assert f"the highest rate that meets e2e.p99<20ms and loss==0: {found['rate']:,.0f} msg/s" in out
    assert f"perftest run -r {found['rate']:g} -x 1 -y 1 -c 1000 -q 1000 -A 1 -s 1000" in out
    assert found["tried"][0]["rate"] is None


@pytest.mark.parametrize(
    ("flags", "command"),
    [
        ((), r"perftest run -r \d+ -x 1 -y 1 -c 1000 -q 1000 -A 1 -s 1000 -z 1m --warmup 5s"),
        (("--cluster", "kept"), r"perftest run --cluster kept -r \d+ "),
        (
            ("-h", "amqp://guest:guest@h"),
            r"perftest run -h amqp://h -u perftest -qq -e amq.default -prsd 0 -cal round-robin -r \d+ ",
        ),
        (("--broker", "rabbitmq"), r"perftest run --broker rabbitmq -r \d+ "),
        (("--layout", "disks/one_hdd"), r"perftest run --layout disks/one_hdd -r \d+ "),
        (
            ("--workload", "flow_control/in_flight", "--broker", "rabbitmq"),
            r"perftest sweep flow_control/in_flight --broker rabbitmq --isolated ",
        ),
        (("-h", "amqp://me:secret@h"), r"perftest run -h 'amqp://me:\*\*\*@h' -u"),
        (
            ("--workload", "flow_control/in_flight", "-s", "50"),
            r"perftest sweep flow_control/in_flight --isolated --vary rate=\d+ "
            r"--set load.in_flight=1 --set load.size=50 --set step.duration=1m --set step.warmup=5s\n",
        ),
    ],
)
def test_what_was_found_can_be_made_again(
    call: Call, broker: Broker, tmp_path: Path, flags: tuple[str, ...], command: str
) -> None:
    """At the same broker, with the same load; a password is not shown."""
    _, out, _ = call("search", *SLO, *flags, "--out", str(tmp_path))
    assert re.search(rf"to see it again: {command}", out)


LOADS = st.fixed_dictionaries(
    {},
    optional={
        "-x": st.integers(1, 7).map(str),
        "-y": st.one_of(st.integers(0, 7), st.integers(40, 43)).map(str),
        "-c": st.one_of(st.integers(1, 5000).map(str), st.sampled_from(["no_confirms", "unlimited", "2k"])),
        "-q": st.one_of(st.integers(100, 60_000).map(str), st.sampled_from(["0", "unlimited"])),
        "-A": st.one_of(st.integers(1, 100).map(str), st.just("automatic")),
        "-s": st.one_of(st.integers(28, 5000).map(str), st.just("4KiB")),
    },
)
TARGETS = st.sampled_from([(), ("-h", "amqp://h"), ("-H", "amqp://h1,amqps://h2:5671/v")])
WORKLOADS = st.sampled_from(["", *workloads.names()])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(load=LOADS, target=TARGETS, workload=WORKLOADS)
def test_the_command_to_see_it_again_has_the_same_load(
    call: Call, broker: Broker, load: dict[str, str], target: tuple[str, ...], workload: str
) -> None:
    """What is shown is typed: it must give the plan that was measured, whatever was asked for."""
    broker.plans.clear()
    broker.commands.clear()
    broker.fast = 1e9
    flags = [word for pair in load.items() for word in pair]
    flags += ["--workload", workload] if workload else []
    with TemporaryDirectory() as out:
        code, said, err = call("search", *SLO, *target, *flags, "--max-probes", "1", "--out", out)
    assume(code != 2)  # the load contradicts itself
    assert code == 0, err
    shown = re.search(r"to see it again: perftest (.*)", said)
    assert shown is not None
    verb, *words = shlex.split(shown[1])
    again = plan_of_words(words) if verb == "run" else swept_again(call, words)
    probed = broker.plans[-1]
    assert again.steps[0].settings == probed.steps[0].settings
    for command, plan in zip(broker.commands, broker.plans, strict=True):
        _, verb, *words = command
        made = plan_of_words(words) if verb == "run" else swept_again(call, words)
        assert replace(made.steps[0], label="") == replace(plan.steps[0], label="")
    parts = ("uris", "queues", "exchange", "publishing", "consuming", "connecting", "background", "workers", "seed")
    assert {name: getattr(again, name) for name in parts} == {name: getattr(probed, name) for name in parts}


def swept_again(call: Call, words: list[str]) -> Plan:
    code, out, err = call("sweep", *words, "--dry-run", "--json")
    assert code == 0, err
    return plan_from_json(json.loads(out)["plan"])


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("-c", "0"), "write no_confirms to publish without confirms, or unlimited"),
        (("-A", "0"), "write automatic for automatic acknowledgement, or 1"),
    ],
)
def test_a_zero_that_says_two_things_is_refused(
    call: Call, broker: Broker, flags: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    """To PerfTest -c 0 is confirms without a limit, and -A 0 each message by itself."""
    code, _, err = call("search", *SLO, *flags, "--out", str(tmp_path))
    assert (code, broker.plans) == (2, [])
    assert says in err


def test_the_rate_is_that_of_the_whole_load(call: Call, broker: Broker, tmp_path: Path) -> None:
    """Four publishers share it; each probe is on fresh queues."""
    call("search", *SLO, "-x", "4", "-y", "2", "-s", "4KiB", "--out", str(tmp_path))
    asked = [plan.steps[0].settings for plan in broker.plans]
    assert {(each.publishers, each.consumers, each.size_bytes) for each in asked} == {(4, 2, 4096)}
    assert 760 <= record(tmp_path)["rate"] <= 800
    assert {str(plan.isolation) for plan in broker.plans} == {"isolated"}


def test_a_broker_that_cannot_keep_up_fails_the_probe(call: Call, broker: Broker, tmp_path: Path) -> None:
    """However low its latency is."""
    broker.fast = 1e9
    code, _, _ = call("search", *SLO, "--out", str(tmp_path))
    found = record(tmp_path)
    assert code == 0
    assert 950 <= found["rate"] <= 1010
    assert any("published 1,000 of" in words for each in found["tried"] for words in each.get("missed", ()))


def test_a_generator_that_is_the_limit_ends_the_search_as_invalid(call: Call, broker: Broker, tmp_path: Path) -> None:
    """Its ceiling must not be sold as the broker's: what passed below is a lower bound, and the exit code says so."""
    broker.generator, broker.fast = 600.0, 1e9
    code, out, _ = call("search", *SLO, "--out", str(tmp_path))
    found = record(tmp_path)
    assert code == 5
    assert (found["valid"], found["converged"], found["fails_at"]) == (False, False, None)
    assert 560 <= found["rate"] <= 600 < found["invalid_at"] <= 640
    assert f"INVALID: the highest rate that meets e2e.p99<20ms is not known; it is at least {found['rate']:,.0f}" in out
    assert BUSY in out and "spread the load over more clients" in out
    assert "without a schedule: 1,000 msg/s came through (the load generator or its machine was the limit)" in out
    assert any(each["invalid"] for each in found["tried"])
    assert not any(each["invalid"] and each.get("passed") for each in found["tried"])


def test_a_generator_that_is_always_the_limit_blames_no_broker(call: Call, broker: Broker, tmp_path: Path) -> None:
    """No rate passed, and yet that is no missed objective."""
    broker.generator = 0.0
    code, out, _ = call("search", *SLO, "--out", str(tmp_path))
    found = record(tmp_path)
    assert (code, found["rate"], found["valid"]) == (5, None, False)
    assert "INVALID: whether any rate meets e2e.p99<20ms is not known" in out


def test_a_limit_of_the_broker_below_that_of_the_generator_is_an_answer(
    call: Call, broker: Broker, tmp_path: Path
) -> None:
    broker.generator = 900.0
    code, _, _ = call("search", *SLO, "--out", str(tmp_path))
    found = record(tmp_path)
    assert (code, found["valid"], found["converged"], found["invalid_at"]) == (0, True, True, None)


def test_settings_that_the_generator_limits_make_a_comparison_invalid(
    call: Call, broker: Broker, tmp_path: Path
) -> None:
    """The one that looks fastest is the generator's figure: the comparison says so and ends with 5."""
    broker.fast, broker.generator = 1e9, 500.0
    flags = ("--frontier", "--in-flights", "10,100", "--prefetches", "100", "--ack-parts", "1%,5%")
    code, out, _ = call("search", *flags, *SLO, "--out", str(tmp_path))
    found = record(tmp_path)
    assert code == 5
    assert (found["valid"], found["recommended"]["in_flight"]) == (False, 10)
    assert "INVALID: in 2 of 4 settings the load generator or its machine was the limit" in out
    assert BUSY in out and "spread the load over more clients" in out


def test_every_check_that_blames_the_generator_has_a_remedy() -> None:
    """Those that can fail for another reason than the broker's doing, and only those."""
    row = {"worker_cpu_share": 1.0, "steal_share": 1.0, "negative_latencies": 1, "loop_lag_ns": 0, "latency": {}}
    row |= {"settings": {"in_flight": 1}, "published": 1, "confirmed": 0, "delivered": 0}
    failed = {check.check for check in step_checks(row) if check.status is Status.FAIL}
    assert failed - set(probes.REMEDIES) == {"samples", "confirms"}
    assert set(probes.REMEDIES) == NOT_THE_BROKERS <= failed


def test_no_rate_meets_the_objective(call: Call, broker: Broker, tmp_path: Path) -> None:
    """That is a missed objective, not an error."""
    broker.fast = 0
    code, out, _ = call("search", *SLO, "--out", str(tmp_path))
    assert code == 4
    assert "no rate meets e2e.p99<20ms" in out
    assert record(tmp_path)["rate"] is None


def test_too_few_probes_say_so(call: Call, broker: Broker, tmp_path: Path) -> None:
    """A bracket that is still wide must not pass for an answer."""
    code, out, _ = call("search", *SLO, "--max-probes", "3", "--out", str(tmp_path))
    assert code == 0
    assert record(tmp_path)["converged"] is False
    assert "not converged after 3 probes" in out


def test_lost_messages_are_the_gravest(call: Call, broker: Broker, tmp_path: Path) -> None:
    """Whatever rate was found."""
    broker.verdict = "violated"
    assert call("search", *SLO, "--slo", "loss==0", "--out", str(tmp_path))[0] == 3


def test_ctrl_c_keeps_what_is_known(call: Call, broker: Broker, tmp_path: Path) -> None:
    """The probe that was interrupted does not count."""
    broker.interrupt_after = 4
    code, _, _ = call("search", *SLO, "--out", str(tmp_path))
    found = record(tmp_path)
    assert (code, found["interrupted"], found["converged"]) == (130, True, False)
    assert len([each for each in found["tried"] if each["rate"]]) == 3


def test_settings_are_compared_and_one_is_recommended(call: Call, broker: Broker, tmp_path: Path) -> None:
    """The stub saturates at in-flight 100: more brings nothing."""
    broker.fast = 1e9
    flags = ("--frontier", "--in-flights", "10,100,1000", "--prefetches", "100", "--ack-parts", "1%,5%")
    code, out, _ = call("search", *flags, *SLO, "--out", str(tmp_path))
    found = record(tmp_path)
    assert code == 0
    assert len(found["tried"]) == 6 + 2 * 4, "four of six come near the best: they decide, and are probed thrice"
    assert found["recommended"]["in_flight"] == 100
    for command, plan in zip(broker.commands, broker.plans, strict=True):
        assert plan_of_words(command[2:]).steps[0].settings == plan.steps[0].settings, "what a manifest says is true"
    assert "in-flight saturates at 100: 1000 brings +0 % rate" in out
    assert "the rule of thumb for the ack interval (5 to 10 % of the prefetch) holds" in out


def test_json_is_one_object(call: Call, broker: Broker, tmp_path: Path) -> None:
    """For a program; nothing else on stdout."""
    code, out, _ = call("search", *SLO, "--json", "--out", str(tmp_path))
    assert code == 0
    assert json.loads(out)["converged"] is True


@pytest.mark.parametrize(
    "flags, says",
    [
        ((), "there is no objective to meet"),
        (("--slo", "e2e.p99<20"), "is not a latency with its unit"),
        (("--slo", "p99<20ms"), "say of what"),
        ((*SLO, "--repeats", "2"), "an even number of repeats has no majority"),
        ((*SLO, "-A", "500", "-q", "100"), "ack_interval (500) is larger than prefetch (100)"),
        ((*SLO, "--in-flights", "10,x"), "is not a list of numbers above 0"),
        ((*SLO, "--workload", "nothing"), "there is no workload"),
        ((*SLO, "--workload", "disks/pure_four_queues", "-y", "3"), "3 consumers cannot read 4 queues"),
        ((*SLO, "--warmup", "20s"), "leaves nothing of the step"),
    ],
)
def test_contradictions_end_before_anything_is_started(
    call: Call, broker: Broker, flags: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    """With 2, in words."""
    code, _, err = call("search", *flags, "--out", str(tmp_path / "runs"))
    assert code == 2
    assert says in err
    assert not broker.plans
