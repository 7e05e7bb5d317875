"""The operator's commands against a control port that says what it was told to: requests, tables, errors, codes."""

from __future__ import annotations

import json
import os
import socketserver
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra import cluster as clusters
from infra import cluster_file, control_link, node_process

Call = Callable[..., tuple[int, str, str]]


class Control(socketserver.ThreadingTCPServer):
    """A control port: remembers what it was asked, and answers by operation."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.secret = b""
        self.asked: list[dict[str, Any]] = []
        self.answers: dict[str, Any] = {}

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Handler(socketserver.StreamRequestHandler):
    server: Control

    def handle(self) -> None:
        """The handshake as the node does it, then one request."""
        opening, text = self.rfile.readline().rstrip(b"\n"), b"{}"
        self.wfile.write(
            control_link._proof(self.server.secret, b"control answer", opening, text) + b" " + text + b"\n"
        )
        self.rfile.readline()
        request = json.loads(self.rfile.readline())
        self.server.asked.append(request)
        answer = self.server.answers.get(request["op"], {"ok": True})
        self.wfile.write(b"" if answer is None else json.dumps(answer).encode() + b"\n")


@pytest.fixture
def control() -> Iterator[Control]:
    with Control() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def directory(tmp_path: Path, control: Control) -> Path:
    """A cluster whose first node is down; the two others are this very process, which answers on one port."""
    rows = [[1, 1, 1, 1], [5692, 1, control.port, 5992], [5693, 1, control.port, 5993]]
    planned = clusters.plan(tmp_path, "c", rows, clusters.Directories())
    me, since = os.getpid(), node_process.start_time(os.getpid()) or 0
    clusters.make_secret(planned)
    control.secret = planned.secret()
    down, *alive = planned.nodes
    cluster_file.save(replace(planned, nodes=(down, *(replace(node, pid=me, start_time=since) for node in alive))))
    return tmp_path


def members() -> list[dict[str, Any]]:
    plain = {"membership": "voter", "last_log_index": 12_345_678, "last_written": 12_345_678, "term": 3}
    return [{"node_name": f"node{n}", "raft_state": "leader" if n == 4 else "follower", **plain} for n in range(1, 6)]


METRICS = [
    {"name": "a", "type": "counter", "samples": [{"name": "a_total", "labels": {}, "value": 3.0}]},
    {"name": "b", "type": "gauge", "samples": [{"name": "b", "labels": {"queue": "q"}, "value": 0.5}]},
    {"name": "i", "type": "info", "samples": [{"name": "i_info", "labels": {"cluster": "c"}, "value": 1.0}]},
]
POLICY = {
    "name": "p", "pattern": "^q", "definition": {"max-length": 10}, "priority": 2, "apply_to": "all", "vhost": "/",
}  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "request_", "answer", "said"),
    [
        (
            ["add-member", "q", "1"],
            {"op": "add-member", "queue": "q", "vhost": "/", "node": "node1"},
            {"ok": True},
            "node1 is a member of q",
        ),
        (
            ["remove-member", "q", "node3"],
            {"op": "remove-member", "queue": "q", "vhost": "/", "node": "node3"},
            {"ok": True},
            "node3 is no longer a member of q",
        ),
        (
            ["transfer-leader", "q", "node2"],
            {"op": "transfer-leader", "queue": "q", "vhost": "/", "node": "node2"},
            {"ok": True},
            "node2 leads q",
        ),
        (
            ["rebalance"],
            {"op": "rebalance"},
            {"ok": True, "moved": [{"queue": "orders", "vhost": "/", "from": "node1", "to": "node2"}]},
            "queue   vhost  from   to\norders  /      node1  node2",
        ),
        (["rebalance"], {"op": "rebalance"}, {"ok": True, "moved": []}, "(none)"),
        (
            ["set-policy", "p", "^q", '{"max-length": 10}', "--priority", "2"],
            {"op": "set-policy", **POLICY},
            {"ok": True},
            "policy p is set",
        ),
        (["clear-policy", "p"], {"op": "clear-policy", "name": "p", "vhost": "/"}, {"ok": True}, "policy p is cleared"),
        (
            ["policies"],
            {"op": "policies"},
            {"ok": True, "policies": [{**POLICY, "without_effect": {}}]},
            "vhost  name  pattern  apply_to  priority  definition          no effect\n"
            '/      p     ^q       all              2  {"max-length": 10}',
        ),
        (
            ["metrics", "2"],
            {"op": "metrics"},
            {"ok": True, "metrics": METRICS},
            '              node2\na_total           3\nb{queue="q"}    0.5',
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_is_one_request(
    call: Call,
    control: Control,
    directory: Path,
    arguments: list[str],
    request_: dict[str, Any],
    answer: dict[str, Any],
    said: str,
) -> None:
    """The request as the control port knows it, made once, and an answer for people; with --json one for programs."""
    control.answers[request_["op"]] = answer
    code, out, err = call("broker", *arguments, "--dir", str(directory))
    assert (code, out.rstrip("\n"), err) == (0, said, "") and control.asked == [request_]
    code, out, _ = call("broker", *arguments, "--dir", str(directory), "--json")
    assert code == 0 and isinstance(json.loads(out), dict | list)


def test_quorum_status_of_five_members_fits_80_columns(call: Call, control: Control, directory: Path) -> None:
    """An operator in trouble has a terminal of 80 columns."""
    control.answers["quorum-status"] = {"ok": True, "queue": "q", "members": members()}
    code, out, _ = call("broker", "quorum-status", "q", "--dir", str(directory))
    lines = out.splitlines()
    assert code == 0 and max(map(len, lines)) <= 80
    assert lines[0].split() == ["node1", "node2", "node3", "node4", "node5"]
    assert "leader" in lines[1] and lines[1].startswith("raft_state") and "12345678" in lines[3]
    code, out, _ = call("broker", "quorum-status", "q", "--dir", str(directory), "--json")
    assert json.loads(out) == members()


def test_status_fits_80_columns_and_tells_who_is_down(call: Call, control: Control, directory: Path) -> None:
    """Exit code 1: something is not as it should be."""
    control.answers["summary"] = {"role": "leader", "data_dir": "/a/very/long/path/" * 9, "queues": []}
    code, out, _ = call("broker", "status", "--dir", str(directory))
    lines = out.splitlines()
    assert code == 1 and max(map(len, lines[:-1])) <= 80 and lines[-1] == f"data in {directory}"
    assert [line.split()[:2] for line in lines[1:4]] == [["node1", "down"], ["node2", "running"], ["node3", "running"]]


def test_what_a_start_found_lost_is_a_warning(call: Call, control: Control, directory: Path) -> None:
    """The table stays as it is for programs that read it; people read on stderr what is gone, where, and what to do."""
    lost = {"what": "404 messages are lost", "where": "/q/1.qi", "queue": "orders", "messages": 404, "fix": "mend it"}
    rest = {"what": "3 more findings", "where": "", "queue": "", "messages": 0, "fix": "read the log"}
    control.answers["summary"] = {"findings": [lost, rest]}
    _, _, err = call("broker", "status", "--dir", str(directory))
    assert err.splitlines()[:5] == [
        "warning: node2 found damage at its start: queue orders: 404 messages are lost",
        "  at   /q/1.qi",
        "  fix  mend it",
        "warning: node2 found damage at its start: 3 more findings",
        "  fix  read the log",
    ]
    assert "warning: node3 found damage" in err


def test_a_refusal_is_three_lines(call: Call, control: Control, directory: Path) -> None:
    """What the node says, where it said it, and what it advises."""
    control.answers["add-member"] = {"error": "node2 holds q already", "fix": "name another node"}
    code, out, err = call("broker", "add-member", "q", "node2", "--dir", str(directory))
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "error: node2 holds q already",
        f"  at   node2, 127.0.0.1:{control.port}",
        "  fix  name another node",
    ]


def test_a_change_without_an_answer_is_not_asked_for_again(call: Call, control: Control, directory: Path) -> None:
    """Whether it was made is unknown: the other node must not be asked to make it once more."""
    control.answers["rebalance"] = None
    code, _, err = call("broker", "rebalance", "--dir", str(directory))
    assert code == 1 and "node2 did not answer rebalance: the node ended" in err and len(control.asked) == 1
    assert "give the command again" in err


@pytest.mark.parametrize("arguments", [["remove-member", "q", "2"], ["delete-user", "u"], ["delete-vhost", "v"]])
def test_what_was_done_before_is_said_and_is_no_error(
    call: Call, control: Control, directory: Path, arguments: list[str]
) -> None:
    """Whoever got no answer gives the command again."""
    control.answers[arguments[0]] = {"ok": True, "told": "there was no such thing"}
    code, out, _ = call("broker", *arguments, "--dir", str(directory))
    assert (code, out) == (0, "there was no such thing\n")
    code, out, _ = call("broker", *arguments, "--dir", str(directory), "--json")
    assert code == 0 and json.loads(out)["told"] == "there was no such thing"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["kill", "node9"], "there is no node 'node9' in this cluster"),
        (["add-member", "q", "node9"], "there is no node 'node9' in this cluster"),
        (["start", "--node", "node1", "--nodes", "3"], "--nodes is for a whole cluster"),
        (["set-policy", "p", "q", "{"], "is not JSON"),
        (["set-policy", "p", "q", "[1]"], "is not a JSON object"),
        (["add-member", "q"], "missing argument 'NODE'"),
        (["drive", "2", "d1", "burn"], "'burn' is none of slow=FACTOR"),
        (["drive", "2", "d1", "slow"], "'slow' is none of slow=FACTOR"),
        (["drive", "2", "d1", "fill=3"], "'fill=3' is none of slow=FACTOR"),
        (["drive", "2", "d1", "slow=much"], "'much' is no number"),
    ],
)
def test_wrong_arguments_exit_2(call: Call, control: Control, directory: Path, arguments: list[str], what: str) -> None:
    """And nothing is asked or signalled."""
    code, out, err = call("broker", *arguments, "--dir", str(directory))
    assert (code, out, control.asked) == (2, "", []) and what in err and "\n  fix  " in err


@pytest.mark.parametrize("command", ["kill", "pause", "resume"])
def test_a_node_that_is_down_cannot_be_signalled(call: Call, directory: Path, command: str) -> None:
    """It says so and how to start it, rather than look as if it had worked."""
    code, _, err = call("broker", command, "node1", "--dir", str(directory))
    assert code == 1 and "node1 is not running" in err and "broker start --node node1" in err


def test_a_running_node_is_not_started_twice(call: Call, directory: Path) -> None:
    """Two processes on one log would destroy it."""
    code, _, err = call("broker", "start", "--node", "node2", "--dir", str(directory))
    assert code == 1 and "node2 already runs" in err


@pytest.mark.parametrize(
    ("action", "asked", "said"),
    [
        ("slow=4", {"do": "slow", "factor": 4.0}, "drive d1 of node2 has other speed (st1-1t)\n"),
        (
            "profile=hdd7200",
            {"do": "profile", "profile": "hdd7200"},
            "drive d1 of node2 has another profile (st1-1t)\n",
        ),
        ("fill", {"do": "fill"}, "drive d1 of node2 has no room left (st1-1t)\n"),
        ("heal", {"do": "heal"}, "drive d1 of node2 works again (st1-1t)\n"),
    ],
)
def test_a_modelled_drive_is_changed(
    call: Call, control: Control, directory: Path, action: str, asked: dict[str, Any], said: str
) -> None:
    """Only the node that was named is asked."""
    control.answers["drive"] = {"ok": True, "drive": {"name": "d1", "profile": "st1-1t"}}
    code, out, _ = call("broker", "drive", "2", "d1", action, "--dir", str(directory))
    assert (code, out) == (0, said)
    assert control.asked == [{"op": "drive", "drive": "d1", **asked}]
    code, out, _ = call("broker", "drive", "2", "d1", action, "--dir", str(directory), "--json")
    assert json.loads(out) == {"node": "node2", "drive": {"name": "d1", "profile": "st1-1t"}}


def test_a_drive_of_a_node_that_is_down_or_refuses_is_an_error(call: Call, control: Control, directory: Path) -> None:
    code, _, err = call("broker", "drive", "node1", "d1", "fill", "--dir", str(directory))
    assert code == 1 and "node1 is down" in err and "start --node" in err
    control.answers["drive"] = {"error": "this node has no modelled drive 'd1'", "fix": "use one of d2"}
    code, _, err = call("broker", "drive", "node2", "d1", "fill", "--dir", str(directory))
    assert code == 1 and "no modelled drive" in err and "use one of d2" in err
