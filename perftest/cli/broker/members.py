"""Members, leaders and mirrors of queues: quorum-status, add-member, remove-member, transfer-leader, rebalance,
sync-queue, cancel-sync-queue."""

from __future__ import annotations

from pathlib import Path

from perftest.cli.broker.common import (
    change,
    command,
    load,
    node_argument,
    queue_argument,
    say,
    side_by_side,
    vhost_option,
)
from perftest.cli.ui.table import print_table


@command("quorum-status", arguments=("orders",))
@queue_argument
@vhost_option
def quorum_status(queue: str, vhost: str, directory: Path, as_json: bool) -> None:
    """Show the members of a queue with their role, log indexes, term and machine version."""
    members = change(directory, op="quorum-status", queue=queue, vhost=vhost)["members"]
    if as_json:
        print_table(members, as_json=True)
        return
    columns = {member["node_name"]: {key: member[key] for key in member if key != "node_name"} for member in members}
    print_table(side_by_side(columns), as_json=False)


@command("add-member", arguments=("orders node4", "orders 4"))
@queue_argument
@node_argument()
@vhost_option
def add_member(queue: str, node: str, vhost: str, directory: Path, as_json: bool) -> None:
    """Add a member of a queue on a node, and wait until the member has caught up and votes."""
    _change_member(directory, "add-member", (queue, vhost), node, outcome=("added", "is a member of"), as_json=as_json)


@command("remove-member", arguments=("orders node4", "orders 4"))
@queue_argument
@node_argument()
@vhost_option
def remove_member(queue: str, node: str, vhost: str, directory: Path, as_json: bool) -> None:
    """Remove the member of a queue on a node, and delete its data there."""
    outcome = ("removed", "is no longer a member of")
    _change_member(directory, "remove-member", (queue, vhost), node, outcome=outcome, as_json=as_json)


@command("transfer-leader", arguments=("orders node2", "orders 2"))
@queue_argument
@node_argument()
@vhost_option
def transfer_leader(queue: str, node: str, vhost: str, directory: Path, as_json: bool) -> None:
    """Make the member on a node the leader of a queue, as soon as it holds the whole log."""
    _change_member(directory, "transfer-leader", (queue, vhost), node, outcome=("leader", "leads"), as_json=as_json)


@command("rebalance")
def rebalance(directory: Path, as_json: bool) -> None:
    """Spread the leaders of all queues evenly over the nodes, and show the leaders that moved."""
    moved = change(directory, op="rebalance")["moved"]
    print_table([{key: row[key] for key in ("queue", "vhost", "from", "to")} for row in moved], as_json=as_json)


@command("sync-queue", arguments=("orders",))
@queue_argument
@vhost_option
def sync_queue(queue: str, vhost: str, directory: Path, as_json: bool) -> None:
    """Give all messages of a queue to its mirrors that are not synchronised. Meanwhile the queue does nothing else."""
    answer = change(directory, op="sync-queue", queue=queue, vhost=vhost)
    say(f"{_mirrors(answer['mirrors'])} of {queue} to be filled", {"queue": queue, **answer}, as_json)


@command("cancel-sync-queue", arguments=("orders",))
@queue_argument
@vhost_option
def cancel_sync_queue(queue: str, vhost: str, directory: Path, as_json: bool) -> None:
    """Stop giving messages of a queue to its mirrors."""
    answer = change(directory, op="cancel-sync-queue", queue=queue, vhost=vhost)
    say(f"{_mirrors(answer['mirrors'])} of {queue} no longer filled", {"queue": queue, **answer}, as_json)


def _mirrors(count: int) -> str:
    return "1 mirror" if count == 1 else f"{count} mirrors"


def _change_member(
    directory: Path, op: str, place: tuple[str, str], node: str, *, outcome: tuple[str, str], as_json: bool
) -> None:
    """Ask the cluster for a change of the member on ``node`` of the queue at ``place``: its name and virtual host.

    ``outcome`` is the key of the node in the JSON answer, and the verb of the sentence.
    """
    (queue, vhost), (key, verb) = place, outcome
    name = load(directory).node(node).name
    answer = change(directory, op=op, queue=queue, vhost=vhost, node=name)
    say(f"{name} {verb} {queue}", {"queue": queue, key: name, **answer}, as_json)


COMMANDS = (quorum_status, add_member, remove_member, transfer_leader, rebalance, sync_queue, cancel_sync_queue)
