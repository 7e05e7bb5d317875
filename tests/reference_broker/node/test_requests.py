"""Questions from node to node: each gets one answer, in time, however the other end fails; none is kept for ever."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from reference_broker.node.config import Limits
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.links.peer_requests import Answer, Answered, Requests
from reference_broker.types import NodeId

HERE, THERE, ELSEWHERE = NodeId(1), NodeId(2), NodeId(3)


class Node:
    """What requests need of their node, with timers that fire when told."""

    def __init__(self, **limits: int) -> None:
        self.node = HERE
        self.limits = Limits(**limits)
        self.sent: list[tuple[NodeId, FrameKind, bytes]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.is_cut = False
        self.asked: list[tuple[Answer, Answered]] = []
        self.requests = Requests(self, lambda _node, request, answered: self.asked.append((request, answered)))
        self.answers: list[Answer] = []

    def send(self, node: NodeId, kind: FrameKind, buffers: list[bytes | memoryview]) -> int:
        self.sent.append((node, kind, b"".join(buffers)))
        return 0 if self.is_cut else len(self.sent[-1][2])

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.timers.append((delay_s, call))

    def ask(self, node: NodeId = THERE) -> None:
        self.requests.ask(node, {"op": "outlive"}, self.answers.append)

    def hear(self, node: NodeId, kind: FrameKind, number: int, content: object) -> None:
        body = number.to_bytes(4, "big") + json.dumps(content).encode()
        self.requests.frame(node, kind, memoryview(body))


def test_an_answer_reaches_the_one_who_asked() -> None:
    """Numbers tell questions apart, whatever the order of the answers."""
    node = Node()
    node.ask()
    node.ask()
    node.hear(THERE, FrameKind.ANSWER, 2, {"second": 1})
    node.hear(THERE, FrameKind.ANSWER, 1, {"first": 1})
    assert node.answers == [{"second": 1}, {"first": 1}]


def test_silence_is_answered_after_the_time_out_and_an_answer_after_that_is_ignored() -> None:
    """An operator who asks a node that hangs gets a sentence, once."""
    node = Node(request_timeout_ms=1500)
    node.ask()
    [(delay_s, over)] = node.timers
    over()
    node.hear(THERE, FrameKind.ANSWER, 1, {"late": 1})
    assert delay_s == 1.5
    assert [answer["error"] for answer in node.answers] == ["node 2 did not answer within 1500 ms"]


def test_a_time_out_after_the_answer_does_nothing() -> None:
    """A call is made exactly once."""
    node = Node()
    node.ask()
    node.hear(THERE, FrameKind.ANSWER, 1, {})
    node.timers[0][1]()
    assert node.answers == [{}]


def test_a_broken_link_answers_what_was_asked_over_it() -> None:
    """At once, not after the time-out; and only what was asked of that node."""
    node = Node()
    node.ask(THERE)
    node.ask(ELSEWHERE)
    node.requests.peer_down(THERE)
    assert [answer["error"] for answer in node.answers] == ["the link to node 2 broke"]


def test_a_node_that_is_down_is_said_to_be() -> None:
    """Nothing waits for it."""
    node = Node()
    node.is_cut = True
    node.ask()
    assert [answer["error"] for answer in node.answers] == ["node 2 cannot be reached"]
    assert not node.timers


def test_only_so_many_may_wait() -> None:
    """The bound holds, and lets go as soon as one is answered."""
    node = Node(requests_max=2)
    for _ in range(3):
        node.ask()
    assert [answer["error"] for answer in node.answers] == ["2 requests await an answer already"]
    node.hear(THERE, FrameKind.ANSWER, 1, {"ok": True})
    node.ask()
    assert node.answers[1:] == [{"ok": True}]
    assert len(node.sent) == 3


def test_an_answer_of_another_node_is_no_answer() -> None:
    """Numbers are told apart per node that was asked."""
    node = Node()
    node.ask(THERE)
    node.hear(ELSEWHERE, FrameKind.ANSWER, 1, {"not": "mine"})
    assert not node.answers


def test_an_answer_that_is_too_long_says_so_instead() -> None:
    """A frame beyond the other's bound would cost the link."""
    node = Node(request_bytes_max=200)
    node.hear(THERE, FrameKind.REQUEST, 7, {"op": "leading"})
    [(request, answered)] = node.asked
    answered({"groups": list(range(100))})
    [(to, kind, body)] = node.sent
    assert (request, to, kind, body[:4]) == ({"op": "leading"}, THERE, FrameKind.ANSWER, b"\0\0\0\7")
    assert len(body) <= 200 and "octets" in json.loads(body[4:])["error"]


@pytest.mark.parametrize("body", [b"", b"\0\0\0\1", b"\0\0\0\1[]", b"\0\0\0\1{"])
def test_what_is_no_request_costs_the_link_and_nothing_else(body: bytes) -> None:
    """Peers hang up on ValueError."""
    node = Node(request_bytes_max=200)
    node.ask()
    with pytest.raises(ValueError):
        node.requests.frame(THERE, FrameKind.ANSWER, memoryview(body))
    assert not node.answers


def test_a_request_that_is_too_long_is_refused_at_home() -> None:
    """The peer would take none of it."""
    node = Node(request_bytes_max=200)
    node.requests.ask(THERE, {"op": "x" * 200}, node.answers.append)
    assert not node.sent
    assert [list(answer) for answer in node.answers] == [["error", "fix"]]


@pytest.mark.parametrize("kind", [FrameKind.REQUEST, FrameKind.ANSWER])
def test_a_peer_with_another_limit_is_told_and_the_link_stays(kind: FrameKind) -> None:
    """It asks again and again: each time the link would break, with all queues on it."""
    node = Node(request_bytes_max=300)
    if kind is FrameKind.ANSWER:
        node.ask()
    node.hear(THERE, kind, 1, {"long": "x" * 300})
    said = node.answers if kind is FrameKind.ANSWER else [json.loads(body[4:]) for _to, _kind, body in node.sent]
    assert len(said) == 1 and "request_bytes_max" in said[0]["fix"]
    assert not node.asked
