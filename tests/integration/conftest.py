"""Fixtures for the tests with real processes."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from infra import local_cluster, rabbitmq_cluster
from infra.local_cluster import Cluster
from infra.rabbitmq_cluster import RabbitMQ
from tests.integration.testing.pika_clients import let_go


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


@pytest.fixture(autouse=True)
def let_go_of_ended_connections() -> Iterator[None]:
    yield
    let_go()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes for all tests that leave them as they were, with names of queues that no other test has."""
    with local_cluster.temporary(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def bundled(cluster: Cluster) -> str:
    return cluster.nodes[0].uri


@pytest.fixture(scope="session")
def rabbitmq_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """One node of RabbitMQ for all tests that leave it as it was."""
    with rabbitmq_cluster.running(tmp_path_factory.mktemp("rabbitmq"), nodes=1) as broker:
        yield broker


@pytest.fixture(scope="session")
def rabbitmq(rabbitmq_node: RabbitMQ) -> str:
    return rabbitmq_node.uris[0]


@pytest.fixture
def uri(request: pytest.FixtureRequest, broker: str) -> str:
    """Starts the broker that the test is about, once for all tests."""
    value: str = request.getfixturevalue(broker)
    return value
