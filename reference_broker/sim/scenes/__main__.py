"""``python -m reference_broker.sim.scenes FOLDER``: the scenes of the documentation, each as a page."""

from __future__ import annotations

import sys
from pathlib import Path

from reference_broker.sim.scenes.catalogue import SCENES, events_of
from reference_broker.worldpage.page import page


def main(arguments: list[str] | None = None) -> int:
    """Write a page for each scene into a folder. Returns the exit status: 2 if there is not one folder."""
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) != 1 or given[0].startswith("-"):
        sys.stderr.write("usage: python -m reference_broker.sim.scenes FOLDER\n")
        return 2
    folder = Path(given[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name in SCENES:
        folder.joinpath(f"{name}.html").write_text(page(events_of(name)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
