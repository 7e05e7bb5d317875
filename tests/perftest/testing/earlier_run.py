"""Run directories as earlier versions left them."""

from __future__ import annotations

import json
from pathlib import Path

from perftest.results import schema
from perftest.results.integrity import CHECKSUM, FILES


def forget_checksums(run: Path) -> None:
    """Take the checksums out of a run directory, whose files may be changed then."""
    path = run / schema.MANIFEST
    manifest = json.loads(path.read_text(encoding="utf-8"))
    kept = {name: value for name, value in manifest.items() if name not in (FILES, CHECKSUM)}
    path.write_text(json.dumps(kept), encoding="utf-8")
