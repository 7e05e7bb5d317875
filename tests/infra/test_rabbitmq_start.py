"""The start of a RabbitMQ: a person who waits for minutes sees which node is being waited for."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra import rabbitmq_cluster
from infra.register import Register, UndoKind


@pytest.mark.parametrize("folder", ["sbin", "bin", ""])
def test_the_scripts_of_a_home_are_found_where_packages_put_them(tmp_path: Path, folder: str) -> None:
    """RabbitMQ's own package has sbin, Debian's has bin."""
    place = tmp_path / folder
    place.mkdir(exist_ok=True)
    (place / "rabbitmq-server").touch()
    assert rabbitmq_cluster.scripts_in(tmp_path) is None
    (place / "rabbitmqctl").touch()
    assert rabbitmq_cluster.scripts_in(tmp_path) == place


def test_the_roles_of_a_layout_are_told_to_the_rabbitmq_of_a_home(tmp_path: Path) -> None:
    """Each kind of file has its variable or its setting, the log files, too."""
    (tmp_path / "sbin").mkdir()
    for script in ("rabbitmq-server", "rabbitmqctl"):
        (tmp_path / "sbin" / script).touch()
    places = {role: tmp_path / role / "{node}" for role in ("data", "logs", "segment", "wal")}
    cluster = rabbitmq_cluster._Cluster(tmp_path / ".c", 3, "", (), places, 7, tmp_path)
    cluster._directory.mkdir()
    cluster._place(1)
    told = cluster._environment(1)
    assert told["RABBITMQ_MNESIA_BASE"] == f"{tmp_path}/data/node2/c/node1"
    assert told["RABBITMQ_LOG_BASE"] == f"{tmp_path}/logs/node2/c/node1/log"
    assert told["RABBITMQ_QUORUM_DIR"] == f"{tmp_path}/segment/node2/c/node1/quorum"
    assert told["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"].startswith("+SDio 7 ")
    wal = f'{{wal_data_dir, "{tmp_path}/wal/node2/c/node1/wal"}}'
    assert Path(told["RABBITMQ_ADVANCED_CONFIG_FILE"]).read_text() == f"[{{ra, [{wal}]}}]."
    assert cluster._scripts == tmp_path / "sbin"


class Undead:
    """A process that ends at no signal, as if it waited for a drive that hangs."""

    pid = 77

    def terminate(self) -> None:
        pass

    kill = terminate


def test_a_process_that_does_not_end_is_told_and_left_to_the_next_cleaning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was measured: waiting for ever would cost the runs that follow."""
    monkeypatch.setattr(rabbitmq_cluster, "is_installed", lambda: True)
    monkeypatch.setattr(rabbitmq_cluster._Cluster, "start", lambda cluster, _say: cluster)
    monkeypatch.setattr(rabbitmq_cluster._Cluster, "stop", lambda _cluster: [Undead()])
    with (
        pytest.raises(rabbitmq_cluster.RabbitMQError, match=r"does not end \(pid 77\)"),
        rabbitmq_cluster.running(tmp_path, 1),
    ):
        pass
    (entry,) = Register(tmp_path).entries()[0]
    assert entry.kind is UndoKind.PROCESSES and not entry.is_owned and not entry.is_kept


def test_stopping_gives_the_processes_that_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cluster = rabbitmq_cluster._Cluster(tmp_path, 1, "", (), {}, 0)
    asked: list[str] = []
    cluster._children = [SimpleNamespace(pid=pid, poll=lambda: asked.append("poll")) for pid in (1, 2)]  # type: ignore[misc]
    monkeypatch.setattr(rabbitmq_cluster, "_family", lambda _pid: [Undead()])
    monkeypatch.setattr(rabbitmq_cluster.psutil, "wait_procs", lambda processes, timeout: ([], processes))
    assert [process.pid for process in cluster.stop()] == [77, 77] and asked == ["poll", "poll"]


@pytest.mark.parametrize(
    ("nodes", "lines"),
    [
        (1, ["node 1 of 1 was started", "node 1 of 1 runs"]),
        (
            3,
            [
                *(f"node {node} of 3 {what}" for node in (1, 2, 3) for what in ("was started", "runs")),
                "node 2 of 3 has joined the cluster",
                "node 3 of 3 has joined the cluster",
            ],
        ),
    ],
)
def test_every_node_is_told_when_it_starts_runs_and_joins(
    nodes: int, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_: Any) -> Any:
        return SimpleNamespace(pid=0)

    for name in ("_spawn", "_await", "_control"):
        monkeypatch.setattr(rabbitmq_cluster._Cluster, name, nothing)
    monkeypatch.setattr(rabbitmq_cluster, "is_installed", lambda: True)
    monkeypatch.setattr(rabbitmq_cluster, "_emulator", lambda pid: pid)
    said: list[str] = []
    with rabbitmq_cluster.running(tmp_path, nodes, say=said.append):
        pass
    assert [re.sub(r" after \d+\.\d s$", "", line) for line in said] == lines
