"""The reference broker reached by a URI is a broker like any other: PerfTest's defaults work, named exchanges too."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra import local_cluster
from infra.local_cluster import Cluster

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with local_cluster.temporary(tmp_path_factory.mktemp("uri"), nodes=1) as running:
        yield running


@pytest.mark.parametrize("flags", ["", "-t topic -e orders -u q -qq", "-u q -e amq.default"])
def test_a_run_against_the_reference_broker(cluster: Cluster, flags: str, tmp_path: Path) -> None:
    uri = f"amqp://guest:guest@127.0.0.1:{cluster.nodes[0].amqp_port}/%2f"
    words = ["run", "-h", uri, "-r", "200", "-z", "2", "--out", str(tmp_path), "--no-report", *flags.split()]
    command = [sys.executable, "-m", "perftest.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    (path,) = tmp_path.glob("*/ledger.json")
    assert json.loads(path.read_text())["delivered"] > 0
