"""The way of one message, from publish to confirm, through the leader's node: how many files it takes, how many calls,
and whether ARCHITECTURE.md tells of each file.

Calls are counted, not timed, so the figures are the same on a fast machine and on a slow one. The best of a few
messages counts: beside the others a timer was due, or a tick.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from infra import local_cluster, node_process
from infra.local_cluster import Cluster
from tests.integration.testing.pika_clients import connect

pytestmark = pytest.mark.processes

FILES_MAX: Final = 39
CALLS_MAX: Final = 181
_WARM_UP: Final = 200
_MESSAGES: Final = 30
_PATIENCE_S: Final = 30.0
_PAGE: Final = Path(__file__).parent.parent.parent / "ARCHITECTURE.md"


class Way:
    """The calls that one message took on its leader's node, by file and function."""

    def __init__(self, calls: dict[str, int]) -> None:
        self.calls = sum(calls.values())
        self.files: dict[str, Counter[str]] = {}
        for place, count in calls.items():
            file, _, function = place.partition(" ")
            self.files.setdefault(file, Counter())[function] = count

    def __str__(self) -> str:
        lines = [f"{len(self.files)} files, {self.calls} calls"]
        for file, functions in sorted(self.files.items(), key=lambda each: -each[1].total()):
            named = ", ".join(f"{name} x{count}" if count > 1 else name for name, count in functions.most_common())
            lines.append(f"{functions.total():4} {file}: {named}")
        return "\n".join(lines)


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    """The shortest of some messages' ways."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(node_process, "NODE_COMMAND", (sys.executable, "-m", "tests.integration.traced_node"))
        with local_cluster.temporary(tmp_path_factory.mktemp("way")) as cluster:
            connection = connect(cluster.uris[0])
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("way", durable=True, arguments={"x-queue-type": "quorum"})
            for _ in range(_WARM_UP):
                channel.basic_publish("", "way", bytes(1000))
            yield min((_traced(cluster, channel) for _ in range(_MESSAGES)), key=lambda way: way.calls)
            connection.close()


def _traced(cluster: Cluster, channel: BlockingChannel) -> Way:
    """One message, traced on all nodes: its leader's node has by far the most calls."""
    places = [Path(node.data_dir) for node in cluster.nodes]
    for place in places:
        for name in ("tracing", "trace.json"):
            (place / name).unlink(missing_ok=True)
    _signal(cluster, signal.SIGUSR1, [place / "tracing" for place in places])
    channel.basic_publish("", "way", bytes(1000))
    traces = [place / "trace.json" for place in places]
    _signal(cluster, signal.SIGUSR2, traces)
    return max((Way(json.loads(trace.read_text())) for trace in traces), key=lambda way: way.calls)


def _signal(cluster: Cluster, number: signal.Signals, files: list[Path]) -> None:
    """Signal every node, and wait for the files that say that it has been heard."""
    for node in cluster.nodes:
        psutil.Process(node.pid).send_signal(number)
    end = time.monotonic() + _PATIENCE_S
    while not all(file.exists() for file in files):
        assert time.monotonic() < end, f"of {files} some are missing"
        time.sleep(0.005)


def test_a_message_takes_few_files_and_few_calls(way: Way) -> None:
    """What is on this way costs each message of a queue at rest, and a reader follows it from file to file."""
    assert len(way.files) <= FILES_MAX and way.calls <= CALLS_MAX, way


def test_the_page_names_every_file_on_the_way_and_no_other(way: Way) -> None:
    """ARCHITECTURE.md, "From publish to confirm, file by file": a step that is not on the way misleads, and a file that
    is on the way and not on the page is a surprise."""
    section = _PAGE.read_text().partition("\n## From publish to confirm, file by file\n")[2].partition("\n## ")[0]
    steps, _, rest = section.partition("\nBesides,")
    besides = rest.partition("\n\n")[0]
    named = re.findall(r"`([a-z_/]+\.py)`", steps.partition("\n1. ")[2] + besides)
    assert len(named) == len(set(named)), "the page names a file twice"
    assert set(named) == set(way.files), (
        f"named and not on the way: {set(named) - set(way.files)}; on the way and "
        f"not named: {set(way.files) - set(named)}; {way}"
    )
