"""``python -m reference_broker.worldpage FILE FOLDER``: draw recorded events (JSON lines), or the walks of
docs/local-delivery.md, as pages."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from reference_broker.worldpage.events import EventFormatError, WorldEvent, read
from reference_broker.worldpage.page import head_of, page
from reference_broker.worldpage.walk import walks_of
from reference_broker.worldpage.window import WindowError, window


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 2 if a file cannot be drawn."""
    parser = argparse.ArgumentParser(prog="python -m reference_broker.worldpage", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="recorded events (.jsonl), or a page with walks (.md)")
    parser.add_argument("folder", type=Path, help="where the pages go; it is made if it is not there")
    parser.add_argument("--from", dest="begin", default="", help="where a page begins: seconds, or 5000ev")
    parser.add_argument("--to", dest="end", default="", help="where a page ends: seconds, or 5000ev")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    for file in options.files:
        try:
            for name, events in _worlds(file):
                text = page(window(events, options.begin, options.end))
                options.folder.joinpath(f"{name}.html").write_text(text, encoding="utf-8")
        except (OSError, EventFormatError, WindowError) as error:
            sys.stderr.write(f"error: {file}: {error}\n")
            return 2
    return 0


def _worlds(file: Path) -> Iterator[tuple[str, list[WorldEvent]]]:
    """The name and the events of each page that a file makes."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".md":
        yield file.stem, [*read(text)]
        return
    for name, walk in walks_of(text).items():
        command = f"python -m reference_broker.worldpage {file} worlds"
        yield name, [head_of(walk.events, title=walk.title, text=_ABOUT_WALKS, command=command), *walk.events]


_ABOUT_WALKS = (
    "The members A, B and C of a quorum queue deliver its messages without asking each other. The page is drawn from"
    " the transcript that the tests run on the production machine. Go through it with Next, or with the keys ← and →;"
    " the arrow keys ↑ and ↓ go step by step."
)

if __name__ == "__main__":
    sys.exit(main())
