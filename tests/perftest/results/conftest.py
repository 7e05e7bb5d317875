"""Fixtures around synthetic runs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load(name: str) -> ModuleType:
    """The helper module beside this file: test files are no packages, so it is loaded by its path."""
    spec = importlib.util.spec_from_file_location(f"results_{name}", Path(__file__).parent / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_RECORDS = _load("records")


@pytest.fixture
def records() -> ModuleType:
    """Makes synthetic intervals and run directories."""
    return _RECORDS
