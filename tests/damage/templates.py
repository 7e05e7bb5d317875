"""Clusters after traffic, as their directories lie there after the end: made once, copied for each case.

A template has what a cluster has after weeks, in little: several WAL files, segments, snapshots, a second life of each
node, classic queues with small and large messages on every node. The files keep the paths and ports that they were
made for, so each case lies in the place of the template.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pika.exceptions
import psutil

from infra import local_cluster
from infra.local_cluster import Cluster
from infra.node_process import MARK, start_time, wait
from perftest.cli.main import call
from tests.damage.books import QUEUES, Book

NODES: Final = ("node1", "node2", "node3")
LAGGING: Final = "node3"
"""The node that is down for the last part of the messages, where one lags."""
_LIMITS: Final = {"wal_file_bytes": 128 * 1024, "memtable_bytes": 256 * 1024, "wal_files_waiting": 3}
_BEFORE, _BETWEEN, _LAST = 90, 90, 180
"""Messages of each queue: before the stale copy, after it, and while a node lags."""
_TAKEN: Final = 60
_UNDER_LOAD: Final = 20
_WAIT_S: Final = 30.0


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """How the cluster ended, and whether one node was down during the last part of the messages."""

    killed: bool
    lags: bool

    def __str__(self) -> str:
        return ("kill -9" if self.killed else "clean stop") + (", a third lags" if self.lags else "")


KINDS: Final = tuple(Kind(killed, lags) for killed in (False, True) for lags in (False, True))


@dataclass(frozen=True, slots=True)
class Template:
    """A cluster's directory, the copy that cases begin with, an older copy, and the books."""

    kind: Kind
    directory: Path
    saved: Path
    stale: Path
    books: dict[str, Book]
    uris: tuple[str, ...]
    port: int

    def lay_out(self) -> None:
        """Make the directory what it was at the end of the traffic."""
        shutil.rmtree(self.directory, ignore_errors=True)
        shutil.copytree(self.saved, self.directory)

    def end(self) -> None:
        """Kill every node of the directory, also one that ``cluster.json`` does not know."""
        _kill_all(self.directory)


def make(kind: Kind, place: Path, port: int) -> Template:
    """A template in a new directory below ``place``, which nothing else uses; ``port`` is that of its first node."""
    directory = place / "cluster"
    try:
        return _made(kind, place, directory, port)
    finally:
        _kill_all(directory)


def _made(kind: Kind, place: Path, directory: Path, port: int) -> Template:
    books = {queue.name: Book(queue) for queue in QUEUES}
    cluster = _with_small_limits(directory, port)
    with contextlib.redirect_stdout(io.StringIO()):
        code = call(["broker", "set-policy", "mirrors", "^mirrored$",
                     json.dumps({"ha-mode": "all", "ha-sync-mode": "automatic"}), "--dir", str(directory)])  # fmt: skip
    assert code == 0, "the policy of the mirrored queue was refused"
    _publish(cluster, books.values(), _BEFORE)
    for name in ("quorum1", "classic1"):
        books[name].take(cluster.nodes[0].uri, _TAKEN)
    local_cluster.stop(cluster)
    shutil.copytree(directory, place / "stale")
    cluster = local_cluster.start(directory)
    _publish(cluster, books.values(), _BETWEEN)
    if kind.lags:
        local_cluster.kill(cluster, LAGGING)
    present = [book for book in books.values() if not kind.lags or not _only_on_lagging(book)]
    _publish(cluster, present, _LAST)
    if kind.killed:
        _kill_under_load(cluster, present)
    else:
        local_cluster.stop(cluster)
    shutil.copytree(directory, place / "saved")
    return Template(kind, directory, place / "saved", place / "stale", books, cluster.uris, port)


def _kill_all(directory: Path) -> None:
    """Kill all nodes of a directory. A killed process that nobody has waited for yet counts as ended."""
    marked = [process for process in psutil.process_iter() if _mark(process).startswith(f"{directory}:")]
    pids = [process.pid for process in marked]
    for process in marked:
        with contextlib.suppress(psutil.Error):
            process.kill()
    assert wait(lambda: not any(start_time(pid) for pid in pids), _WAIT_S), f"processes {pids} do not end"


def _mark(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return str(process.environ().get(MARK, ""))
    return ""


def _with_small_limits(directory: Path, port: int) -> Cluster:
    """A cluster whose files are full after some hundred messages."""
    for node in NODES:
        (directory / node).mkdir(parents=True)
        (directory / node / "node.json").write_text(json.dumps({"limits": _LIMITS}))
    return local_cluster.start(directory, base_port=port)


def _only_on_lagging(book: Book) -> bool:
    return book.queue.kind == "classic" and f"node{book.queue.node}" == LAGGING


def _publish(cluster: Cluster, books: Iterable[Book], count: int) -> None:
    """To all queues at once, each through the node where it was declared."""
    failures: list[BaseException] = []
    _all_at_once([partial(_publishing, book, _uri(cluster, book), count, failures) for book in books])
    if failures:
        raise failures[0]


def _publishing(book: Book, uri: str, count: int, failures: list[BaseException]) -> None:
    try:
        book.publish(uri, count)
    except (pika.exceptions.AMQPError, OSError) as error:
        failures.append(error)


def _kill_under_load(cluster: Cluster, books: Sequence[Book]) -> None:
    """All nodes, while each queue is published to."""
    before = sum(len(book.confirmed) for book in books)
    ended: list[BaseException] = []

    def kill() -> None:
        wait(lambda: sum(len(book.confirmed) for book in books) >= before + _UNDER_LOAD * len(books), _WAIT_S)
        for node in cluster.nodes:
            if local_cluster.is_alive(node):
                local_cluster.kill(cluster, node.name)

    _all_at_once([*(partial(_publishing, book, _uri(cluster, book), 1 << 20, ended) for book in books), kill])


def _uri(cluster: Cluster, book: Book) -> str:
    return cluster.nodes[book.queue.node - 1].uri


def _all_at_once(tasks: Sequence[Callable[[], Any]]) -> None:
    threads = [threading.Thread(target=task) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
