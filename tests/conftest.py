"""Fixtures for the tests of every part."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

if TYPE_CHECKING:
    from tests.reports.browser.browsing import Browser

# Of a machine that is busy nothing may be concluded: the same examples each time, however long they take.
_EVERY = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("few", _EVERY, max_examples=30)  # make test
settings.register_profile("many", _EVERY, max_examples=100)  # make test-rest
settings.register_profile("hunt", _EVERY, max_examples=3000, derandomize=False, print_blob=True)  # make hunt
settings.load_profile("few")
_SEEDS_SHARE = {"few": 0.1, "many": 1, "hunt": 10}
_STRIDES = {"few": 7, "many": 2, "hunt": 1}


def _profile(config: pytest.Config) -> str:
    return config.getoption("--hypothesis-profile") or "few"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test with the mark ``seeds`` its seeds: how many depends on the profile of Hypothesis."""
    if mark := metafunc.definition.get_closest_marker("seeds"):
        share = _SEEDS_SHARE[_profile(metafunc.config)]
        metafunc.parametrize("seed", range(max(1, round(mark.args[0] * share))))


@pytest.fixture
def stride(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> int:
    """How far apart the cases lie that a test with the mark ``sampled`` looks at: 1 is all of them."""
    assert request.node.get_closest_marker("sampled"), "make hunt would not run all cases"
    return _STRIDES[_profile(pytestconfig)]


_MOUNTING = ("drives", "lab")
"""Marks of tests that mount drives, or start processes with a mount namespace of their own."""

_SHARED = {"rabbitmq": "rabbitmq", "spark": "spark"} | dict.fromkeys(_MOUNTING, "mounts")
"""The group of all tests with a mark: those that use a RabbitMQ, or a JVM, which is started once, and those that mount,
which have to wait for each other. Other groups are files, as their fixtures are made once."""

_SECONDS = {
    "mounts": 500,
    "rabbitmq": 300,
    "tests/integration/test_remote_run.py": 180,
    "spark": 120,
    "tests/integration/test_bad_directories.py": 75,
    "tests/integration/test_actions_on_cluster.py": 70,
    "tests/reference_broker/log/test_log_crashes.py": 65,
    "tests/mutants/test_planted_bugs.py": 60,
    "tests/reports/browser/test_page_kinds_in_browser.py": 60,
    "tests/reports/browser/test_served_runs_in_browser.py": 45,
    "tests/perftest/cli/test_cli_simulate.py": 50,
    "tests/perftest/engine/coordination/test_engine_execute.py": 45,
    "tests/perftest/cli/test_cli_with_real_nodes.py": 45,
    "tests/reports/browser/test_report_in_browser.py": 45,
    "tests/integration/test_damage_briefly.py": 45,
    "tests/infra/remote/test_shipping.py": 40,
    "tests/integration/test_kill_storm.py": 35,
    "tests/reference_broker/machines/test_fifo_against_oracle.py": 35,
    "tests/integration/test_mirrored_queues_on_cluster.py": 30,
    "tests/integration/test_run_survives_leader.py": 30,
    "tests/reference_broker/sim/test_sim_worlds.py": 25,
    "tests/integration/test_classic_queues_on_cluster.py": 20,
    "tests/reference_broker/classic/test_store_crashes.py": 20,
    "tests/reference_broker/node/test_peer_noise.py": 20,
    "tests/perftest/cli/test_cli_search.py": 15,
    "tests/integration/test_tls_between_nodes.py": 15,
    "tests/integration/test_keyed_queues_on_cluster.py": 15,
    "tests/integration/test_access_on_cluster.py": 15,
    "tests/infra/test_local_cluster.py": 15,
    "tests/reference_broker/node/test_restarts.py": 15,
    "tests/integration/test_memory_of_a_node.py": 15,
    "tests/integration/test_virtual_hosts_on_cluster.py": 12,
    "tests/integration/test_run_by_uri.py": 12,
    "tests/integration/test_pika_on_cluster.py": 12,
    "tests/reference_broker/node/test_mirrors_in_partitions.py": 12,
}
"""About how long a group takes in ``make test`` or in ``make test-rest``, whichever is longer, if that is 12 s or more:
two workers on two cores, 2026-11-29. ``pytest --durations 100`` gives the tests to add up."""


class _Groups(LoadScopeScheduling):
    """Gives the workers whole groups, in the order of the collection.

    The scheduler that pytest-xdist has for groups finds none with pytest 9.2: it gets them in the names of the tests,
    which plugins can no longer change (https://github.com/pytest-dev/pytest-xdist/issues/1386). A scheduler knows the
    names alone, so a worker writes the marks of the tests down before it tells their names.
    """

    def _split_scope(self, nodeid: str) -> str:
        return self._marks.get(nodeid) or nodeid.partition("::")[0]

    @cached_property
    def _marks(self) -> dict[str, str]:
        marks: dict[str, str] = json.loads(self.config.stash[_MARKS].read_text(encoding="utf-8"))
        return marks


_MARKS = pytest.StashKey[Path]()
"""The file with the mark of each test that shares what is started once."""
_MOUNTING_FILES = pytest.StashKey[set[Path]]()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Groups | None:
    return _Groups(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell a worker where the marks are to be written."""
    if _MARKS not in node.config.stash:
        folder = tempfile.mkdtemp(prefix="perftest-tests-")
        node.config.add_cleanup(partial(shutil.rmtree, folder, ignore_errors=True))
        node.config.stash[_MARKS] = Path(folder, "marks.json")
    node.workerinput["marks"] = str(node.config.stash[_MARKS])


def _shared_mark(item: pytest.Item) -> str | None:
    return next((group for mark, group in _SHARED.items() if item.get_closest_marker(mark)), None)


@pytest.hookimpl(trylast=True)  # after the modules were shuffled
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the groups that take longest first, as workers take groups in this order: the small ones fill the end."""
    config.stash[_MOUNTING_FILES] = {item.path for item in items if any(map(item.get_closest_marker, _MOUNTING))}
    if not hasattr(config, "workerinput"):
        return
    marks = {item.nodeid: mark for item in items if (mark := _shared_mark(item))}
    items.sort(key=lambda item: -_SECONDS.get(marks.get(item.nodeid) or item.nodeid.partition("::")[0], 0))
    path = Path(config.workerinput["marks"])
    own = path.with_suffix(f".{os.getpid()}")  # all workers write the same, and none reads half a file
    own.write_text(json.dumps(marks), encoding="utf-8")
    own.replace(path)


@pytest.fixture(scope="module", autouse=True)
def _mounts_in_turn(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of all workers, one at a time mounts drives or makes namespaces.

    A new mount namespace holds a copy of every mount of the moment. A drive that was mounted then stays in use until
    the last process of that namespace has ended, and cannot be taken apart meanwhile.
    """
    if request.path not in request.config.stash[_MOUNTING_FILES]:
        yield
        return
    path = Path(tempfile.gettempdir(), f"perftest-tests-{os.getuid()}.mounts")
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser with one tab, for all tests of this process."""
    from tests.reports.browser.browsing import Browser

    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


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
    """:func:`free_base_port`"""
    return free_base_port()


def free_base_port() -> int:
    """The first of five ports in a row that are free, with those 100, 200 and 300 above."""
    span = _LAST - _FIRST
    for number in range(span):
        base = _FIRST + (os.getpid() * 131 + number * 7) % span
        if _all_free(base):
            return base
    pytest.fail("no free ports")
