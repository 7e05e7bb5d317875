"""What is wrong with a node.json is said in three lines that name file, key, value and rule; never a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reference_broker.node.config import ConfigError, load

PORTS = {"amqp_port": 1, "peer_port": 2, "control_port": 3}
MEMBER = {"node": 1, "name": "node1", "host": "127.0.0.1", **PORTS}
GOOD: dict[str, Any] = {"name": "node1", "node": 1, "cluster": "c", "nodes": [MEMBER], "data_dir": "d"}


def problem(path: Path, text: str) -> list[str]:
    path.write_text(text)
    with pytest.raises(ConfigError) as wrong:
        load(path)
    return str(wrong.value).splitlines()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"limits": {"tick": 1}}, "limits.tick: unknown key; tick_ms?"),
        ({"limits": {"tick_ms": "a"}}, "limits.tick_ms: 'a': must be a whole number"),
        ({"limits": {"tick_ms": True}}, "limits.tick_ms: True: must be a whole number"),
        ({"limits": {"tick_ms": 0}}, "limits.tick_ms: 0: must be positive"),
        ({"limits": {"peer_frame_bytes_max": 4095}}, "limits.peer_frame_bytes_max: 4095: must be at least 4096"),
        ({"limits": None}, "limits: None: must be an object"),
        ({"users": [1]}, "users: [1]: must be an object of names and passwords"),
        ({"client_tls": {"port": 1}}, "client_tls.certificate: is missing: must be a string"),
        (
            {"client_tls": {"port": 1, "certificate": "c", "key": "k", "client_certificates": "some"}},
            "client_tls.client_certificates: 'some': must be none, optional or required",
        ),
        (
            {"client_tls": {"port": 1, "certificate": "c", "key": "k", "client_certificates": "required"}},
            "client_tls.ca: is missing: must name the authority of the clients' certificates",
        ),
        ({"loopback_users": "guest"}, "loopback_users: 'guest': must be a list of names"),
        ({"node": "1"}, "node: '1': must be a whole number"),
        ({"node": 2}, "node: 2: must be one of the ids in nodes [1]"),
        ({"nodes": [1]}, "nodes[0]: 1: must be an object"),
        ({"nodes": [{**MEMBER, "amqp_port": "x"}]}, "nodes[0].amqp_port: 'x': must be a port from 1 to 65535"),
        ({"nodes": [{**MEMBER, "amqp_port": 99_999}]}, "nodes[0].amqp_port: 99999: must be a port from 1 to 65535"),
        ({"nodes": [{**MEMBER, "bind": ""}]}, "nodes[0].bind: '': must be a string"),
        ({"nodes": [{**MEMBER, "binds": "::"}]}, "nodes[0].binds: unknown key; bind?"),
        ({"nodes": [{**MEMBER, "host": "0.0.0.0"}]}, "nodes[0].host: 0.0.0.0: stands for every address of a machine"),
        ({"nodes": [{**MEMBER, "host": "0"}]}, "nodes[0].host: 0: stands for every address of a machine"),
        ({"nodes": [{**MEMBER, "amqp_host": "::"}]}, "nodes[0].amqp_host: ::: stands for every address of a machine"),
        ({"nodes": [{**MEMBER, "bind": "0.0.0.0"}]}, "would obey anybody who reaches 0.0.0.0 (nodes[0].bind)"),
        ({"nodes": [{**MEMBER, "control_host": "h"}]}, "would obey anybody who reaches h (nodes[0].control_host)"),
        ({"nodes": [{"node": 1, **PORTS, "host": "h"}]}, "nodes[0].name: is missing: must be a string"),
        ({"data": "d"}, "data: unknown key; data_dir?"),
        ({"sync": "no"}, "sync: 'no': must be true or false"),
        ({"io": "pool"}, "io: pool: must be dedicated, or pool:N with N from 1 to 1024"),
        ({"io": 10}, "io: 10: must be a string"),
    ],
)
def test_each_problem_names_its_key_and_its_rule(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    """So that it can be mended without reading the program."""
    file = tmp_path / "node.json"
    first, at, fix = problem(file, json.dumps({**GOOD, **change}))
    assert first.startswith("error: ")
    assert at == f"  at   {file}"
    assert fix.startswith("  fix  ") and says in fix


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7"])
def test_what_is_no_object_is_said_to_be_none(tmp_path: Path, text: str) -> None:
    """A file cut off by a full drive, for one."""
    assert len(problem(tmp_path / "node.json", text)) == 3


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    """Nobody should have to start a node once for each."""
    fix = problem(tmp_path / "node.json", json.dumps({"name": 5}))[2]
    assert all(f"{key}: " in fix for key in ("name", "node", "cluster", "nodes", "data_dir"))


THREE = {"nodes": [{**MEMBER, "node": n, "name": f"node{n}"} for n in (1, 2, 3)]}


def test_nodes_with_peers_need_a_secret(tmp_path: Path) -> None:
    """Without one any stranger could speak for a node."""
    fix = problem(tmp_path / "node.json", json.dumps({**GOOD, **THREE}))[2]
    assert "secret_file: is missing: must name the file with the secret that all nodes" in fix


@pytest.mark.parametrize(
    ("text", "mode", "what", "fix"),
    [
        (
            None,
            0,
            "cannot be read: No such file or directory",
            "copy it from another node, or make",
        ),
        ("5" * 64, 0o640, "is open to other users", "chmod 600 "),
        ("5" * 31 + "\n", 0o600, "has 31 octets, and less than 32 can be guessed", "copy it from another node"),
    ],
    ids=["missing", "open", "short"],
)
def test_a_secret_that_is_none_is_refused(tmp_path: Path, text: str | None, mode: int, what: str, fix: str) -> None:
    secret = tmp_path / "secret"
    if text is not None:
        secret.touch(mode=mode)
        secret.write_text(text)
        secret.chmod(mode)
    lines = problem(tmp_path / "node.json", json.dumps({**GOOD, **THREE, "secret_file": str(secret)}))
    assert what in lines[0] and lines[1] == f"  at   {secret}" and fix in lines[2]
    assert "5" * 31 not in "".join(lines)


def test_a_secret_is_shown_nowhere(tmp_path: Path) -> None:
    """A configuration may end up in a log."""
    secret, file = tmp_path / "secret", tmp_path / "node.json"
    secret.touch(mode=0o600)
    secret.write_text("hush" * 8 + "\n")
    file.write_text(json.dumps({**GOOD, **THREE, "secret_file": str(secret)}))
    config = load(file)
    assert config.secret == b"hush" * 8 and "hush" not in repr(config)


def test_a_node_behind_another_address_may_listen_on_all_of_its_own(tmp_path: Path) -> None:
    secret, file = tmp_path / "secret", tmp_path / "node.json"
    secret.touch(mode=0o600)
    secret.write_text("5" * 64)
    addresses = {"host": "203.0.113.7", "amqp_host": "rabbit.example", "bind": "0.0.0.0", "control_bind": "127.0.0.1"}
    file.write_text(json.dumps({**GOOD, "nodes": [{**MEMBER, **addresses}], "secret_file": str(secret)}))
    me = load(file).me
    assert [me.advertised(port) for port in PORTS] == [
        ("amqp_host", "rabbit.example"), ("host", "203.0.113.7"), ("host", "203.0.113.7"),
    ]  # fmt: skip
    assert [me.bound(port) for port in PORTS] == [
        ("bind", "0.0.0.0"), ("bind", "0.0.0.0"), ("control_bind", "127.0.0.1"),
    ]  # fmt: skip


def test_a_good_one_is_taken(tmp_path: Path) -> None:
    """With everything optional left out."""
    file = tmp_path / "node.json"
    file.write_text(json.dumps(GOOD))
    assert load(file).me.amqp_port == 1
