"""Fixtures for the tests with real processes."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from infra import local_cluster, rabbitmq_cluster


@pytest.fixture(scope="session")
def storm() -> ModuleType:
    """``storm_clients``; test directories are no packages, so it is loaded by its path, once."""
    name = "storm_clients"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with local_cluster.temporary(tmp_path_factory.mktemp("bundled")) as cluster:
        yield cluster.nodes[0].uri


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with rabbitmq_cluster.running(tmp_path_factory.mktemp("rabbitmq"), nodes=1) as cluster:
        yield cluster.uris[0]


@pytest.fixture
def uri(request: pytest.FixtureRequest, broker: str) -> str:
    """Starts the broker that the test is about, once for all tests."""
    value: str = request.getfixturevalue(broker)
    return value
