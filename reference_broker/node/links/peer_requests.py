"""Questions from node to node, for operations: rare, small, answered or given up in time.

A request is one JSON object, and so is its answer. The node that asks keeps a call per request until the answer comes,
the link breaks, or ``request_timeout_ms`` is over. Each call is made exactly once. No message passes through here.

An answer of another node is checked when it comes: an answer without the fields that belong in it becomes an error for
the one who asked. Answers are taken apart much later, in calls that must not fail: an exception there stops the node.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, Final

from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.ports import NodePorts
from reference_broker.types import NodeId

Answer = dict[str, Any]
Answered = Callable[[Answer], None]
Answerer = Callable[[NodeId, Answer, Answered], None]
"""Answers a request of a node: at once or later, but exactly once."""
Ask = Callable[[NodeId, Answer, Answered], None]
"""Asks any node, this node too (:meth:`Requests.ask`)."""
Method = Callable[[Answer, Answered], None]
"""Carries out one operation."""
Later = Callable[[float, Callable[[], None]], None]
"""Calls after a number of seconds, together with others."""

_NUMBER: Final = Struct(">I")
_NAMES_MAX: Final = 10


class RequestError(Exception):
    """A request is refused. The text says what is wrong and where, ``fix`` what to do."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.fix = fix


class Requests:
    """The requests of this node that wait for answers, and the answers to other nodes' requests."""

    def __init__(self, node: NodePorts, answerer: Answerer) -> None:
        self._node = node
        self._answerer = answerer
        self._waiting: dict[int, tuple[NodeId, Answered]] = {}
        self._next = 1

    def ask(self, node: NodeId, request: Answer, answered: Answered) -> None:
        """Ask any node, this node too; ``answered`` gets a sound answer, or an answer with the key ``error``."""
        if node == self._node.node:
            self._answerer(node, request, answered)
        else:
            self._ask_peer(node, request, lambda answer: answered(_checked(request.get("op"), answer)))

    def _ask_peer(self, node: NodeId, request: Answer, answered: Answered) -> None:
        limits, number = self._node.limits, self._next
        if len(self._waiting) >= limits.requests_max:
            answered(failure(f"{limits.requests_max} requests await an answer already", "try again in a moment"))
            return
        self._next = number % 0xFFFFFFFF + 1
        body = json.dumps(request, separators=(",", ":")).encode()
        if _NUMBER.size + len(body) > limits.request_bytes_max:
            answered(failure(f"the request takes {len(body)} octets", "ask for less"))
            return
        if not self._node.send(node, FrameKind.REQUEST, [_NUMBER.pack(number), body]):
            answered(failure(f"node {node} cannot be reached", "start it, or mend the network between the nodes"))
            return
        self._waiting[number] = (node, answered)
        late = failure(
            f"node {node} did not answer within {limits.request_timeout_ms} ms", "look at its log; it may be overloaded"
        )
        self._node.later(limits.request_timeout_ms / 1000, lambda: self._finish(number, late))

    def frame(self, node: NodeId, kind: int, body: memoryview) -> None:
        """Take a request or an answer of a peer. Raises ValueError if it is damaged."""
        if len(body) <= _NUMBER.size:
            raise ValueError(f"request or answer of {len(body)} octets")
        (number,) = _NUMBER.unpack_from(body)
        if len(body) > self._node.limits.request_bytes_max:
            self._too_large(node, kind, number, len(body))
            return
        if (content := read_object(bytes(body[_NUMBER.size :]))) is None:
            raise ValueError("a request or an answer that is no object")
        if kind == FrameKind.ANSWER:
            if (waiting := self._waiting.get(number)) is not None and waiting[0] == node:
                self._finish(number, content)
            return
        self._answerer(node, content, lambda answer: self._answer(node, number, answer))

    def _too_large(self, node: NodeId, kind: int, number: int, octets: int) -> None:
        """The peer has another limit. Closing the link would break all queues on it, again at each try."""
        what = "answer" if kind == FrameKind.ANSWER else "request"
        refused = failure(
            f"the {what} takes {octets} octets, node {self._node.node} takes {self._node.limits.request_bytes_max}",
            "set limits.request_bytes_max of all nodes to the same value",
        )
        if kind == FrameKind.REQUEST:
            self._answer(node, number, refused)
        elif (waiting := self._waiting.get(number)) is not None and waiting[0] == node:
            self._finish(number, refused)

    def peer_down(self, node: NodeId) -> None:
        """The requests to this peer will not be answered."""
        lost = failure(f"the link to node {node} broke", "ask again; what was asked for may have been done")
        for number, (asked, _) in list(self._waiting.items()):
            if asked == node:
                self._finish(number, lost)

    def _answer(self, node: NodeId, number: int, answer: Answer) -> None:
        body = json.dumps(answer, separators=(",", ":")).encode()
        if len(body) + _NUMBER.size > self._node.limits.request_bytes_max:
            body = json.dumps(failure(f"the answer takes {len(body)} octets", "ask for less")).encode()
        self._node.send(node, FrameKind.ANSWER, [_NUMBER.pack(number), body])

    def _finish(self, number: int, answer: Answer) -> None:
        if (waiting := self._waiting.pop(number, None)) is not None:
            waiting[1](answer)


def answer_by(methods: Mapping[str, Method], request: Answer, answered: Answered) -> None:
    """Answer a request by the method of its ``op``. A refused operation is answered with a failure."""
    method = methods.get(str(request.get("op")))
    try:
        if method is None:
            raise RequestError(f"unknown operation {request.get('op')!r}", f"use one of {', '.join(sorted(methods))}")
        method(request, answered)
    except RequestError as refused:
        answered(failure(str(refused), refused.fix))


def read_object(octets: bytes) -> Answer | None:
    """The JSON object in these octets; None if they are something else or cannot be read."""
    try:
        content = json.loads(octets)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def failure(what: str, fix: str) -> Answer:
    """An answer that says what went wrong and what to do."""
    return {"error": what, "fix": fix}


def choice(known: Iterable[str], none: str) -> str:
    """The fix for an unknown name: the known names, or ``none``."""
    names = sorted(known)
    return f"name one of {_first(names)}" if names else none


def not_there(kind: str, name: str, known: Iterable[str]) -> str:
    """The sentence about something that was to be removed and was not there."""
    names = sorted(known)
    return f"there was no {kind} {name!r}; {f'there is {_first(names)}' if names else 'there is none'}"


def _first(names: Sequence[str]) -> str:
    rest = f" or {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return ", ".join(names[:_NAMES_MAX]) + rest


_Check = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


_MEMBER_NUMBERS: Final = (
    "last_log_index", "last_written", "last_applied", "commit_index", "snapshot_index", "term", "machine_version",
)  # fmt: skip
_SHAPES: Final[dict[str, dict[str, _Check]]] = {
    "member": {
        "raft_state": _is_text,
        "membership": _is_text,
        "voters": _are_numbers,
        **dict.fromkeys(_MEMBER_NUMBERS, _is_number),
    },
    "counts": dict.fromkeys(("ready", "consumers", "dead_letters"), _is_number),
    "read-index": {"index": _is_number},
    "leading": {"groups": _are_numbers},
    "known-life": {"life": _is_number},
    "replace-replica": {"done": _is_flag},
}
_ERROR: Final[dict[str, _Check]] = {"error": _is_text, "fix": _is_text}


def _checked(operation: object, answer: Answer) -> Answer:
    """The answer, or a failure that names its fault. An operation without a row needs no field."""
    shape = _ERROR if "error" in answer else _SHAPES.get(str(operation), {})
    wrong = [key for key, is_right in shape.items() if not is_right(answer.get(key))]
    if not wrong:
        return answer
    return failure(f"the answer to {operation} has no sound {', '.join(wrong)}", "run the same release on all nodes")
