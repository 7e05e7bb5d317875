"""Fixtures for the tests of every part."""

from __future__ import annotations

import gc
import os
import socket
from contextlib import ExitStack

import psutil
import pytest
from hypothesis import HealthCheck, settings

# Of a machine that is busy nothing may be concluded: the same examples each time, however long they take.
settings.register_profile("tests", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

_SLOWEST_FIRST = ("rabbitmq", "spark", "browser", "processes")
"""Marks of tests that take long, whoever waits for them."""


@pytest.hookimpl(trylast=True)  # after the modules were shuffled
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Say to pytest-xdist what one worker does: a file, as fixtures are made once; all that shares a RabbitMQ or a JVM.

    The slow ones come first, so that no worker is left alone with them at the end.
    """
    if not hasattr(config, "workerinput"):
        return
    rank = {mark: at for at, mark in enumerate(_SLOWEST_FIRST)}
    marks = {item: [mark for mark in item.iter_markers() if mark.name in rank] for item in items}
    files: dict[str, int] = {}
    for item, found in marks.items():
        group = next((mark.name for mark in found if mark.name in ("rabbitmq", "spark")), str(item.path))
        item.add_marker(pytest.mark.xdist_group(group))
        place = min((rank[mark.name] for mark in found), default=len(rank))
        files[str(item.path)] = min(place, files.get(str(item.path), place))
    items.sort(key=lambda item: files[str(item.path)])


_GROWTH_OCTETS = 256 << 20
_collected_at = 0
_this_process = psutil.Process()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Collect garbage once the process has grown. A world of nodes with files in memory is few objects and many octets,
    in cycles: the collector counts objects, and a worker grew to 4 GB."""
    global _collected_at
    if _this_process.memory_info().rss > _collected_at + _GROWTH_OCTETS:
        gc.collect()
        _collected_at = _this_process.memory_info().rss


_FIRST, _LAST = 10_000, 32_000  # below the ports that the system gives to clients, which come and go by themselves
_NODES = 5
_OFFSETS = (0, 100, 200, 300)


def _all_free(base: int) -> bool:
    with ExitStack() as held:
        try:
            for port in (base + offset + node for offset in _OFFSETS for node in range(_NODES)):
                probe = held.enter_context(socket.socket())
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@pytest.fixture
def base_port() -> int:
    """The first of five ports in a row that are free, with those 100, 200 and 300 above."""
    span = _LAST - _FIRST
    for number in range(span):
        base = _FIRST + (os.getpid() * 131 + number * 7) % span
        if _all_free(base):
            return base
    pytest.fail("no free ports")
