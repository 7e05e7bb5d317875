"""Shared by the tests of the reports: synthetic run directories and hand-made tables."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


def _load(name: str) -> ModuleType:
    """Import a module of tests/reports/testing: test folders are not packages and not on the path."""
    full = f"reports_testing_{name}"
    if full in sys.modules:
        return sys.modules[full]
    spec = importlib.util.spec_from_file_location(full, Path(__file__).parent / "testing" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def synthetic_runs() -> ModuleType:
    """The module with ``make_run``, ``Shape`` and the histogram helpers."""
    return _load("synthetic_runs")


@pytest.fixture(scope="session")
def make_run(synthetic_runs: ModuleType) -> Callable[..., Path]:
    """``make_run(path, **fields of Shape)`` writes a run directory and returns its path."""
    result: Callable[..., Path] = synthetic_runs.make_run
    return result


@pytest.fixture(scope="session")
def sample_tables() -> ModuleType:
    """The module with ``Sample``, ``tables`` and the ready samples."""
    return _load("sample_tables")
