"""The hand-made tables, for the tests in a browser."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def sample_tables() -> ModuleType:
    """The module with ``Sample``, ``tables`` and the ready samples; test folders are not on the path."""
    name = "reports_testing_sample_tables"
    if name not in sys.modules:
        file = Path(__file__).parents[1] / "testing" / "sample_tables.py"
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]
