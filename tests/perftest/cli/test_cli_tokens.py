"""A command line means what it means to PerfTest: the rules of its parser, word by word."""

from __future__ import annotations

import pytest

from perftest.options import tokens, values
from perftest.options.option import Arity, Effect
from perftest.options.table import BY_LONG, BY_SHORT, OPTIONS
from perftest.options.tokens import from_environment, listing, without_effect


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-x 10", {"producers": ["10"]}),
        ("-x10", {"producers": ["10"]}),
        ("-x=10", {"producers": ["10"]}),
        ("--producers 10", {"producers": ["10"]}),
        ("--producers=10", {"producers": ["10"]}),
        ("-producers=10", {"producers": ["10"]}),
        ("-pmessages 100000", {"pmessages": ["100000"]}),
        ("-rate500", {"rate": ["500"]}),
        ("-y0 -p -u q", {"consumers": ["0"], "predeclared": [""], "queue": ["q"]}),
        ("-qq -qp q-%d -qpf 1 -qpt 10", {"quorum": [""], "queue_pattern": ["q-%d"], "queue_pattern_from": ["1"],
                                         "queue_pattern_to": ["10"]}),
        ("-qp=q-%d", {"queue_pattern": ["q-%d"]}),
        ("-ax3", {"autoack": [""], "producers": ["3"]}),
        ("-aS", {"autoack": [""], "slow_start": [""]}),
        ("-f persistent mandatory -a", {"flags": ["persistent", "mandatory"], "autoack": [""]}),
        ("-fpersistent", {"flags": ["persistent"]}),
        ("-f persistent -f mandatory", {"flags": ["persistent", "mandatory"]}),
        ("-vr 100:60 1000:10 --variable-rate 5:5", {"variable_rate": ["100:60", "1000:10", "5:5"]}),
        ("-r -1 -st -5", {"rate": ["-1"], "shutdown_timeout": ["-5"]}),
        ("-e -t fanout", {"exchange": [""], "type": ["fanout"]}),
        ("-e amq.default", {"exchange": ["amq.default"]}),
        ("--confirm-t 5", {"confirm_timeout": ["5"]}),
        ("--env", {"show_environment": [""]}),
        ("--in-flight=7", {"confirm": ["7"]}),
        ("--arr poisson", {"arrivals": ["poisson"]}),
        ("--random-routing-key -rkcs 5", {"random_routing_key": [""], "routing_key_cache_size": ["5"]}),
        ("-mp priority=5,a=b -ca x-priority=10", {"message_properties": ["priority=5,a=b"],
                                                  "consumer_arguments": ["x-priority=10"]}),
    ],
)  # fmt: skip
def test_a_line_is_read_as_by_perftest(line: str, expected: dict[str, list[str]]) -> None:
    """Names of one letter and of several, values beside and behind, several values, abbreviations."""
    read = tokens.read(line.split())
    assert read.complaints == [] and read.values == expected


@pytest.mark.parametrize(
    ("line", "what", "fix"),
    [
        ("--prod 5", "--prod is short for several options", "--producers or --producer-channel-count"),
        ("--nope 5", "no such option: --nope", "run --help"),
        ("--pruducers 5", "no such option: --pruducers", "did you mean --producers?"),
        ("-qpr 5", "no such option: -qpr", "did you mean -qp"),
        ("-Z 5", "no such option: -Z", "run --help"),
        ("-x", "-x needs a value", "-x N"),
        ("-x -y 1", "-x needs a value", "-x N"),
        ("--autoack=true", "--autoack takes no value", "write -a alone"),
        ("five", "'five' belongs to no option", "remove it"),
    ],
)
def test_what_cannot_be_read_is_told_with_a_fix(line: str, what: str, fix: str) -> None:
    """A script must notice: PerfTest prints its usage and says that all is well."""
    (complaint,) = tokens.read(line.split()).complaints
    assert what in complaint.what and fix in complaint.fix


def test_all_words_that_cannot_be_read_are_told_at_once() -> None:
    """One round of corrections."""
    assert len(tokens.read(["--nope", "5", "five", "-x"]).complaints) == 3


def test_a_value_may_have_spaces_and_quotes() -> None:
    """A shell has taken one pair of quotes away; another pair is PerfTest's to take."""
    assert tokens.read(["--id", "test 1", "-u", '"q"']).values == {"id": ["test 1"], "queue": ["q"]}


def test_the_first_of_several_counts_and_it_is_said() -> None:
    """Commons CLI takes the first; neither is to be guessed. No value is told: it may hold a password."""
    line = tokens.read(["-h", "amqp://u:secret@a", "-x", "1", "-vr", "5:1", "-h", "amqp://b", "-x", "1", "-vr", "6:1"])
    assert line.repeated() == ["-h is given 2 times: the first counts, as for PerfTest"]


def test_names_are_unique_and_every_option_of_perftest_has_one() -> None:
    """Two options of one name, and one of them would never be read."""
    assert len(BY_SHORT) == sum(bool(each.short) for each in OPTIONS)
    assert len(BY_LONG) == sum(len(each.long) for each in OPTIONS)
    assert len([each for each in OPTIONS if each.perftest]) >= 120
    assert all(each.reason for each in OPTIONS if each.effect is not Effect.OBEYED)
    assert all(each.help for each in OPTIONS if each.effect is Effect.OBEYED)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_each_option_is_read_by_all_its_names(option: tokens.Option) -> None:
    """With its value, if it takes one."""
    for flag in option.flags:
        words = [flag] if option.arity is Arity.FLAG else [flag, "7"]
        read = tokens.read(words)
        assert read.values == {option.key: ["" if option.arity is Arity.FLAG else "7"]} and not read.complaints


def test_variables_are_those_of_perftest() -> None:
    """Long names in capitals; several values with commas; a flag is true or nothing; none of ours."""
    environment = {"CONFIRM_TIMEOUT": "5", "VARIABLE_RATE": "100:60,5:5", "AUTOACK": "TRUE", "POLLING": "false"}
    environment |= {"SEED": "5", "QUEUE": "a,b", "PATH": "/bin"}
    assert from_environment(environment) == {
        "confirm_timeout": ["5"],
        "variable_rate": ["100:60", "5:5"],
        "autoack": [""],
        "queue": ["a,b"],
    }


def test_variables_may_have_a_prefix() -> None:
    """So that they do not collide with others."""
    environment = {"RABBITMQ_PERF_TEST_ENV_PREFIX": "PERF_TEST_", "RATE": "1", "PERF_TEST_RATE": "2"}
    assert from_environment(environment) == {"rate": ["2"]}
    assert ("PERF_TEST_RATE", "[2] Messages per second") in [(name, text[:23]) for name, text in listing(environment)]


def test_the_last_underscore_of_a_prefix_may_be_left_out() -> None:
    """As for PerfTest: else every variable were ignored, and the load without its limits."""
    environment = {"RABBITMQ_PERF_TEST_ENV_PREFIX": "PERF_TEST", "RATE": "1", "PERF_TEST_RATE": "2"}
    assert from_environment(environment) == {"rate": ["2"]}
    assert not without_effect(environment)
    assert "PERF_TEST_RATE" in dict(listing(environment))


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"RABBITMQ_PERF_TEST_ENV_PREFIX": "PT", "RATE": "10"}, ["PT_: no variable with this prefix"]),
        (
            {"RABBITMQ_PERF_TEST_ENV_PREFIX": "PT", "PT_RAET": "10", "PT_SIZE": "100"},
            ["PT_RAET has no effect: no option has this name; did you mean PT_RATE?"],
        ),
        ({"AUTOACK": "yes", "POLLING": "false", "JSON_BODY": "true"}, ["AUTOACK has no effect: only true sets -a"]),
        ({"RATE": "10", "PATH": "/bin"}, []),
    ],
)
def test_a_variable_that_sets_nothing_is_told(environment: dict[str, str], said: list[str]) -> None:
    """A limit that is dropped in silence puts an unlimited load on somebody's broker."""
    found = without_effect(environment)
    assert len(found) == len(said) and all(part in text for part, text in zip(said, found, strict=True)), found


def test_every_default_can_be_read() -> None:
    """A default that its own option refuses would end every run with an error about something nobody typed."""
    for each in OPTIONS:
        for text in filter(None, (each.default, each.local)):
            values.read(each.kind, text)
