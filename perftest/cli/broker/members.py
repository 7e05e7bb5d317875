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
    name = load(directory).node(node).name
    answer = change(directory, op="add-member", queue=queue, node=name)
    say(f"{name} is a member of {queue}", {"queue": queue, "added": name, **answer}, as_json)


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
    name = load(directory).node(node).name
    answer = change(directory, op="remove-member", queue=queue, node=name)
    say(f"{name} is no longer a member of {queue}", {"queue": queue, "removed": name, **answer}, as_json)


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
    name = load(directory).node(node).name
    answer = change(directory, op="transfer-leader", queue=queue, node=name)
    say(f"{name} leads {queue}", {"queue": queue, "leader": name, **answer}, as_json)


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


COMMANDS = (quorum_status, add_member, remove_member, transfer_leader, rebalance)
