"""Actions of a timeline on the links between hosts, and the rules for them. Pure.

A link is one direction between two hosts, and an action takes both directions unless it says ``one_way``, which is the
direction from ``node`` to ``peer``. Without a peer the links between ``node`` and all other hosts are meant. The links
of a host that stands for a broker node bear the name of that node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from perftest.spec.timed_action import Do, TimedAction
from perftest.spec.units import UnitError, parse_bandwidth_mbit, parse_duration_s, parse_share

VALUE_OF: Final = {Do.LATENCY: "latency_s", Do.LOSS: "loss", Do.BANDWIDTH: "bandwidth_mbit"}
"""The field that holds the value of an action."""
ONE_WAY: Final = "one-way"
LATENCY_MAX_S: Final = 60.0

_PARSE: Final = {Do.LATENCY: parse_duration_s, Do.LOSS: parse_share, Do.BANDWIDTH: parse_bandwidth_mbit}
_EXAMPLE: Final = {Do.LATENCY: "5ms", Do.LOSS: "1%", Do.BANDWIDTH: "100mbit"}


def details(text: str, do: Do, words: Sequence[str]) -> dict[str, Any]:
    """The ends of the links and the value, as typed behind the action: ``[NODE [PEER]] [VALUE] [one-way]``. Raises
    :class:`UnitError`."""
    found: dict[str, Any] = {}
    rest = list(words)
    if rest[-1:] == [ONE_WAY] and do != Do.RECONNECT:
        found["one_way"] = rest.pop() == ONE_WAY
    if do in VALUE_OF and rest:
        found[VALUE_OF[do]] = _PARSE[do](rest.pop())
    if len(rest) > 2 or (do in VALUE_OF and VALUE_OF[do] not in found):
        value = f" {_EXAMPLE[do]}" if do in VALUE_OF else ""
        raise UnitError(f"{text!r} is not a time and an action", f"write TIME {do} [NODE [PEER]]{value} [{ONE_WAY}]")
    return found | dict(zip(("node", "peer"), rest, strict=False))


def rules(action: TimedAction, hosts: Collection[str] | None, no_links: str) -> Iterator[tuple[str, str, str]]:
    """The rules that an action on links breaks: key, rule and fix.

    :param hosts: the ends of links that there are, by name; None: they are not known yet
    :param no_links: why there are no links, if ``hosts`` is empty
    """
    do = action.do
    if hosts is not None and not hosts:
        fix = "run the workload over hosts (perftest remote run), or leave out the action"
        yield "do", f"{do} is for a link between hosts, and {no_links}", fix
    elif hosts is not None and action.peer and action.peer not in hosts:
        yield "peer", f"there is no host {action.peer!r}", f"use one of {', '.join(hosts)}, or leave out peer"
    if action.peer and action.peer == action.node:
        yield "peer", f"{action.node} has no link to itself", "name another host, or leave out peer for all others"
    if action.latency_s > LATENCY_MAX_S:
        yield "latency", f"a link cannot take {action.latency_s:g} s", f"use at most {LATENCY_MAX_S:g}s"
    if action.one_way and do == Do.RECONNECT:
        yield "one_way", f"{do} takes no one_way", "leave out one_way"


def changes(action: TimedAction) -> dict[str, float | bool]:
    """The action's changes to the settings of its links (:class:`infra.links.settings.LinkSettings`). An action in both
    directions gives its latency to each of them."""
    match action.do:
        case Do.PARTITION:
            return {"cut": True}
        case Do.LATENCY:
            return {"delay_ms": action.latency_s * 1e3}
        case Do.LOSS:
            return {"loss": action.loss}
        case Do.BANDWIDTH:
            return {"mbit": action.bandwidth_mbit}
    raise ValueError(f"{action.do} changes no settings of links")


def pairs(action: TimedAction, node: str, hosts: Collection[str]) -> list[tuple[str, str]]:
    """The links that an action is about, as pairs of sender and receiver. ``node`` is the name that the node of the
    action has at that moment."""
    peers = [action.peer] if action.peer else [each for each in hosts if each != node]
    there = [(node, peer) for peer in peers]
    return there if action.one_way else [*there, *((peer, node) for peer in peers)]


def in_words(action: TimedAction) -> str:
    """The other end and the value, to be read behind the name of the node."""
    value = {
        Do.LATENCY: f" {action.latency_s * 1e3:g}ms",
        Do.LOSS: f" {action.loss:.6%}".rstrip("0%").rstrip(".") + "%",
        Do.BANDWIDTH: f" {action.bandwidth_mbit:g}mbit",
    }.get(action.do, "")
    peer = f" {action.peer}" if action.peer else " all"
    return f"{peer}{value}{f' {ONE_WAY}' if action.one_way else ''}"
