"""Options from environment variables, by PerfTest's rules: ``CONFIRM_TIMEOUT`` is ``--confirm-timeout``.

Only PerfTest's own names are looked up, with the prefix of ``RABBITMQ_PERF_TEST_ENV_PREFIX`` where it is set. Several
values of one option are separated by commas. An option on the command line wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from perftest.cli.options.option import Arity, Effect, Option
from perftest.cli.options.table import BY_VARIABLE

PREFIX_VARIABLE: Final = "RABBITMQ_PERF_TEST_ENV_PREFIX"
_COMMA_SEPARATED: Final = ("pairs", "message_flag", "rate_cycle", "size_cycle", "latency_cycle")


def from_environment(environment: Mapping[str, str]) -> dict[str, list[str]]:
    """The values of each option that is set there; a flag that is not ``true`` is as if it were not there."""
    prefix = environment.get(PREFIX_VARIABLE, "")
    found: dict[str, list[str]] = {}
    for variable, option in BY_VARIABLE.items():
        text = environment.get(prefix + variable)
        if text is not None and (option.arity is not Arity.FLAG or text.lower() == "true"):
            found[option.key] = _values(option, text)
    return found


def listing(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Every variable and what it is for: the value it has now comes first."""
    prefix = environment.get(PREFIX_VARIABLE, "")
    rows = []
    for variable, option in BY_VARIABLE.items():
        words = option.help if option.effect is Effect.OBEYED else f"{option.effect.value}: {option.reason}"
        text = environment.get(prefix + variable)
        rows.append((prefix + variable, f"[{text}] {words}" if text is not None else words))
    return rows


def _values(option: Option, text: str) -> list[str]:
    if option.arity is Arity.FLAG:
        return [""]
    if option.arity is Arity.MANY and option.kind in _COMMA_SEPARATED:
        return [part.strip() for part in text.split(",") if part.strip()]
    return [text]
