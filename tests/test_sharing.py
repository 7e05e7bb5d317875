"""How the tests are shared out to the workers of pytest-xdist."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[1]
CONFTEST = ROOT / "tests" / "conftest.py"
SETTINGS = """
[pytest]
markers =
    rabbitmq: waits for a RabbitMQ
    spark: waits for a JVM
"""
ONE_FILE = """
import os, pathlib, pytest

@pytest.mark.parametrize("number", range(6))
{mark}
def test_something(number):
    with open("done.txt", "a") as done:
        done.write(f"{{os.environ['PYTEST_XDIST_WORKER']}} {{pathlib.Path(__file__).name}}\\n")
"""
FILES = {
    **{f"test_rabbit_{number}.py": "rabbitmq" for number in range(3)},
    **{f"test_java_{number}.py": "spark" for number in range(3)},
    **{f"test_plain_{number}.py": "" for number in range(6)},
}


def test_what_shares_a_process_or_a_file_is_done_by_one_worker(pytester: pytest.Pytester) -> None:
    """Two workers; each file has more tests than a worker is given at once."""
    pytester.makeini(SETTINGS)
    pytester.makeconftest(CONFTEST.read_text())
    for name, mark in FILES.items():
        (pytester.path / name).write_text(ONE_FILE.format(mark=f"@pytest.mark.{mark}" if mark else ""))
    options = ("-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder", "-p", "no:cacheprovider")
    result = pytester.runpytest_subprocess(*options)
    result.assert_outcomes(passed=6 * len(FILES))
    workers: dict[str, set[str]] = defaultdict(set)
    for line in (pytester.path / "done.txt").read_text().splitlines():
        worker, file = line.split()
        workers[next((kind for kind in ("rabbit", "java") if kind in file), file)].add(worker)
    assert len(workers) == 2 + 6
    assert all(len(found) == 1 for found in workers.values()), dict(workers)
    assert set.union(*workers.values()) == {"gw0", "gw1"}, "one worker did everything"


def test_the_groups_that_are_said_to_take_long_exist(pytestconfig: pytest.Config) -> None:
    (plugin,) = (each for name, each in pytestconfig.pluginmanager.list_name_plugin() if name == str(CONFTEST))
    missing = {name for name in plugin._SECONDS if name not in plugin._SHARED.values() and not (ROOT / name).is_file()}
    assert not missing
