"""Calibration of the model of RabbitMQ: short loads on a real RabbitMQ of three nodes on this machine.

Three loads are measured: a quorum queue with 1000 messages in flight, where nearly all CPU time is paid for messages;
one message in flight, where wake-ups take nearly all CPU time; and a lazy queue. Meanwhile the first node traces when
its processes have a scheduler. These times divide the node's CPU time among readers, channels, writers, queues and the
log. The costs are then found by iteration: simulate the same loads, compare CPU time a message by kind of process,
correct, and again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Final

import psutil

from infra import rabbitmq_cluster
from perftest.exits import CliError
from perftest.rabbitmq_model.costs import RabbitCosts
from perftest.series.sweep_plan import SweepRequest, swept_plan
from perftest.simulation import calibration
from perftest.simulation.fitting import MEASURED, origin, real_rows, setup_of, tell_of_other_work
from perftest.simulation.rabbitmq_calibration import RabbitCalibration
from perftest.simulation.simulated_run import StepLimits, simulate
from perftest.spec.plan import Plan

SECONDS: Final = 8.0
"""Time of each load, after two seconds of warm-up. Each is measured :data:`MEASURED` times, and the median of each
figure counts."""
ROUNDS: Final = 6
_LAZY: Final = "queues=[{name: lazy, type: classic, arguments: {x-queue-mode: lazy}}]"
LOADS: Final = {"many": (1000, ()), "one": (1, ()), "lazy": (200, ("load.size=28 B", _LAZY))}
"""Messages in flight and other settings of each load: many messages in flight, one, and a lazy queue."""
MODULES: Final = {
    "rabbit_reader": "reader",
    "rabbit_channel": "channel",
    "rabbit_writer": "writer",
    "ra_server_proc": "leader",
    "ra_log_wal": "wal",
    "rabbit_prequeue": "classic",
    "rabbit_amqqueue_process": "classic",
}
"""The kind of a process by the module of its first call."""
_WAKES: Final = 8
"""Approximate number of wake-ups of processes on the way of a message and back to its publisher."""
_SLOWEST: Final = 4.0
_WATCH: Final = """
Tracer = spawn(fun() -> Loop = fun Loop(Times) -> receive
    {{trace_ts, P, in, _, T}} -> Loop(maps:put({{in, P}}, T, Times));
    {{trace_ts, P, out, _, T}} -> case maps:take({{in, P}}, Times) of
        {{Began, Left}} -> Loop(maps:update_with(P, fun(N) -> N + T - Began end, T - Began, Left));
        error -> Loop(Times) end;
    {{stop, From}} -> From ! {{times, Times}};
    _ -> Loop(Times) end end, Loop(#{{}}) end),
timer:sleep({skip_ms}),
Kind = fun(P) -> case process_info(P, dictionary) of
    {{_, Words}} -> case proplists:get_value('$initial_call', Words) of {{M, _, _}} -> M; _ -> other end;
    _ -> other end end,
Steps = fun(P) -> case process_info(P, reductions) of {{_, N}} -> N; _ -> 0 end end,
Watched = [{{P, Kind(P), Steps(P)}} || P <- processes(), lists:member(Kind(P), [{modules}])],
[erlang:trace(P, true, [running, monotonic_timestamp, {{tracer, Tracer}}]) || {{P, _, _}} <- Watched],
timer:sleep({watch_ms}),
After = [{{P, K, Steps(P) - N}} || {{P, K, N}} <- Watched],
[catch erlang:trace(P, false, [running]) || {{P, _, _}} <- Watched],
Tracer ! {{stop, self()}},
receive {{times, Times}} ->
    Lines = [io_lib:format("~s ~b ~b~n", [K, maps:get(P, Times, 0), N]) || {{P, K, N}} <- After],
    file:write_file("{file}", Lines) end.
"""
"""Within a node: trace when processes get a scheduler and leave it, and write for each process its module, the sum of
these times, and its reductions."""
_WATCHED_MAX: Final = 4
"""Number of times that a load is measured, at most."""
_CALL_FILES: Final = ("wal", "classic")
"""Kinds of processes whose time on a scheduler includes the time of their file calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFigures:
    """The figures of one load: CPU time a message of each kind of process on the first node, and of one other node, in
    microseconds; confirm p50 in ns; rate a second."""

    kinds_us: Mapping[str, float]
    other_us: float
    confirm_ns: int
    rate: float


def plan_of(load: str, seconds: float = SECONDS) -> Plan:
    """The plan of a load."""
    times = f"step={{duration: {seconds + 2:g}s, warmup: 2s}}"
    in_flight, more = LOADS[load]
    return swept_plan(SweepRequest(overrides=(*more, times), varied=(f"in_flight={in_flight}",)))[0]


def calibrate(directory: Path, start: RabbitCosts, tell: Callable[[str], None]) -> RabbitCalibration:
    """Measure RabbitMQ on this machine and fit the costs. Raises RabbitMQError and CliError."""
    rounds = []
    with TemporaryDirectory(dir=directory, prefix=".calibration-") as place:
        for number in range(1, MEASURED + 1):
            tell_of_other_work(tell)
            tell(f"measuring {len(LOADS)} loads of {SECONDS:g} s on three nodes of RabbitMQ, {number} of {MEASURED}")
            with rabbitmq_cluster.running(Path(place)) as broker:
                rounds.append({load: _measured(broker, plan_of(load), Path(place)) for load in LOADS})
    real = {load: typical([each[load] for each in rounds]) for load in LOADS}
    costs = start
    for number in range(1, ROUNDS + 1):
        found = {load: simulated(costs, load) for load in LOADS}
        tell(f"round {number} of {ROUNDS}: {_errors(real, found)}")
        costs = corrected(costs, real, found)
    found = {load: simulated(costs, load) for load in LOADS}
    tell(f"fitted: {_errors(real, found)}")
    fit = {"real": _table(real), "simulated": _table(found)}
    return RabbitCalibration(costs=costs, measured_on={**origin(directory), "rabbitmq": "3.10.8"}, fit=fit)


def typical(found: Sequence[LoadFigures]) -> LoadFigures:
    """The median of each figure."""
    return LoadFigures(
        kinds_us={kind: median(each.kinds_us[kind] for each in found) for kind in found[0].kinds_us},
        other_us=median(each.other_us for each in found),
        confirm_ns=round(median(each.confirm_ns for each in found)),
        rate=median(each.rate for each in found),
    )


def _measured(broker: rabbitmq_cluster.RabbitMQ, plan: Plan, place: Path) -> LoadFigures:
    """The figures of a load. On a busy machine, the load may be over before it is watched: then it is measured again.
    Raises CliError."""
    for _ in range(_WATCHED_MAX):
        if (found := _watched(broker, plan, place)) is not None:
            return found
    what = f"the load was over before its processes were watched, {_WATCHED_MAX} times"
    raise CliError(what, "--calibrate", "end what else runs on this machine")


def _watched(broker: rabbitmq_cluster.RabbitMQ, plan: Plan, place: Path) -> LoadFigures | None:
    """The figures of a load; None if it was not watched. Clients, and so the leader, are on the first node."""
    file = place / "times.txt"
    code = _WATCH.format(skip_ms=4000, watch_ms=1500, file=file, modules=", ".join(MODULES))
    watching = Thread(target=broker.control, args=("eval", " ".join(code.split())))
    before = [_cpu_s(pid) for pid in broker.pids]
    watching.start()
    (row,) = real_rows(plan.changed(uris=broker.uris[:1]), place)
    watching.join()
    used = [1e6 * (_cpu_s(pid) - start) for pid, start in zip(broker.pids, before, strict=True)]
    messages = row["confirmed_per_s"] * (plan.steps[0].duration_s)
    kinds = kinds_of(file.read_text())
    total = sum(kinds.values())
    if not total or not messages:
        return None
    return LoadFigures(
        kinds_us={kind: used[0] / messages * count / total for kind, count in kinds.items()},
        other_us=sum(used[1:]) / len(used[1:]) / messages,
        confirm_ns=row["latency"]["confirm"]["p50_ns"],
        rate=row["confirmed_per_s"],
    )


def kinds_of(text: str) -> dict[str, float]:
    """The time of each kind of process, in any unit, from lines with module, time and reductions. Of processes that
    call files, reductions tell the time: as many take as long as in all other processes."""
    times, reductions = dict.fromkeys(MODULES.values(), 0.0), dict.fromkeys(MODULES.values(), 0.0)
    for line in text.splitlines():
        module, time, count = line.split()
        times[MODULES[module]] += max(0, int(time))
        reductions[MODULES[module]] += max(0, int(count))
    others = [kind for kind in times if kind not in _CALL_FILES]
    a_reduction = sum(times[kind] for kind in others) / max(1.0, sum(reductions[kind] for kind in others))
    return times | {kind: reductions[kind] * a_reduction for kind in _CALL_FILES}


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def simulated(costs: RabbitCosts, load: str) -> LoadFigures:
    """The same load in the model, with all nodes on this machine."""
    known = calibration.read(calibration.SHIPPED)
    setup = replace(setup_of(known), rabbit=RabbitCalibration(costs=costs))
    plan = plan_of(load, 2.0)
    with TemporaryDirectory() as place:
        writer, _ = simulate(plan, setup, known, Path(place), StepLimits(steady_s=2.0, warmup_s=1.0))
        lines = (writer.path / "broker.jsonl").read_text().splitlines()
    last = {sample["node"]: sample for sample in map(json.loads, lines)}
    (row,) = writer.rows
    first, *others = (last[name]["metrics"] for name in sorted(last))
    messages = _published(writer.ledger_record)
    names = dict.fromkeys(MODULES.values())
    return LoadFigures(
        kinds_us={kind: first[f"cpu_{kind}_ns"] / 1000 / messages for kind in names},
        other_us=sum(_total_us(each) for each in others) / len(others) / messages,
        confirm_ns=row["latency"]["confirm"]["p50_ns"],
        rate=row["confirmed_per_s"],
    )


def _published(ledger: Mapping[str, Any] | None) -> int:
    return int(ledger["published"]) if ledger else 0


def _total_us(metrics: Mapping[str, int]) -> float:
    return sum(value for name, value in metrics.items() if name.startswith("cpu_")) / 1000


_PAID_FOR: Final = {
    "reader": ("reader_publish_ns", "reader_ack_ns"),
    "channel": ("channel_publish_ns", "channel_confirm_ns", "channel_deliver_ns", "channel_ack_ns"),
    "writer": ("writer_deliver_ns",),
    "leader": ("leader_enqueue_ns", "leader_settle_ns"),
    "wal": ("wal_entry_ns",),
}
"""Costs by the kind of process that pays them for messages."""


def corrected(
    costs: RabbitCosts, real: Mapping[str, LoadFigures], found: Mapping[str, LoadFigures]
) -> RabbitCosts:  # fmt: skip
    """Costs of messages by the load of many, of wake-ups and notices by the load of one, the time of a wake-up by the
    missing latency."""
    many, got = real["many"], found["many"]
    changed: dict[str, float] = {}
    for kind, names in _PAID_FOR.items():
        ratio = _ratio(many.kinds_us[kind], got.kinds_us[kind])
        changed |= {name: getattr(costs, name) * ratio for name in names}
    changed["follower_entry_ns"] = costs.follower_entry_ns * _ratio(many.other_us, got.other_us)
    wakes = [sum(each["one"].kinds_us[kind] for kind in ("reader", "channel", "writer")) for each in (real, found)]
    changed["wake_cpu_ns"] = costs.wake_cpu_ns * _ratio(*wakes)
    changed["leader_event_ns"] = costs.leader_event_ns * _of_one(real, found, "leader")
    changed["wal_batch_ns"] = costs.wal_batch_ns * _of_one(real, found, "wal")
    lazy = _ratio(real["lazy"].kinds_us["classic"], found["lazy"].kinds_us["classic"])
    changed |= {name: getattr(costs, name) * lazy for name in ("classic_publish_ns", "classic_ack_ns")}
    missing_ns = (real["one"].confirm_ns - found["one"].confirm_ns) / _WAKES
    changed["wake_ns"] = max(0.0, costs.wake_ns + missing_ns)
    return replace(costs, **{name: round(value) for name, value in changed.items()})


def _of_one(real: Mapping[str, LoadFigures], found: Mapping[str, LoadFigures], kind: str) -> float:
    return _ratio(real["one"].kinds_us[kind], found["one"].kinds_us[kind])


def _sum_us(figures: LoadFigures) -> float:
    return sum(figures.kinds_us.values()) + 2 * figures.other_us


def _ratio(wanted: float, got: float) -> float:
    return min(max(wanted / got if got else 1.0, 1 / _SLOWEST), _SLOWEST)


def _errors(real: Mapping[str, LoadFigures], found: Mapping[str, LoadFigures]) -> str:
    return "; ".join(
        f"{load}: rate {found[load].rate / each.rate - 1:+.0%}, CPU {_sum_us(found[load]) / _sum_us(each) - 1:+.0%}, "
        f"confirm p50 {found[load].confirm_ns / each.confirm_ns - 1:+.0%}"
        for load, each in real.items()
    )


def _table(figures: Mapping[str, LoadFigures]) -> dict[str, Any]:
    return {load: asdict(each) for load, each in figures.items()}
