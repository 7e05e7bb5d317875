"""Contradictions between options: all of them at once, each by the names that were written, each with its fix."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perftest.engine.accounting.routing import queues_of_each
from perftest.options.plan_of_options import plan_of
from perftest.spec.behaviour import RoutingKeys
from perftest.spec.plan import Plan, QueueType
from perftest.spec.problem import Problem, SpecError
from perftest.spec.units import IN_FLIGHT_UNLIMITED


def _examples() -> ModuleType:
    """How the tests of PerfTest's documented lines read one; test files are no packages."""
    spec = importlib.util.spec_from_file_location("examples", Path(__file__).parent / "test_cli_perftest_examples.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


choices_of: Any = _examples().choices_of


def problems(line: str) -> list[Problem]:
    """What is wrong with a line; nothing if it is a plan."""
    try:
        plan_of(choices_of(line))
    except SpecError as error:
        return error.problems
    return []


URI = "-h amqp://h"
CONTRADICTIONS = [
    (
        "-h amqp://h --cluster c -u q",
        "both a cluster and a URI are named",
        "--cluster, -h/--uri, -H/--uris",
        "name one",
    ),
    ("-h amqp://h --layout l.yaml -u q", "a layout is for a cluster that this command starts", "--layout", "leave out"),
    ("--cluster c --layout l.yaml", "a layout is for a cluster that this command starts", "--layout", "leave out"),
    ("-h rabbit1 -u q", "not a usable AMQP URI", "-h/--uri, -H/--uris", "write -h amqp://rabbit1"),
    (f"{URI} -x 0 -y 0", "no publishers and no consumers", "-x/--producers", "use 1 or more"),
    (f"{URI} -q 5 -A 6", "-A (6) is larger than -q (5)", "-A/--multi-ack-every", "raise -q to 6"),
    (f"{URI} -Q 5 -A 6", "-A (6) is larger than -Q (5)", "-A/--multi-ack-every", "raise -Q to 6"),
    (f"{URI} -q 5 -n 6", "-n (6) is larger than -q (5)", "-n/--ctxsize", "lower -n to 5"),
    (f"{URI} -q 70000", "-q 70000 is above 65535", "-q/--qos", "0 for no limit"),
    (f"{URI} -a -A 5", "-a and -A", "-a/--autoack, -A/--multi-ack-every", "leave out one"),
    (f"{URI} -a -na", "-na: nothing is acknowledged", "-na/--nack", "(-a)"),
    (f"{URI} -a -n 5", "-n: nothing is acknowledged", "-n/--ctxsize", "(-a)"),
    (f"{URI} -a --ack-interval-ms 5", "--ack-interval-ms: nothing is acknowledged", "--ack-interval-ms", "(-a)"),
    (f"{URI} -r 5 -P 5", "-r and -P: two rates", "-r/--rate, -P/--publishing-interval", "one of them"),
    (f"{URI} -r 5 -vr 5:5", "-r and -vr: two rates", "-r/--rate", "one of them"),
    (f"{URI} -P 5 -vr 5:5", "-P and -vr: two rates", "-P/--publishing-interval", "one of them"),
    (f"{URI} -vr 5", "-vr: '5' is not a value with its time", "-vr/--variable-rate", "100:60"),
    (f"{URI} -vr 5:0", "hold for some time", "-vr/--variable-rate", "above 0"),
    (f"{URI} -s 100 -vs 100:5", "-s and -vs: two sizes", "-s/--size, -vs/--variable-size", "one of them"),
    (f"{URI} -L 5 -vl 5:5", "-L and -vl: two processing times", "-L/--consumer-latency", "one of them"),
    (f"{URI} --arrivals poisson", "Poisson arrivals need a rate", "--arrivals", "add -r"),
    (f"{URI} --arrivals trace:/none -r 5", "trace of arrivals cannot be read: /none", "--arrivals", "readable"),
    (f"{URI} --arrivals sometimes", "'sometimes' is not a schedule", "--arrivals", "trace:FILE"),
    (f"{URI} -P 0.01", "too short a time", "-P/--publishing-interval", "0.1"),
    (f"{URI} -c 5 -m 5", "-m and -c: a channel cannot have transactions and confirms", "-m/--ptxsize", "one of them"),
    (f"{URI} -C 5 -x 0", "-C: there are no publishers", "-C/--pmessages", "add -x"),
    (f"{URI} -D 5 -y 0", "-D: there are no consumers", "-D/--cmessages", "add -y"),
    (f"{URI} -ew idle -y 0", "-ew: there are no consumers", "-ew/--exit-when", "add -y"),
    (f"{URI} -ew soon", "'soon' is not one of empty, idle", "-ew/--exit-when", "idle"),
    (f"{URI} -B /none", "a file of bodies cannot be read: /none", "-B/--body", "readable"),
    (f"{URI} -B {__file__} -jb", "-B and -jb: two kinds of bodies", "-B/--body", "one of them"),
    (f"{URI} -B {__file__} -vs 50:5", "-vs: files have the size they have", "-vs/--variable-size", "leave out one"),
    (
        f"{URI} -mp priority=300",
        "the property priority is a number from 0 to 255",
        "-mp/--message-properties",
        "priority=",
    ),
    (f"{URI} -mp deliveryMode=1 -f persistent", "-mp deliveryMode=1 is transient", "-mp", "use one of them"),
    (f"{URI} -f immediate", "'immediate' is not one of persistent, mandatory", "-f/--flag", "persistent or mandatory"),
    (f"{URI} -u a,a", "two queues are named 'a'", "-u/--queue", "own name"),
    (f"{URI} -u a -qp q-%d -qpf 1 -qpt 2", "queues are named in several ways", "-u/--queue, -qp", "one of them"),
    (f"{URI} -qp q-%d -qpf 1", "needs its first and its last number", "-qpt/--queue-pattern-to", "-qp, -qpf and -qpt"),
    (f"{URI} -qp q-%d -qpf 5 -qpt 1", "begins at 5 and ends at 1", "-qpf", "smaller number with -qpf"),
    (f"{URI} -qp q-%s -qpf 1 -qpt 2", "has no place for a number", "-qp/--queue-pattern", "q-%03d"),
    (f"{URI} -qf /none", "file of queues cannot be read", "-qf/--queue-file", "a name in each line"),
    (f"{URI} -qq", "a quorum queue cannot be named by the server", "-u/--queue", "name it with -u"),
    (f"{URI} -u q -qa x-queue-type=quorum -ad false", "always durable", "-u/--queue", "add -f persistent"),
    (f"{URI} -u q -qa x-queue-type=quorum -f persistent", "cannot be auto-delete", "-u/--queue", "switch -ad off"),
    (f"{URI} -u q -qa x-queue-type=classic -qq", "two types", "-qa/--queue-args, -qq/--quorum-queue", "one of them"),
    (f"{URI} -u q -qa x-queue-type=stream", "streams are not measured", "-qa/--queue-args", "-qq"),
    (f"{URI} -u q -qa x-queue-type=lazy", "no such type of queue", "-qa/--queue-args", "quorum or classic"),
    (f"{URI} -u q -qq -E", "cannot be exclusive", "-u/--queue", "leave out -E"),
    (f"{URI} -u q -qq -Q 5", "-Q: quorum queues do not support", "-Q/--global-qos", "use -q"),
    (f"{URI} -e amq.default", "whose name only the server knows", "-e/--exchange", "-u"),
    (
        f"{URI} -e amq.default -u q -K",
        "-K: the default exchange would route no message",
        "-K",
        "name an exchange with -e",
    ),
    (
        f"{URI} -e amq.default -u q -k x",
        "-k: the default exchange routes by the name",
        "-k",
        "name an exchange with -e",
    ),
    (f"{URI} -u q -k x -K", "-k and -K: two kinds of routing keys", "-k/--routing-key, -K", "one of them"),
    (f"{URI} -sst 5 -sul 2", "2 brokers cannot answer at 1", "-sul/--servers-up-limit", "name more URIs"),
    (f"{URI} -M 100", "below the 4096", "-M/--framemax", "4096 or more"),
    (f"{URI} -cri 60-30", "-cri: the range ends before it begins", "-cri", "shorter time first"),
    ("-h amqps://h -se", "-se: without a certificate", "-se/--sasl-external", "add --tls-cert"),
    (f"{URI} --tls-ca {__file__}", "no URI is one of amqps://", "--tls-ca", "write amqps://"),
    (f"{URI} -cal nearest", "'nearest' is not one of", "-cal/--connection-allocation", "round-robin"),
    (f"{URI} -i 0", "an interval of 0s is out of range", "-i/--interval", "100ms to 1m"),
    (f"{URI} -z 5 --warmup 5", "leaves nothing of the step", "--warmup", "shorter"),
    (f"{URI} -z soon", "-z: 'soon' is not a duration", "-z/--time", "5m"),
    (f"{URI} -ad maybe", "-ad: 'maybe' is neither true nor false", "-ad/--auto-delete", "true or false"),
    (f"{URI} --slo p99", "--slo: 'p99' is not an objective", "--slo", "e2e.p99<20ms"),
    ("--at 5s", "'5s' is not a time and an action", "--at", "write TIME ACTION [NODE]"),
    (f"{URI} --percentiles 101", "is not a list of percentiles", "--percentiles", "up to 100"),
    (f"{URI} -x two", "-x: 'two' is not a count", "-x/--producers", "1000"),
    (f"{URI} -sco next", "-sco: streams are not measured", "-sco/--stream-consumer-offset", "use -qq"),
    (f"{URI} -o2id x", "-o2id: no tokens are fetched", "-o2id/--oauth2-client-id", "password of the URI"),
    (f"{URI} --workers 70000", "--workers 70000 is not a number of processes", "--workers", "one for each core"),
    ("-E", "a quorum queue cannot be exclusive", "-u/--queue", "leave out -E"),
]


@pytest.mark.parametrize(("line", "rule", "where", "fix"), CONTRADICTIONS, ids=lambda part: part[:60])
def test_a_contradiction_is_named_by_the_options_that_make_it(line: str, rule: str, where: str, fix: str) -> None:
    """One problem, and nothing that only follows from it."""
    found = problems(line)
    assert [problem.rule for problem in found if rule not in problem.rule] == [], found
    (problem,) = found
    assert where in problem.where() and fix in problem.fix


MOOT = [
    # contradiction, option that makes it moot, why
    ("-qq -e amq.topic -k bills -r 30", "-y 0 -p", "nobody declares a queue without a name"),
    ("-qq", "-y 0", "nobody declares a queue without a name"),
    ("-qa x-queue-type=quorum", "-y 0", "the same, by its argument"),
    ("-e amq.default -k bills", "-y 0", "the key is the name of a queue of others"),
    ("-e amq.default", "-x 0 -u q", "nobody publishes"),
    ("-q 5 -A 6", "-y 0", "nobody waits for deliveries"),
    ("-q 5 -A 6", "--ack-interval-ms 10", "an incomplete group is acknowledged"),
    ("-q 5 -A 6", "-po", "a poll has no prefetch"),
    ("-q 5 -A 6", "-D 4", "the consumer leaves before its window is full"),
    ("-Q 5 -A 6", "-y 0", "nobody waits for deliveries"),
    ("-Q 5 -A 6", "-po", "a poll has no prefetch"),
    ("-q 5 -n 6", "-y 0", "nobody waits for deliveries"),
    ("-q 5 -n 6", "-po", "a poll has no prefetch"),
    ("-u q -qq -Q 5", "-y 0", "nobody sets a prefetch"),
    ("-u q -qq -Q 5", "-po", "a poll has no prefetch"),
    ("-a -A 5", "-y 0", "nobody acknowledges"),
    ("-a -na", "-y 0", "nobody acknowledges"),
    ("-a -n 5", "-y 0", "nobody acknowledges"),
    ("-a --ack-interval-ms 5", "-y 0", "nobody acknowledges"),
    ("-L 5 -vl 5:5", "-y 0", "nobody works on messages"),
    ("-r 5 -P 5", "-x 0", "nobody publishes"),
    ("-r 5 -vr 5:5", "-x 0", "nobody publishes"),
    ("-P 5 -vr 5:5", "-x 0", "nobody publishes"),
    ("-s 100 -vs 100:5", "-x 0", "nobody publishes"),
    ("--arrivals poisson", "-x 0", "nobody publishes"),
    ("-c 5 -m 5", "-x 0", "nobody publishes"),
    ("-mp deliveryMode=1 -f persistent", "-x 0", "nobody publishes"),
    ("-k x -K", "-x 0 -u q", "nobody publishes"),
    ("-sul 2", "", "nobody waits for servers without -sst"),
    ("-cri 60-30", "-dcr", "no connection is made again"),
]


@pytest.mark.parametrize(("line", "more", "why"), MOOT, ids=lambda part: part[:40])
def test_a_contradiction_that_another_option_makes_moot_is_none(line: str, more: str, why: str) -> None:
    """PerfTest runs these lines."""
    assert not problems(f"{URI} {line} {more}"), why
    assert more == "" or problems(f"{URI} {line}") or "-p" in more or "-x 0 -u q" in more, "no contradiction"


@pytest.mark.parametrize(
    "line",
    ["-p -qq", "-p -u q -qq -E", "-qq -E -y 0 -u q", "-po -a -n 5", "-q 5 -A 6 -D 9", "-y 0 -e amq.default -K"],
)
def test_a_contradiction_that_is_left_is_told(line: str) -> None:
    """What is declared where it is missing has to be in order; limits above the window are waited for."""
    assert len(problems(f"{URI} {line}")) == 1


def test_all_are_told_at_once() -> None:
    """One round of corrections: values that cannot be read, options against options, and rules of the plan."""
    line = "-h h -x two -r 5 -P 5 -q 5 -A 6 -qp q-%d -sq -z 5 --warmup 9 --slo p99 -k a -K -cri 60-30 -B /none"
    assert len(problems(line)) == 11


def plan(line: str) -> Plan:
    """The plan of a line that is in order."""
    made: Plan = plan_of(choices_of(line))
    return made


def test_beside_a_uri_defaults_are_perftests_and_otherwise_those_of_the_cluster() -> None:
    """The bundled cluster is there to be measured safely, another broker as PerfTest does."""
    there, here = plan("-h amqp://h").steps[0].settings, plan("").steps[0].settings
    assert (there.in_flight, there.prefetch, there.size_bytes, there.persistent) == (0, 0, 28, False)
    assert (here.in_flight, here.prefetch, here.size_bytes, here.persistent) == (1000, 1000, 1000, True)
    assert [queue.name for queue in plan("--cluster c").queues] == ["perftest"]
    assert plan("-z 5").exchange.name == "" and plan("").connecting.recovery_s is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", IN_FLIGHT_UNLIMITED), ("unlimited", IN_FLIGHT_UNLIMITED), ("-1", 0), ("off", 0), ("5", 5), ("2k", 2000)],
)
def test_confirms_without_a_limit_are_not_no_confirms(text: str, expected: int) -> None:
    """PerfTest's -c 0 selects confirm mode; only without -c there is none."""
    assert plan(f"-h amqp://h -c {text}").steps[0].settings.in_flight == expected


@pytest.mark.parametrize(("text", "expected"), [("-A 0", 1), ("-A 1", 1), ("-A 7", 7), ("-A automatic", 0), ("-a", 0)])
def test_an_ack_interval_of_0_is_perftests(text: str, expected: int) -> None:
    """PerfTest's -A 0 acknowledges each message by itself; what it calls automatic is -a."""
    assert plan(f"-h amqp://h {text}").steps[0].settings.ack_interval == expected


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("-s 12", "-s 12: bodies have 28 octets"),
        ("-vs 12:5", "-vs: bodies have 28 octets or more"),
        ("-B {file} -s 50", "-s has no effect with -B"),
        ("-T text/plain", "-T has no effect without -B or -jb"),
        ("-bc 5", "-bc has no effect without -jb"),
        ("-rkcs 5", "-rkcs has no effect without -K"),
        ("-re false", "-re has no effect without -na"),
        ("-pi 5", "-pi has no effect without -po"),
        ("-po -q 5", "-q has no effect with -po"),
        ("-sul 1", "-sul has no effect without -sst"),
        ("-u q -qq -ad true", "-ad true has no effect"),
        ("-e amq.default -t topic -u q", "-t has no effect"),
        ("-qp q%d -qpf 1 -qpt 2", "1 of 2 queues have no consumer"),
        ("-u a,b -D 5 -L 100", "-D -L holds for each queue of a consumer by itself"),
        ("-e amq.default -u a,b -y 2", "the default exchange copies nothing"),
        ("-y 0", "reach no queue"),
        ("-x 0 -u q -r 5 -s 100", "-r -s have no effect with -x 0: nobody publishes"),
        ("-a -q 10", "-q has no effect with -a"),
        ("-a -Q 10", "-Q has no effect with -a"),
        ("-ct 10", "-ct has no effect without -c"),
        ("--ack-interval-ms 10", "--ack-interval-ms has no effect without -A"),
        ("-C 10 -D 20 -u q", "10 messages are published for consumers who want 20: they wait"),
        ("-C 10 -D 10 -u q -y 2 -z 5", "10 messages are published for consumers who want 20"),
        ("-y 0 -u q -q 5", "-q has no effect with -y 0: nobody consumes"),
        ("-hst 5 -niot 3 -mda", "without effect here: -hst -niot (there is no JVM); -mda ("),
        ("-ei 3 --verbose", "without effect here: -ei (runs on several hosts"),
    ],
)
def test_what_does_nothing_is_said_and_stops_nothing(line: str, note: str) -> None:
    """PerfTest ignores these in silence; a line that works there works here."""
    choices = choices_of(f"-h amqp://h {line.replace('{file}', __file__)}")
    plan_of(choices)
    (only,) = choices.notes
    assert note in only


@pytest.mark.parametrize("line", ["-C 10 -D 10", "-C 10 -D 10 -y 3", "-C 10 -D 10 -u q", "-D 10", "-C 10 -x 2 -D 20"])
def test_consumers_that_get_what_they_want_wait_for_nobody(line: str) -> None:
    """Each consumer without a named queue gets every message."""
    choices = choices_of(f"-h amqp://h {line}")
    plan_of(choices)
    assert choices.notes == []


@pytest.mark.parametrize("names", ["a,b,", ",a,b", "a,,b"])
def test_empty_names_are_ignored(names: str) -> None:
    """As by PerfTest."""
    assert [queue.name for queue in plan(f"-h amqp://h -u {names}").queues] == ["a", "b"]
    assert problems("-h amqp://h -u ,")


def test_several_names_of_u_are_perftests_copies() -> None:
    """Each queue gets every message, each consumer takes from all; the default exchange copies nothing."""
    together = plan("-h amqp://h -u a,b,c -x 2 -y 2 -Y 2")
    assert together.consuming.channels == 6 and queues_of_each(together) == (0, 1, 2)
    assert queues_of_each(plan("-h amqp://h -u a,b -k key")) == (0, 1)
    apart = plan("-h amqp://h -u a,b -y 2 -e amq.default")
    assert apart.consuming.channels == 1 and queues_of_each(apart) is None
    assert plan("-u a,b -y 2").publishing.routing_keys is RoutingKeys.QUEUE, "the bundled cluster has no other exchange"
    pattern = plan("-h amqp://h -qp q%d -qpf 1 -qpt 2 -y 2")
    assert pattern.consuming.channels == 1 and queues_of_each(pattern) is None


def test_the_id_is_in_the_name_of_the_directory() -> None:
    """Whoever names a run wants to find it again, whatever the name."""
    assert (plan("-h amqp://h -d nightly.1").name, plan("-h amqp://h").name) == ("nightly.1", "run")
    assert plan("-h amqp://h -d ../a/b?c").name == "a-b-c"
    assert plan("-h amqp://h -d ...").name == "run"


def test_small_bodies_are_made_as_large_as_the_stamp_unless_they_carry_none() -> None:
    """PerfTest's stamp takes 12 octets, ours 28; JSON documents have it in a header."""
    assert plan("-h amqp://h -s 12").steps[0].settings.size_bytes == 28
    assert plan("-h amqp://h -s 12 -jb").steps[0].settings.size_bytes == 12
    assert plan("-h amqp://h -vs 12:5 50:5").publishing.size_cycle == ((28.0, 5.0), (50.0, 5.0))


def test_a_queue_that_is_filled_or_emptied_is_kept() -> None:
    """The next run takes what this one left there."""
    assert plan("-h amqp://h -u q").delete_queues
    assert not plan("-h amqp://h -u q -y 0").delete_queues and not plan("-h amqp://h -u q -x 0").delete_queues


def test_a_drain_has_no_warm_up() -> None:
    """A backlog may be gone in its first half second: that is the result."""
    assert plan("-h amqp://h -u q -x 0 -z 60").steps[0].warmup_s == 0
    assert plan("-h amqp://h -u q -x 0 -z 60 --warmup 2").steps[0].warmup_s == 2
    assert plan("-h amqp://h -u q -z 60").steps[0].warmup_s == 5


def test_two_runs_without_a_queue_name_do_not_hear_each_other() -> None:
    """Their keys differ, and yet they are the same experiment."""
    from perftest.spec.codec import plan_digest

    one, other = plan("-h amqp://h"), plan("-h amqp://h")
    assert one.publishing.routing_key != other.publishing.routing_key and plan_digest(one) == plan_digest(other)
    assert plan_digest(plan("-h amqp://h -u q -k a")) != plan_digest(plan("-h amqp://h -u q -k b"))


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        ("-s 1k", "-s 1000"),
        ("-vs 1k:1m", "-vs 1000:60"),
        ("-M 128K", "-M 128000"),
        ("-tsbs 64KiB", "-tsbs 65536"),
        ("-z 1h30m", "-z 5400"),
        ("-z 2d", "-z 172800"),
        ("-ct 1m30s", "-ct 90"),
        ("-L 5ms", "-L 5000"),
        ("-po -pi 1s", "-po -pi 1000"),
        ("-b 1m", "-b 60"),
        ("-A 10 --ack-interval-ms 1s", "-A 10 --ack-interval-ms 1000"),
    ],
)
def test_sizes_and_times_have_units_wherever_they_stand(typed: str, plain: str) -> None:
    """PerfTest's plain numbers keep their meaning, in the unit that each option has."""
    from perftest.spec.codec import plan_digest

    one, other = (plan(f"-h amqp://h -u q -k key {words}") for words in (typed, plain))
    assert plan_digest(one) == plan_digest(other)


@pytest.mark.parametrize(("line", "says"), [
    ("-b 100ms", "'100ms' is less than 1 s"), ("-pi 100us", "'100us' is less than 1 ms"), ("-pi 5x", "unknown unit 'x'")
])  # fmt: skip
def test_a_time_below_its_unit_is_refused(line: str, says: str) -> None:
    """0 has a meaning of its own."""
    (problem,) = problems(f"{URI} {line}")
    assert says in problem.rule


def test_sizes_of_queues_are_written_as_perftest_does() -> None:
    """Any case; 0 takes a limit away again."""
    limit = {text: plan(f"-h amqp://h -mlb {text}").queues[0].arguments for text in ("20gb", "10MB", "1KiB", "0")}
    assert [each.get("x-max-length-bytes") for each in limit.values()] == [20 * 10**9, 10**7, 1024, None]
    assert plan("-h amqp://h -qa x-max-length-bytes=5 -mlb 0").queues[0].arguments == {}
    assert plan("-h amqp://h -u q -qa x-queue-type=classic").queues[0].type is QueueType.CLASSIC
