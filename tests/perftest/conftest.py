"""Fixtures for the tests of the generator: the scripted broker."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load_stub() -> ModuleType:
    """Test directories are no packages, so the module is loaded by its path, once."""
    name = "perftest_stub_broker"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "testing" / "stub_broker.py")
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def stub() -> ModuleType:
    """``stub.StubBroker``, ``stub.Script`` and ``stub.Fate``."""
    return _load_stub()
