"""A result that cannot be trusted must say so; one that can must not cry wolf."""

from __future__ import annotations

from typing import Any

import pytest

from perftest.results.provenance import redact, redact_command
from perftest.results.run_checks import Disturbances, facts_of, run_checks
from perftest.results.summary import BrokerUse, run_loop, step_loop
from perftest.results.trust import Check, Status, step_checks, supported
from perftest.results.trust_list import Course, result_of
from perftest.spec.behaviour import Arrivals, Publishing
from perftest.spec.codec import plan_to_json
from perftest.spec.plan import Isolation, Plan, Settings, Step, is_open_loop


def row(**changes: Any) -> dict[str, Any]:
    latency = {"e2e": {"count": 200_000, "p99_ns": 5_000_000}, "confirm": {"count": 200_000, "p99_ns": 4_000_000}}
    plain = {
        "step": 1,
        "label": "one",
        "length_ns": 10**10,
        "settings": {"in_flight": 100, "rate": None, "consumers": 1},
        "worker_cpu_share": 0.4,
        "loop_lag_ns": 1_000_000,
        "latency": latency,
        "published": 200_000,
        "intended": 200_000,
        "confirmed": 200_000,
        "delivered": 200_000,
    }
    return {**plain, **changes}


def manifest(**broker: Any) -> dict[str, Any]:
    return {
        "loop": "closed",
        "state": "finished",
        "plan": {"steps": [{}]},
        "broker": {"uris": ["amqp://rabbit1"], **broker},
    }


def of_run(
    manifest: dict[str, Any], ledger: Any, *rows: dict[str, Any], disturbances: Disturbances | None = None
) -> list[Check]:
    return run_checks(facts_of(manifest), rows, ledger, disturbances or Disturbances())


def worst(checks: list[Check]) -> Status:
    return max((check.status for check in checks), key=lambda status: status.weight)


def statuses(checks: list[Any]) -> dict[str, str]:
    return {check.check: str(check.status) for check in checks}


def test_a_sound_step_passes_every_check() -> None:
    """A warning that is always there is read by nobody."""
    assert worst(step_checks(row())) is Status.PASS


@pytest.mark.parametrize(
    ("share", "rate", "published", "status"),
    [
        (0.85, None, 200_000, "pass"),
        (0.86, None, 200_000, "warn"),
        (0.949, None, 200_000, "warn"),
        (0.95, None, 200_000, "fail"),
        (0.86, 1000.0, 198_000, "warn"),  # the schedule was kept
        (0.86, 1000.0, 197_999, "fail"),  # it was not, and the generator had little left
        (0.85, 1000.0, 100_000, "pass"),  # it was not, but not for want of a core
        (0.95, 1000.0, 200_000, "fail"),
    ],
)
def test_a_generator_at_its_limit_fails(share: float, rate: float | None, published: int, status: str) -> None:
    """The rate would be the generator's, told as the broker's."""
    settings = {"in_flight": 100, "rate": rate, "consumers": 1}
    checks = step_checks(row(worker_cpu_share=share, settings=settings, published=published, delivered=published))
    assert statuses(checks)["generator_cpu"] == status


def test_a_pause_longer_than_the_tail_is_a_warning() -> None:
    """It made the highest percentiles; a pause below the p99 is lost in a tail that was there without it."""
    assert statuses(step_checks(row(loop_lag_ns=5_000_000)))["loop_lag"] == "pass"
    assert statuses(step_checks(row(loop_lag_ns=5_000_001)))["loop_lag"] == "warn"
    collected = row(gc_collections=3, gc_pause_ns=5_000_001)
    assert statuses(step_checks(collected))["loop_lag"] == "warn"
    assert "the longest of 3 garbage collections took 5.0 ms" in text_of(step_checks(collected), "loop_lag")
    assert "loop_lag" not in statuses(step_checks(row(latency={})))


@pytest.mark.parametrize(
    ("changes", "check", "status"),
    [
        ({"worker_wait_share": 0.1, "worker_cpu_share": 0.4}, "generator_wait", "pass"),  # it had time to spare
        ({"worker_wait_share": 0.3, "worker_cpu_share": 0.4}, "generator_wait", "warn"),  # and lost much of that
        ({"worker_wait_share": 0.3, "worker_cpu_share": 0.65}, "generator_wait", "warn"),
        ({"worker_wait_share": 0.04, "worker_cpu_share": 0.92}, "generator_wait", "pass"),
        ({"worker_cpu_share": None}, "generator_cpu", "warn"),
        ({"steal_share": 0.009}, "steal", "pass"),
        ({"steal_share": 0.01}, "steal", "warn"),
        ({"steal_share": 0.25}, "steal", "fail"),
    ],
)
def test_the_generators_own_health_is_judged(changes: dict[str, Any], check: str, status: str) -> None:
    """What its machine did to it is in the figures."""
    assert statuses(step_checks(row(**changes)))[check] == status
    assert not {"generator_wait", "steal"} & statuses(step_checks(row())).keys(), "runs of older versions"


@pytest.mark.parametrize("share", [0.5, 1.0, 43.864])
@pytest.mark.parametrize(
    ("check", "name"),
    [("generator_cpu", "worker_cpu_share"), ("generator_wait", "worker_wait_share"), ("steal", "steal_share")],
)
def test_a_share_of_a_few_milliseconds_is_no_verdict(check: str, name: str, share: float) -> None:
    """The clock ticks of the system are longer than the step."""
    checks = step_checks(row(**{name: share, "length_ns": 2_600_000}))
    assert statuses(checks)[check] == "pass"
    assert "measured for 2.6 ms: too short to tell" in text_of(checks, check)
    long_enough = step_checks(row(**{name: 1.0, "length_ns": 500_000_000}))
    assert statuses(long_enough)[check] != "pass"


def test_no_hypervisor_takes_more_than_all() -> None:
    """Runs of earlier versions counted what it took before the step."""
    checks = step_checks(row(steal_share=43.864, length_ns=10**9))
    assert "took 100.0% of" in text_of(checks, "steal")


@pytest.mark.parametrize(
    ("lag_ns", "share", "status"), [(99_999, 0.4, "pass"), (100_000, 0.4, "warn"), (600_000, 0.4, "warn"),
                                    (500_000, 0.95, "warn"), (500_001, 0.95, "fail")]
)  # fmt: skip
def test_lag_is_said_beside_the_latency_it_is_part_of(lag_ns: int, share: float, status: str) -> None:
    """A tenth of the p99 from the intended time went by before the message was sent. Most of it is the generator's own
    doing only if the generator had nothing left."""
    counted = {"count": 200_000, "p99_ns": 1_000_000}
    latency = {"e2e": counted, "confirm": counted, "e2e_sched": counted, "lag": {"count": 200_000, "p99_ns": lag_ns}}
    assert statuses(step_checks(row(latency=latency, worker_cpu_share=share)))["schedule_lag"] == status
    assert "schedule_lag" not in statuses(step_checks(row()))


@pytest.mark.parametrize(
    ("count", "best"),
    [(19, ""), (20, "p50"), (199, "p50"), (200, "p95"), (999, "p95"), (1000, "p99"), (10_000, "p99.9")],
)
def test_a_percentile_stands_on_ten_samples_above_it(count: int, best: str) -> None:
    """A p99.9 of 500 messages is one message."""
    assert supported(count) == best


def test_few_samples_are_said() -> None:
    """Percentiles that nothing supports are named."""
    checks = step_checks(row(latency={"e2e": {"count": 500}, "confirm": {"count": 900}}))
    samples = next(check for check in checks if check.check == "samples")
    assert samples.status is Status.WARN and "500 samples of e2e are too few for p99, p99.9, p99.99" in samples.text


def test_no_samples_fail() -> None:
    """A step that measured nothing is no fast step."""
    assert statuses(step_checks(row(latency={})))["samples"] == "fail"


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({"publishers": 0, "consumers": 2, "in_flight": 0}, "warn"),
        ({"publishers": 2, "consumers": 0, "in_flight": 0}, "warn"),
        ({"publishers": 2, "consumers": 0, "in_flight": 5}, "fail"),
        ({"publishers": 2, "consumers": 1, "in_flight": 0}, "fail"),
    ],
)
def test_a_queue_that_is_only_filled_or_emptied_has_no_latency(settings: dict[str, int], status: str) -> None:
    """Its rate is worth something all the same; where a latency was to be had, its absence is not forgiven."""
    found = step_checks(row(latency={}, settings={"rate": None, **settings}))
    assert statuses(found)["samples"] == status


def test_clients_that_were_asked_to_be_idle_fail_nothing() -> None:
    """A rate of 0 holds connections open: no message is no fault."""
    settings = {"in_flight": 100, "rate": 0.0, "consumers": 1}
    none = dict.fromkeys(("published", "intended", "confirmed", "delivered"), 0)
    checks = step_checks(row(settings=settings, latency={}, **none))
    assert statuses(checks)["samples"] == "warn"
    assert worst(checks) is Status.WARN


def test_a_step_without_confirms_fails_unless_none_were_asked_for() -> None:
    """Publishing into nothing is very fast."""
    assert statuses(step_checks(row(confirmed=0)))["confirms"] == "fail"
    assert statuses(step_checks(row(confirmed=0, settings={"in_flight": 0})))["confirms"] == "warn"


def test_a_growing_queue_is_said() -> None:
    """End-to-end latency of a queue that only grows is a matter of patience, not of the broker."""
    assert statuses(step_checks(row(delivered=196_000)))["backlog"] == "pass"
    assert statuses(step_checks(row(delivered=195_999)))["backlog"] == "warn"
    alone = {"in_flight": 100, "consumers": 0}
    assert "backlog" not in statuses(step_checks(row(delivered=0, settings=alone)))


def test_an_open_loop_must_keep_its_schedule() -> None:
    """Coordinated omission begins with a rate that was not reached."""
    rated = {"in_flight": 100, "rate": 1000.0}
    assert statuses(step_checks(row(settings=rated, published=198_000)))["intended_rate"] == "pass"
    assert statuses(step_checks(row(settings=rated, published=197_999)))["intended_rate"] == "warn"


SCHEDULES = {
    "a rate": ({"rate": 1000.0}, {}),
    "a cycle of rates": ({"rate": None}, {"rate_cycle": [[1000.0, 5.0], [0.0, 5.0]]}),
    "a trace": ({"rate": None}, {"arrivals": "trace"}),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_whatever_makes_the_schedule_it_must_be_kept(schedule: str) -> None:
    """A cycle and a trace are schedules as much as a rate is."""
    settings, publishing = SCHEDULES[schedule]
    step = {"number": 1, "label": "", "settings": {"in_flight": 100, **settings}}
    plan = {"steps": [step], "publishing": publishing}
    assert (step_loop(step, plan), run_loop(plan)) == ("open", "open")
    kept = row(settings=step["settings"], loop="open")
    assert statuses(step_checks(kept))["intended_rate"] == "pass"
    assert statuses(step_checks({**kept, "published": 197_999}))["intended_rate"] == "warn"
    limited = {**kept, "published": 197_999, "worker_cpu_share": 0.86}
    assert statuses(step_checks(limited))["generator_cpu"] == "fail"


def test_where_nothing_was_intended_nothing_was_missed() -> None:
    """A step that lies in the pause of a cycle, and a rate of 0."""
    for settings in ({"in_flight": 1, "rate": None}, {"in_flight": 1, "rate": 0.0}):
        found = statuses(step_checks(row(settings=settings, loop="open", intended=0, published=0)))
        assert "intended_rate" not in found


def test_the_loop_is_that_of_each_step() -> None:
    """One step without a rate makes a closed loop of no other."""
    steps = [{"number": n, "settings": {"rate": rate}} for n, rate in enumerate((100.0, None), start=1)]
    plan = {"steps": steps, "publishing": {"arrivals": "fixed", "rate_cycle": []}}
    assert [step_loop(step, plan) for step in steps] == ["open", "closed"]
    assert run_loop(plan) == "mixed"
    (check,) = (check for check in of_run({**manifest(), "plan": plan}, {"verdict": "ok"}) if check.check == "loop")
    assert "open and closed loops" in check.text
    closed = row(settings={"in_flight": 1, "rate": None}, loop="closed", intended=0)
    assert "intended_rate" not in statuses(step_checks(closed))


def test_the_loop_of_a_manifest_is_that_of_its_plan() -> None:
    """Two rules for one thing must not drift apart: the engine asks the plan, the results ask what was written."""
    for arrivals in Arrivals:
        for cycle in ((), ((100.0, 1.0),)):
            for rate in (None, 0.0, 5.0):
                publishing = Publishing(arrivals=arrivals, rate_cycle=cycle)
                settings = Settings(rate=rate)
                step = Step(number=1, label="", settings=settings, duration_s=1, warmup_s=0)
                made = Plan.of(
                    name="p",
                    title="",
                    uris=(),
                    queues=(),
                    steps=(step,),
                    isolation=Isolation.LIVE,
                    publishing=publishing,
                )
                opened = step_loop(plan_to_json(made)["steps"][0], plan_to_json(made)) == "open"
                assert opened is is_open_loop(settings, publishing)


def test_negative_latencies_fail() -> None:
    """Clocks that disagree make every latency doubtful."""
    assert statuses(step_checks(row(negative_latencies=1)))["clock"] == "fail"


FIGURES = {"p50_ns": 60_000, "p95_ns": 90_000, "p99_ns": 5_000_000, "p999_ns": 5_100_000, "p9999_ns": 5_200_000}


@pytest.mark.parametrize(
    ("facts", "status", "words"),
    [
        ({"clock_bound_ns": 50_000}, "pass", "±50 µs, which is less than every percentile"),
        ({"clock_bound_ns": 85_000, "below_bound": 9}, "warn", "p50 of end-to-end latency are below"),
        ({"clock_bound_ns": 95_000, "below_bound": 9, "below_zero": 3}, "warn", "p50, p95 of end-to-end"),
        ({"clock_bound_ns": 95_000, "below_bound": 9, "beyond_bound": 2}, "fail", "2 messages arrived before they"),
        ({"clock_bound_ns": 50_000, "negative_latencies": 1}, "fail", "a clock is wrong"),
    ],
)
def test_percentiles_below_the_bound_of_two_clocks_are_named(facts: dict[str, int], status: str, words: str) -> None:
    """Negative latencies within the bound are no fault: nobody can tell them from short ones."""
    latency = {"e2e": {"count": 200_000, **FIGURES}, "confirm": {"count": 200_000, **FIGURES}}
    (check,) = (check for check in step_checks(row(latency=latency, **facts)) if check.check == "clock")
    assert str(check.status) == status and words in check.text


def test_a_clock_that_changed_is_a_disturbance() -> None:
    found = Disturbances()
    found.event({"kind": "clock_changed", "host": "left"})
    assert found.check().status is Status.WARN and "1 change of a host's clock" in found.check().text


@pytest.mark.parametrize(
    ("ledger", "status", "words"),
    [
        ({"verdict": "ok", "unique": 10}, "pass", "none lost, none out of order"),
        ({"verdict": "ok", "unique": 10, "order": "key"}, "pass", "none lost, no key out of order"),
        ({"verdict": "ok", "unique": 10, "order": "none"}, "pass", "none lost, the queues promise no order"),
        ({"verdict": "violated", "reordered": 3, "order": "key"}, "fail", "3 reordered (within their keys)"),
        ({"verdict": "violated", "lost": 3, "damaged": 0}, "fail", "3 lost"),
        ({"verdict": "unknown", "undelivered": 5}, "warn", "5 confirmed messages"),
        (None, "fail", "no ledger"),
    ],
)
def test_the_ledgers_verdict_is_repeated(ledger: dict[str, Any] | None, status: str, words: str) -> None:
    """A fast broker that loses messages is not fast."""
    check = next(check for check in of_run(manifest(), ledger, row()) if check.check == "ledger")
    assert str(check.status) == status and words in check.text


@pytest.mark.parametrize("uri", ["amqp://u:***@127.0.0.1:5691/%2f", "amqp://localhost", "amqp://[::1]:5672"])
def test_loopback_is_said(uri: str) -> None:
    """Numbers without a network are not those of a cluster."""
    assert statuses(of_run(manifest(uris=[uri]), {"verdict": "ok"}, row()))["loopback"] == "note"
    assert "loopback" not in statuses(of_run(manifest(), {"verdict": "ok"}, row()))


def test_an_early_end_and_the_loop_are_said() -> None:
    """Half a sweep must not look like a whole one."""
    two = {**manifest(), "plan": {"steps": [{"number": 1, "duration_s": 12.0, "warmup_s": 2.0}, {"number": 2}]}}
    half = of_run({**two, "state": "interrupted", "ended": {"reason": "Ctrl-C"}}, {"verdict": "ok"}, row())
    assert {name: statuses(half)[name] for name in ("finished", "complete", "loop")} == {
        "finished": "warn", "complete": "warn", "loop": "pass",
    }  # fmt: skip
    assert text_of(half, "finished").endswith("interrupted: Ctrl-C")
    assert text_of(half, "complete") == "1 of 2 planned steps have results"
    short = of_run(two, {"verdict": "ok"}, row(length_ns=8 * 10**9), row(step=2))
    assert statuses(short)["complete"] == "warn" and "one for a shorter time" in text_of(short, "complete")
    assert statuses(of_run(two, {"verdict": "ok"}, row(length_ns=9 * 10**9), row(step=2)))["complete"] == "pass"


def test_a_run_without_a_result_or_without_an_end_is_invalid() -> None:
    """Nothing was measured, or nobody knows what is missing."""
    quiet = Disturbances()
    assert result_of(manifest(), [row()], {"verdict": "ok"}, quiet, Course())["valid"]
    assert not result_of(manifest(), [], {"verdict": "ok"}, quiet, Course())["valid"]
    for state in ("failed", "running"):
        assert statuses(of_run({**manifest(), "state": state}, {"verdict": "ok"}, row()))["finished"] == "fail"


def test_the_gravest_status_wins() -> None:
    """The exit code follows the worst."""
    assert worst(step_checks(row(worker_cpu_share=0.95, loop_lag_ns=10**9))) is Status.FAIL


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("amqp://guest:secret@h:1/%2f", "amqp://guest:***@h:1/%2f"),
        ("amqps://u:p%40ss@h", "amqps://u:***@h"),
        ("amqp://u:p@ss@h", "amqp://u:***@h"),
        ("amqp://u:a@h1,amqp://v:b@h2", "amqp://u:***@h1,amqp://v:***@h2"),
        ("amqp://h", "amqp://h"),
        ("--queue=a:b@c", "--queue=a:b@c"),
    ],
)
def test_passwords_are_redacted(text: str, shown: str) -> None:
    """Whatever a password holds, it is not in a result."""
    assert redact(text) == shown and redact_command([text]) == [shown]


def test_broker_cpu_needs_samples_over_the_step() -> None:
    """CPU per message from half a step would be half of it."""
    samples = [{"t_ns": t * 10**9, "node": "n", "pid": 1, "cpu_ns": t * 10**8} for t in range(11)]
    cpu = BrokerUse.of(samples)
    assert cpu.used_ns(2 * 10**9, 4 * 10**9) == 2 * 10**8
    assert cpu.used_ns(2_500_000_000, 3_500_000_000) == 10**8
    assert cpu.used_ns(9 * 10**9, 19 * 10**9) is None
    assert BrokerUse.of([]).used_ns(0, 1) is None


def sent(node: str, t_s: int, octets: int, *, pid: int = 1) -> dict[str, Any]:
    """A sample of a node that has sent so many octets to one peer, a tenth of them for control; below 0: it does not
    tell."""
    links = {"links": {"other": {"replication": octets - octets // 10, "control": octets // 10}}} if octets >= 0 else {}
    return {"t_ns": t_s * 10**9, "node": node, "pid": pid, "cpu_ns": 1, **links}


def test_octets_between_nodes_are_those_of_all_nodes_or_unknown() -> None:
    """A sum that lacks a node looks like less traffic, and would pass a check."""
    start, end = 2 * 10**9, 8 * 10**9
    both = [sent(node, t, 100 * t) for t in range(11) for node in "ab"]
    assert BrokerUse.of(both).sent_bytes(start, end) == 1200
    assert BrokerUse.of([]).sent_bytes(start, end) is None
    assert BrokerUse.of([sent("a", t, -1) for t in range(11)]).sent_bytes(start, end) is None, "no node tells"
    one_silent = [sent("a", t, 100 * t) for t in range(11)] + [sent("b", t, -1) for t in range(11)]
    assert BrokerUse.of(one_silent).sent_bytes(start, end) is None, "one node does not tell"
    died = [sent("a", t, 100 * t) for t in range(11)] + [sent("b", t, 100 * t) for t in range(4)]
    assert BrokerUse.of(died).sent_bytes(start, end) is None, "a node went down"
    again = died + [sent("b", t, 100 * (t - 5), pid=2) for t in range(5, 11)]
    assert BrokerUse.of(again).sent_bytes(start, end) is None, "and counts from 0 since it is back"


def test_segments_add_up_over_nodes_and_the_busiest_drive_counts() -> None:
    """What a finding needs to have happened: a node that does not tell is no evidence."""
    start, end = 2 * 10**9, 8 * 10**9

    def sample(node: str, t_s: int, files: int, busy_ms: int) -> dict[str, Any]:
        drives = [{"name": "wal", "busy_ns": busy_ms * t_s * 10**6}, {"name": "data", "busy_ns": 0}, {"name": "old"}]
        return {"t_ns": t_s * 10**9, "node": node, "pid": 1, "metrics": {"segments_written": files}, "drives": drives}

    use = BrokerUse.of(sample(node, t, t // 2, busy) for t in range(11) for node, busy in (("a", 250), ("b", 750)))
    assert use.segments_written(start, end) == 6
    assert use.drive_busy(start, end) == 0.75
    drives = [[{"name": "d", "segments_written": t}] for t in range(11)]
    on_fuse = [{"t_ns": t * 10**9, "node": "a", "pid": 1, "drives": drives[t]} for t in range(11)]
    assert BrokerUse.of(on_fuse).segments_written(start, end) == 6
    silent = BrokerUse.of([{"t_ns": t * 10**9, "node": "a", "pid": 1} for t in range(11)])
    assert silent.segments_written(start, end) is None and silent.drive_busy(start, end) is None


def test_a_restarted_node_counts_from_zero_again() -> None:
    """Its cumulative figure starts anew: the difference over the restart is no time."""
    before = [{"t_ns": t, "node": "n", "pid": 1, "cpu_ns": 1000 + t} for t in (0, 100)]
    after = [{"t_ns": t, "node": "n", "pid": 2, "cpu_ns": t - 100} for t in (100, 200)]
    assert BrokerUse.of(before + after).used_ns(0, 100) == 100


def test_a_background_load_that_is_not_safe_fails_the_run() -> None:
    """Its messages are in no figure; but a broker that loses them is no broker to measure."""
    ledger = {"verdict": "ok", "unique": 5, "background": [{"name": "noise", "verdict": "violated"}]}
    (check,) = [check for check in of_run(manifest(), ledger, row()) if check.check == "ledger"]
    assert check.status is Status.FAIL and "noise" in check.text


def text_of(checks: list[Any], name: str) -> str:
    (found,) = [check.text for check in checks if check.check == name]
    return str(found)


def test_a_run_of_one_side_alone_is_told_what_it_cannot_know() -> None:
    """Neither is a failure, and neither says more than it knows."""
    only_consumed = step_checks(row(latency={}, settings={"publishers": 0, "consumers": 1, "in_flight": 0}))
    assert "others published" in text_of(only_consumed, "samples")
    assert "confirms" not in statuses(only_consumed), "it published nothing that could be confirmed"
    found = of_run(manifest(), {"verdict": "unknown", "undelivered": 2000}, row(settings={"consumers": 0}))
    assert "nobody consumes in this run: whether the 2,000 confirmed" in text_of(found, "ledger")
    unconfirmed = of_run(manifest(), {"verdict": "unknown", "undelivered": 0}, row())
    assert "was not confirmed" in text_of(unconfirmed, "ledger")
    shared = of_run(manifest(), {"verdict": "unknown", "undelivered": 9, "foreign": 1200}, row())
    words = text_of(shared, "ledger")
    assert "9 confirmed messages" in words and "1,200 messages of others" in words


def test_a_rate_of_0_is_no_missed_schedule() -> None:
    """Nothing was intended."""
    none = dict.fromkeys(("published", "intended", "confirmed", "delivered"), 0)
    idle = step_checks(row(settings={"in_flight": 0, "rate": 0.0, "consumers": 1}, latency={}, **none))
    assert "intended_rate" not in statuses(idle)


def test_messages_that_reach_no_queue_are_no_backlog() -> None:
    """They were returned: nothing grew, and the reason for having measured nothing is said."""
    settings = {"in_flight": 0, "rate": None, "consumers": 1, "mandatory": True}
    checks = step_checks(row(latency={}, settings=settings, returned=200_000, delivered=0))
    assert statuses(checks)["backlog"] == "pass"
    assert statuses(checks)["samples"] == "fail" and "every message was returned" in text_of(checks, "samples")
    half = step_checks(row(returned=100_000, delivered=90_000))
    assert statuses(half)["backlog"] == "warn" and "90.0%" in text_of(half, "backlog")


def test_what_disturbed_a_run_is_summed_up() -> None:
    """Events scroll by; at the end it counts how often, and how long."""
    quiet, disturbed = Disturbances(), Disturbances()
    quiet.event({"kind": "polled", "polls": 10, "empty": 4})
    quiet.event({"kind": "polled", "polls": 10, "empty": 1})
    assert statuses([quiet.check()]) == {"disturbances": "pass"}
    assert quiet.polls() == "polls   20, of which 5 (25%) found the queue empty" and not disturbed.polls()
    for event in (
        {"kind": "connection_lost"},
        {"kind": "connection_lost"},
        {"kind": "consumer_cancelled"},
        {"kind": "blocked"},
        {"kind": "unblocked", "blocked_ns": 1_500_000_000},
        {"kind": "dropped", "dropped": 1200},
    ):
        disturbed.event(event)
    checks = of_run(manifest(), {"verdict": "ok"}, row(), disturbances=disturbed)
    assert statuses(checks)["disturbances"] == "warn"
    assert text_of(checks, "disturbances") == (
        "while the run lasted: 2 connections lost, 1 consumer cancelled by the broker,"
        " connections blocked by the broker for 1.5 s, added up, 1,200 overdue messages not sent"
    )
