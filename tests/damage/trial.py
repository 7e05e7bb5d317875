"""One case: lay a cluster out, damage it, start it, read every queue, and judge.

The judge knows what a user knows: AMQP, the exit codes of ``perftest broker start`` and ``status``, and their words.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from infra.node_process import wait
from tests.damage.books import QUEUES, Book, Found, found_in, problems, read_all
from tests.damage.cases import Case, Damage, described, inflict, undo
from tests.damage.commands import Running, begin, perftest
from tests.damage.templates import NODES, Template

_START_S: Final = 60.0
_NEXT_START_S: Final = 6.0
"""Time for which a start of one node keeps the next one waiting: a node that may not lead waits for the others."""
_STATUS_S: Final = 10.0
_SERVE_S: Final = 15.0
_READ_S: Final = 25.0
_READ_WITHOUT_MAJORITY_S: Final = 8.0
_ROW: Final = re.compile(r"(node\d+)\s+(\w+)")
_ORDINARY: Final = re.compile(r"name\s+state\s|data in |next: |$")
_NODE: Final = re.compile(r"node\d")


class Verdict(StrEnum):
    """What became of a case, from good to bad. Those in capitals are failures."""

    KEPT = "kept"
    KEPT_AND_SAID = "kept and said"
    FALSE_ALARM = "false alarm"
    REFUSED = "refused aloud"
    LOST_ALOUD = "lost aloud"
    UNAVAILABLE = "UNAVAILABLE"
    HUNG = "HUNG"
    WRONG = "WRONG"
    SPOILED = "SPOILED BY A REFUSAL"
    LOST_WITH_MAJORITY = "LOST, COPIES WERE LEFT"
    LOST_SILENTLY = "LOST SILENTLY"

    @property
    def is_failure(self) -> bool:
        """Whether the verdict fails a campaign."""
        return self.isupper()

    @classmethod
    def worst(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """The worst of them: the last in the order of this class."""
        return max(verdicts, key=list(cls).index, default=cls.KEPT)


@dataclass(slots=True)
class Result:
    """A judged case: everything that a person needs to understand it."""

    case: Case
    damage: Damage
    verdict: Verdict
    seconds: float
    said: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """The case in words."""
        yield f"case {self.case.number}: {self.verdict} ({self.seconds:.1f} s)"
        for title, lines in (("done", described(self.case, self.damage)), ("found", self.told), ("said", self.said)):
            yield from (f"  {title}: {line}" for line in lines)


@dataclass(slots=True)
class Start:
    """What the commands of a start came to. ``is_hung``: one did not end in time."""

    said: list[str]
    failed: bool
    is_hung: bool
    running: list[str]


def play(case: Case, template: Template, scratch: Path, kept: Path | None = None) -> Result:
    """Play a case; ``scratch`` is an empty directory for what commands say. No process is left.

    ``kept``: where the directory of the cluster is left as it was before the starts, and as it is after them.
    """
    began = time.monotonic()
    template.lay_out()
    damage = inflict(case, template)
    if kept is not None:
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(template.directory, kept / "before")
    try:
        start = _start(case, template, scratch)
        found = _read(case, template, start, scratch / "read.jsonl")
        _ask_again(start, template, scratch)
        result = Result(case, damage, Verdict.KEPT, 0.0, start.said)
        verdicts = set(judged(result, template.books, start, found))
        if not start.running and len(case.nodes) <= 1:
            template.end()
            verdicts |= set(_refused_for_nothing(result, template, scratch))
        result.verdict = Verdict.worst(verdicts)
    finally:
        template.end()
    result.seconds = time.monotonic() - began
    if kept is not None:
        shutil.copytree(template.directory, kept / "after")
    return result


def _start(case: Case, template: Template, scratch: Path) -> Start:
    """Start all at once, or one node after the other, and ask for the status."""
    directory = ("--dir", str(template.directory))
    commands: list[Running] = []
    until = time.monotonic() + _START_S
    for number, node in enumerate(case.order or ("",)):
        which = ("--node", node) if node else ("--port", str(template.port))
        commands.append(perftest(scratch / f"start{number}", "broker", "start", *which, *directory))
        commands[-1].wait(min(until, time.monotonic() + (_NEXT_START_S if node else _START_S)))
    ended = [command.wait(until) for command in commands]
    for command in commands:
        command.kill()
    status = perftest(scratch / "status", "broker", "status", *directory)
    status.wait(time.monotonic() + _STATUS_S)
    status.kill()
    running = _serving(template, status.text)
    said = [line.strip() for command in commands for line in command.text.splitlines() if not _is_usual(line)]
    said += [line.strip() for line in status.text.splitlines() if not _is_usual(line, running)]
    failed = any(command.code != 0 for command in commands) or len(running) < len(NODES)
    return Start(list(dict.fromkeys(said)), failed, not all(ended) or not status.has_ended, running)


def _ask_again(start: Start, template: Template, scratch: Path) -> None:
    """Ask for the status behind the reads: a node may have found the damage only then, and says so."""
    status = perftest(scratch / "later", "broker", "status", "--dir", str(template.directory))
    status.wait(time.monotonic() + _STATUS_S)
    status.kill()
    running = [node for node, uri in zip(NODES, template.uris, strict=True) if _listens(uri)]
    start.failed = start.failed or len(running) < len(NODES)
    start.is_hung = start.is_hung or not status.has_ended
    start.said += [line.strip() for line in status.text.splitlines() if not _is_usual(line, running)]
    start.said[:] = dict.fromkeys(start.said)


def _serving(template: Template, status: str) -> list[str]:
    """The nodes that take AMQP connections. Those that run by the status may need a moment: until there is a leader."""
    rows = {row.group(1): row.group(2) for line in status.splitlines() if (row := _ROW.match(line))}
    uris = dict(zip(NODES, template.uris, strict=True))
    awaited = [uri for node, uri in uris.items() if rows.get(node) == "running"]
    wait(lambda: all(_listens(uri) for uri in awaited), _SERVE_S)
    return [node for node, uri in uris.items() if _listens(uri)]


def _listens(uri: str) -> bool:
    """Whether a node takes AMQP connections, whatever ``status`` thinks of its process."""
    at = urlsplit(uri)
    with contextlib.suppress(OSError), socket.create_connection((at.hostname, at.port), timeout=_STATUS_S):
        return True
    return False


def _is_usual(line: str, running: Sequence[str] = NODES) -> bool:
    """Whether a command prints such a line when these nodes run and all is well. Until the last start, nodes may be
    down."""
    row = _ROW.match(line)
    return bool(_ORDINARY.match(line)) or bool(row and row.group(1) in running)


def _read(case: Case, template: Template, start: Start, into: Path) -> dict[str, Found]:
    uris = [uri for node, uri in zip(NODES, template.uris, strict=True) if node in start.running]
    if not uris:
        return {}
    limit_s = _READ_S if len(case.nodes) < 2 else _READ_WITHOUT_MAJORITY_S

    def task() -> int:
        read_all(uris, into, limit_s)
        return 0

    reader = begin(into.with_suffix(".log"), task)
    reader.wait(time.monotonic() + limit_s + _STATUS_S)
    reader.kill()
    return found_in(into)


def judged(result: Result, books: dict[str, Book], start: Start, found: dict[str, Found]) -> Iterator[Verdict]:
    """The verdicts on the queues and on the commands; the worst of them counts."""
    case = result.case
    is_aloud = _names(start, case, result.damage)
    if start.is_hung:
        yield Verdict.HUNG
    if start.failed:
        yield Verdict.UNAVAILABLE if case.does_nothing else Verdict.REFUSED
    elif start.said:
        yield Verdict.FALSE_ALARM if case.does_nothing else Verdict.KEPT_AND_SAID
    if not start.running:
        has_majority = len(case.nodes) == 1 or case.does_nothing
        yield Verdict.UNAVAILABLE if has_majority else Verdict.REFUSED if is_aloud else Verdict.HUNG
        return
    for queue in QUEUES:
        yield _of_queue(result, books[queue.name], found.get(queue.name) or Found(queue.name), is_aloud)


def _of_queue(result: Result, book: Book, found: Found, is_aloud: bool) -> Verdict:
    case, queue = result.case, book.queue
    missing = sorted(book.due - set(found.numbers))
    wrong = problems(book, found)
    words = f", {found.words}" if found.words else ""
    if missing or wrong or not found.is_served:
        served = "" if found.is_served else ", not served"
        result.told += [
            f"{queue.name} ({queue.kind}): {len(missing)} of {len(book.due)} missing{served}{words}",
            *wrong[:3],
        ]
    has_majority = len(case.nodes) <= 1
    if missing and not found.is_served:
        if queue.kind == "quorum" and has_majority:
            return Verdict.UNAVAILABLE
        return Verdict.REFUSED if is_aloud or _NODE.search(found.words) else Verdict.HUNG
    if missing:
        is_named = any(queue.name in line for line in result.said)
        if not (is_aloud or is_named):
            return Verdict.LOST_SILENTLY
        may_lose = not has_majority if queue.kind == "quorum" else _has_copy_on(case, book)
        return Verdict.LOST_ALOUD if may_lose else Verdict.LOST_WITH_MAJORITY
    return Verdict.WRONG if wrong else Verdict.KEPT


def _has_copy_on(case: Case, book: Book) -> bool:
    """Whether a damaged node held the queue. Every node holds a part of a mirrored queue."""
    return not case.nodes or book.queue.kind == "mirrored" or f"node{book.queue.node}" in case.nodes


def _names(start: Start, case: Case, damage: Damage) -> bool:
    """Whether the words of the commands name a damaged node, or a damaged file."""
    names = [*case.nodes, *(Path(name).name for name in damage.changed)]
    return any(name in line for name in names for line in start.said)


def _refused_for_nothing(result: Result, template: Template, scratch: Path) -> Iterator[Verdict]:
    """A refusal changes nothing: with the damaged files whole again, the cluster starts and has everything. Of two
    damaged nodes one may have run without its files, or noted that the other one is an older copy."""
    again = scratch / "again"
    again.mkdir()
    undo(result.damage, template)
    start = _start(Case(0, 0, result.case.kind, (), (), does_nothing=True), template, again)
    found = _read(result.case, template, start, again / "read.jsonl")
    for queue in QUEUES:
        book, has = template.books[queue.name], found.get(queue.name) or Found(queue.name)
        if missing := book.due - set(has.numbers):
            result.told.append(f"with whole files again: {queue.name}: {len(missing)} missing, {has.words}")
            result.said += [f"with whole files again: {line}" for line in start.said]
            yield Verdict.SPOILED
