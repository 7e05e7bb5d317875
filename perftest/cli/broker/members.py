"""Who holds a queue and who leads it: quorum-status, add-member, remove-member, transfer-leader, rebalance."""

from __future__ import annotations

from pathlib import Path

from perftest.cli.broker.common import change, command, load, node_argument, queue_argument, say, side_by_side
from perftest.cli.ui.table import print_table


@command(
    "quorum-status",
    "perftest broker quorum-status orders",
    "perftest broker quorum-status orders --json",
    "perftest broker quorum-status orders --dir /mnt/fast/broker",
)
@queue_argument
def quorum_status(queue: str, directory: Path, as_json: bool) -> None:
    """Show the members of a queue: role, indexes, term, machine version, as rabbitmq-queues names them."""
    members = change(directory, op="quorum-status", queue=queue)["members"]
    if as_json:
        print_table(members, as_json=True)
        return
    columns = {member["node_name"]: {key: member[key] for key in member if key != "node_name"} for member in members}
    print_table(side_by_side(columns), as_json=False)


@command(
    "add-member",
    "perftest broker add-member orders node4",
    "perftest broker add-member orders 4 --json",
    "perftest broker add-member orders node4 --dir /mnt/fast/broker",
)
@queue_argument
@node_argument()
def add_member(queue: str, node: str, directory: Path, as_json: bool) -> None:
    """Give a queue a member on another node; returns when it has caught up and votes."""
    _change_member(directory, "add-member", queue, node, outcome=("added", "is a member of"), as_json=as_json)


@command(
    "remove-member",
    "perftest broker remove-member orders node4",
    "perftest broker remove-member orders 4 --json",
    "perftest broker remove-member orders node4 --dir /mnt/fast/broker",
)
@queue_argument
@node_argument()
def remove_member(queue: str, node: str, directory: Path, as_json: bool) -> None:
    """Take the member on a node away from a queue; its replica there is deleted."""
    _change_member(
        directory, "remove-member", queue, node, outcome=("removed", "is no longer a member of"), as_json=as_json
    )


@command(
    "transfer-leader",
    "perftest broker transfer-leader orders node2",
    "perftest broker transfer-leader orders 2 --json",
    "perftest broker transfer-leader orders node2 --dir /mnt/fast/broker",
)
@queue_argument
@node_argument()
def transfer_leader(queue: str, node: str, directory: Path, as_json: bool) -> None:
    """Have another member lead a queue, once it holds the whole log."""
    _change_member(directory, "transfer-leader", queue, node, outcome=("leader", "leads"), as_json=as_json)


@command(
    "rebalance",
    "perftest broker rebalance",
    "perftest broker rebalance --json",
    "perftest broker rebalance --dir /mnt/fast/broker",
)
def rebalance(directory: Path, as_json: bool) -> None:
    """Spread the leaders of all queues over the nodes; shows the queues whose leader moved."""
    moved = change(directory, op="rebalance")["moved"]
    print_table([{key: row[key] for key in ("queue", "from", "to")} for row in moved], as_json=as_json)


def _change_member(directory: Path, op: str, queue: str, node: str, *, outcome: tuple[str, str], as_json: bool) -> None:
    """Have the cluster change what ``node`` is to ``queue``; ``outcome`` names the node then, for programs and in a
    sentence."""
    key, verb = outcome
    name = load(directory).node(node).name
    answer = change(directory, op=op, queue=queue, node=name)
    say(f"{name} {verb} {queue}", {"queue": queue, key: name, **answer}, as_json)


COMMANDS = (quorum_status, add_member, remove_member, transfer_leader, rebalance)
