"""``python -m reference_broker.worldpage FILE... FOLDER``: draw recorded events (``.jsonl``), the logs of a cluster's
nodes (``node1/node.log`` and so on), or the walks of docs/local-delivery.md, as pages."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from reference_broker.worldpage import node_log
from reference_broker.worldpage.events import EventFormatError, WorldEvent, read
from reference_broker.worldpage.page import head_of, page
from reference_broker.worldpage.walk import walks_of
from reference_broker.worldpage.window import WindowError, window


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 2 if a file cannot be drawn."""
    parser = argparse.ArgumentParser(prog="python -m reference_broker.worldpage", description=__doc__)
    parser.add_argument(
        "files", nargs="+", type=Path, help="recorded events (.jsonl), logs of nodes (.log), or a page with walks (.md)"
    )
    parser.add_argument("folder", type=Path, help="where the pages go; it is made if it is not there")
    parser.add_argument("--from", dest="begin", default="", help="where a page begins: seconds, or 5000ev")
    parser.add_argument("--to", dest="end", default="", help="where a page ends: seconds, or 5000ev")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    logs = [file for file in options.files if file.suffix == ".log"]
    others = [file for file in options.files if file not in logs]
    for reads, files in ((_cluster, logs), *((_worlds, [file]) for file in others)):
        try:
            for name, events in reads(files):
                text = page(window(events, options.begin, options.end))
                options.folder.joinpath(f"{name}.html").write_text(text, encoding="utf-8")
        except (OSError, EventFormatError, WindowError) as error:
            sys.stderr.write(f"error: {', '.join(map(str, files))}: {error}\n")
            return 2
    return 0


def _cluster(files: list[Path]) -> Iterator[tuple[str, list[WorldEvent]]]:
    """The name and the events of the page that the logs of a cluster's nodes make together, if there are any."""
    if not files:
        return
    logs = {_host_of(file): file.read_text(encoding="utf-8", errors="replace") for file in files}
    events = node_log.events_of(logs)
    command = f"python -m reference_broker.worldpage {' '.join(map(str, files))} worlds"
    yield "cluster", [head_of(events, title="A running cluster", text=_ABOUT_LOGS, command=command), *events]


def _host_of(file: Path) -> str:
    """The host of the node that wrote a log: ``n1`` for ``node1/node.log``. Raises EventFormatError."""
    found = re.search(r"(\d+)$", file.resolve().parent.name)
    if found is None:
        raise EventFormatError(f"the folder of {file} does not end with the number of a node, as in node1/node.log")
    return f"n{found[1]}"


def _worlds(files: list[Path]) -> Iterator[tuple[str, list[WorldEvent]]]:
    """The name and the events of each page that a file makes."""
    (file,) = files
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".md":
        yield file.stem, [*read(text)]
        return
    for name, walk in walks_of(text).items():
        command = f"python -m reference_broker.worldpage {file} worlds"
        yield name, [head_of(walk.events, title=walk.title, text=_ABOUT_WALKS, command=command), *walk.events]


_ABOUT_LOGS = (
    "The page is drawn from the log files of the nodes. They tell which links stand and who leads in which term. They"
    " do not tell which entries are on which disk."
)
_ABOUT_WALKS = (
    "The members A, B and C of a quorum queue deliver its messages without asking each other. The page is drawn from"
    " the transcript that the tests run on the production machine. Go through it with Next, or with the keys ← and →;"
    " the arrow keys ↑ and ↓ go step by step."
)

if __name__ == "__main__":
    sys.exit(main())
