"""What a node may answer another: an answer that is nothing of the kind is an error for whoever asked, and no more.

Answers are taken apart long after they came, in calls that must not fail: an exception there stops the node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from reference_broker.node.requests import Answer, failure

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


def checked(operation: object, answer: Answer) -> Answer:
    """The answer, or what is wrong with it. An operation without a row asks for nothing but that it was done."""
    shape = _ERROR if "error" in answer else _SHAPES.get(str(operation), {})
    wrong = [key for key, is_right in shape.items() if not is_right(answer.get(key))]
    if not wrong:
        return answer
    return failure(f"the answer to {operation} has no sound {', '.join(wrong)}", "run the same release on all nodes")
