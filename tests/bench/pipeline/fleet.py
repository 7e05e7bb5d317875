"""Run directories by the thousand: real files, small, made in seconds.

A few runs are made in full; the others are those runs under other ids. Their measurements are links to the same files
on the drive, but every directory has a manifest of its own and is read like any other.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from perftest.results.schema import INTERVALS_CSV, LATENCY_HLOG, MANIFEST

SHAPES: Final = 20
"""Different runs in a fleet."""
_SYNTHETIC: Final = Path(__file__).parents[2] / "reports" / "testing" / "synthetic_runs.py"


def make_fleet(folder: Path, count: int, **shape: Any) -> list[Path]:
    """``count`` run directories below ``folder``. ``shape``: fields of a synthetic run, the same for all runs."""
    make_run = _make_run()
    folder.mkdir(parents=True, exist_ok=True)
    originals = []
    for number in range(min(count, SHAPES)):
        name = f"run-{number:06}"
        originals.append(make_run(folder / name, run_id=name, seed=number + 1, **shape))
    copies = [_copy(originals[number % SHAPES], folder / f"run-{number:06}") for number in range(SHAPES, count)]
    return originals + copies


def damage(runs: Sequence[Path]) -> None:
    """Damage three runs, each in another way: no manifest that can be read, no interval, only damaged intervals."""
    unreadable, empty, torn = runs
    _replace(unreadable / MANIFEST, b'{"id": "')
    _replace(empty / INTERVALS_CSV, (empty / INTERVALS_CSV).read_bytes().split(b"\n")[0] + b"\n")
    header, *lines = (torn / INTERVALS_CSV).read_bytes().split(b"\n")
    _replace(torn / INTERVALS_CSV, b"\n".join([header, *(line[: len(line) // 2] for line in lines)]))
    _replace(torn / LATENCY_HLOG, (torn / LATENCY_HLOG).read_bytes()[:-50])


def _copy(original: Path, target: Path) -> Path:
    target.mkdir()
    for file in original.iterdir():
        if file.name == MANIFEST:
            manifest = json.loads(file.read_bytes()) | {"id": target.name}
            (target / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
        else:
            os.link(file, target / file.name)
    return target


def _replace(file: Path, content: bytes) -> None:
    # The file may be a link that other runs share.
    file.unlink()
    file.write_bytes(content)


def _make_run() -> Callable[..., Path]:
    """The maker of synthetic runs; test folders are not packages."""
    name = "reports_testing_synthetic_runs"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, _SYNTHETIC)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    made: Callable[..., Path] = sys.modules[name].make_run
    return made
