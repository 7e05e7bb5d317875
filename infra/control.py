"""Requests to the control ports of a cluster's nodes: a JSON line each, answered by a JSON line.

Nodes that are not here (:class:`infra.cluster.Node`) are asked whether they run; for the others their processes are
looked at first, because a paused process answers nothing.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any, Final

import psutil

from infra.cluster import Cluster, ClusterError, Node, SecretError
from infra.control_link import NoConnectionError, ProofError, connected
from infra.fuse_drives import FuseDrives
from infra.node_process import is_alive, is_paused

_SAMPLED: Final = ("name", "role", "term", "commit_index", "synced_index", "applied_index")
_ASK_TIMEOUT_S: Final = 5.0
_ASK_ELSEWHERE_TIMEOUT_S: Final = 2.0
"""Longest wait for a node on another host. A host that is gone does not answer, and each look at the cluster waits for
this time."""
_CHANGE_TIMEOUT_S: Final = 60.0
_LINE_MAX: Final = 60_000
"""Longest request that is sent as a line alone; a longer one is announced with its octets."""
_ANSWER_BYTES_MAX: Final = 1 << 24


def status(cluster: Cluster) -> list[dict[str, Any]]:
    """The full status of each node with each of its queues. It may have megabytes, so ask for it only on request.

    A status always has ``name``, ``state`` (``running``, ``paused``, ``silent`` or ``down``), ``uri``, ``pid``,
    ``metrics_port``, ``role`` and the directories, and everything else that the control port answers. ``problem`` says
    why a node is ``silent``.
    """
    return [_with_fuse_drives(cluster, _said(cluster, node, "status")) for node in cluster.nodes]


def summary(cluster: Cluster) -> list[dict[str, Any]]:
    """The status of each node with its few busiest queues only: as cheap with ten thousand queues as with one."""
    return [_with_fuse_drives(cluster, summary_of(cluster, node)) for node in cluster.nodes]


def summary_of(cluster: Cluster, node: Node) -> dict[str, Any]:
    """The status of one node with its few busiest queues only."""
    return _said(cluster, node, "summary")


def sample(cluster: Cluster, t_ns: int) -> list[dict[str, Any]]:
    """A record of ``broker.jsonl`` for each node that answers, at Unix time ``t_ns``: CPU, memory, role, metrics."""
    here = {node.name for node in cluster.nodes if node.is_here}
    return [_sample(item, t_ns, item["name"] in here) for item in summary(cluster) if item["state"] == "running"]


def ask(
    cluster: Cluster, node: Node, request: Mapping[str, object], timeout_s: float = _ASK_TIMEOUT_S
) -> dict[str, Any]:
    """The answer to a request to a node's control port.

    Raises OSError without an answer, ValueError if the answer is not a JSON object, or if the node or this side cannot
    prove that it belongs to the cluster.
    """
    try:
        with connected(cluster, node, timeout_s) as lines:
            body = json.dumps(request).encode() + b"\n"
            if len(body) > _LINE_MAX:
                lines.write(b'{"octets": %d}\n' % len(body))
            lines.write(body)
            lines.flush()
            line = lines.readline(_ANSWER_BYTES_MAX)
            if not line.endswith(b"\n"):
                raise ConnectionResetError("the node ended, or closed the connection, before it had answered")
            answer = json.loads(line)
    except SecretError as error:
        raise ProofError(f"{error.what} ({error.where}): {error.fix}") from error
    if not isinstance(answer, dict):
        raise ValueError("the control port answered something else than an object")
    return answer


def change(cluster: Cluster, request: Mapping[str, object]) -> dict[str, Any]:
    """The answer to a request that any node answers for the cluster. Raises :class:`ClusterError` if no node answers,
    or if a node refuses.

    The next node is asked only if nothing was sent to the node before, so that no change is made twice.
    """
    for node in cluster.nodes:
        if _is_known_silent(node):
            continue
        try:
            answer = ask(cluster, node, request, _CHANGE_TIMEOUT_S)
        except NoConnectionError:
            continue
        except ProofError as error:
            raise _silent(node, request, error, "check the cluster with `perftest broker status`") from error
        except (OSError, ValueError) as error:
            fix = "give the command again: if the change is made already, the command finds it made"
            raise _silent(node, request, error, fix) from error
        return _granted(node, answer)
    where = f"--dir {cluster.directory}"
    fix = f"bring nodes back: `perftest broker start --node NODE {where}`, or `perftest broker resume NODE {where}`"
    raise ClusterError("no node of this cluster answers", cluster.directory, fix)


def act_on_drive(
    cluster: Cluster, node: str, drive: str, do: str, *, keeps: bool = False, **details: object
) -> dict[str, Any]:
    """The status of a modelled drive or a FUSE drive after a change. Raises :class:`ClusterError`.

    ``do`` is ``slow`` (``factor``), ``profile`` (``profile``), ``fill`` or ``free`` its room, ``fail`` or ``heal``, or
    ``restore``, which brings the drive back to its configuration. A FUSE drive outlasts the process of its node, and is
    as it was made again at the node's next start, or with ``heal`` or ``restore`` before that. ``keeps``: a filling
    stays after this command.
    """
    if drive in cluster.directories.fuse:
        fuse, name = fuse_drives(cluster), cluster.node(node).name
        if do in ("heal", "restore") and not is_alive(cluster.node(node)):
            fuse.reset(name)
        return fuse.act(name, drive, do, keeps=keeps, **details)
    told: dict[str, Any] = of_node(cluster, node, {"op": "drive", "drive": drive, "do": do, **details})["drive"]
    return told


def modelled_drives(cluster: Cluster) -> list[str]:
    """The names of the modelled drives that every running node has."""
    found = [
        [str(drive["name"]) for drive in said.get("drives", ())]
        for said in summary(cluster)
        if said["state"] == "running"
    ]
    return [name for name in (found[0] if found else []) if all(name in names for names in found)]


def fuse_drives(cluster: Cluster) -> FuseDrives:
    """The FUSE drives of the nodes of a cluster, if there are any."""
    return FuseDrives([node.name for node in cluster.nodes], cluster.directories.fuse)


def of_node(cluster: Cluster, name: str, request: Mapping[str, object]) -> dict[str, Any]:
    """The answer to a request that is about one node. Raises :class:`ClusterError` if the node does not answer, or
    refuses."""
    node = cluster.node(name)
    if _is_known_silent(node):
        what = f"{node.name} is {'paused' if is_alive(node) else 'down'}"
        fix = f"bring the node back: `perftest broker {'resume' if is_alive(node) else 'start --node'} {node.name}`"
        raise ClusterError(what, _control(node), fix)
    try:
        answer = ask(cluster, node, request)
    except (OSError, ValueError) as error:
        raise _silent(node, request, error, "check the cluster with `perftest broker status`") from error
    return _granted(node, answer)


def _said(cluster: Cluster, node: Node, operation: str) -> dict[str, Any]:
    known = {"name": node.name, "uri": node.uri, "pid": node.pid, "metrics_port": node.metrics_port, "role": ""}
    known |= node.paths()
    if _is_known_silent(node):
        return {**known, "state": "paused" if is_alive(node) else "down"}
    try:
        answer = ask(cluster, node, {"op": operation}, _ASK_TIMEOUT_S if node.is_here else _ASK_ELSEWHERE_TIMEOUT_S)
    except (OSError, ValueError) as error:
        return {**known, "state": "silent", "problem": f"{_control(node)}: {error}"}
    pid = node.pid if node.is_here else answer.get("pid", 0)
    return {**known, **answer, "uri": node.uri, "pid": pid, "state": "running"}


def _is_known_silent(node: Node) -> bool:
    """Whether the process of a node is here and cannot answer."""
    return node.is_here and (not is_alive(node) or is_paused(node))


def _with_fuse_drives(cluster: Cluster, said: dict[str, Any]) -> dict[str, Any]:
    if not cluster.directories.fuse or said["state"] != "running":
        return said
    return {**said, "drives": [*said.get("drives", ()), *fuse_drives(cluster).told(said["name"])]}


def _sample(answer: Mapping[str, Any], t_ns: int, is_here: bool) -> dict[str, Any]:
    metrics = dict(answer.get("metrics") or {})
    record = {"t_ns": t_ns, "node": answer["name"], "pid": answer["pid"], "role": answer["role"]}
    if "cpu_ns" in metrics:
        record["cpu_ns"] = metrics.pop("cpu_ns")
    with contextlib.suppress(psutil.Error):
        if is_here:  # elsewhere, the pid belongs to another machine
            record["rss_bytes"] = psutil.Process(answer["pid"]).memory_info().rss
    # Only the queues with the most commits: thousands of queues would fill the record.
    queues = [{name: queue.get(name) for name in _SAMPLED} for queue in answer.get("busiest") or ()]
    more = {name: answer[name] for name in ("links", "drives") if answer.get(name)}
    return {**record, "metrics": metrics, "queues": queues, **more}


def _silent(node: Node, request: Mapping[str, object], error: Exception, fix: str) -> ClusterError:
    return ClusterError(f"{node.name} did not answer {request['op']}: {error}", _control(node), fix)


def _granted(node: Node, answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise ClusterError(str(answer["error"]), _control(node), str(answer.get("fix") or "see the node's log"))
    return answer


def _control(node: Node) -> str:
    host, port = node.control_address
    return f"{node.name}, {host}:{port}"
