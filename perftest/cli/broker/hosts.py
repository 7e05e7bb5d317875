"""A cluster over several hosts: describe."""

from __future__ import annotations

import secrets
from pathlib import Path

import click

from perftest.cli.broker.common import command, say
from perftest.cli.sections import option


@command(
    "describe",
    "perftest broker describe a=10.0.0.1 b=10.0.0.2 c=10.0.0.3 --dir cluster",
    "perftest broker describe a=rabbit1 b=rabbit2 c=rabbit3 --port 6000 --wal-dir /mnt/nvme/wal --dir cluster",
    "perftest broker describe a=203.0.113.7 --bind 0.0.0.0 --dir cluster",
)
@click.argument("nodes", metavar="NODE=ADDRESS...", nargs=-1, required=True)
@option("--port", section="Target", type=click.IntRange(1, 65_000), default=5691, show_default=True,
        help="AMQP port of each node. Peer, control and metrics ports are 100, 200 and 300 higher. A second node at "
             "the same address uses the next ports.")  # fmt: skip
@option("--bind", section="Target", metavar="ADDRESS",
        help="Address that each node listens on; 0.0.0.0: every address of its host.  [default: the address in "
             "NODE=ADDRESS]")  # fmt: skip
@option(
    "--wal-dir",
    section="Target",
    metavar="DIRECTORY",
    help="Directory for the write-ahead log, on each host.  [default: in --dir]",
)
@option(
    "--segment-dir",
    section="Target",
    metavar="DIRECTORY",
    help="Directory for the segment files, on each host.  [default: in --dir]",
)
@option(
    "--classic-dir",
    section="Target",
    metavar="DIRECTORY",
    help="Directory for messages of classic queues, on each host.  [default: in --dir]",
)
def describe(
    nodes: tuple[str, ...],
    port: int,
    bind: str | None,
    wal_dir: str | None,
    segment_dir: str | None,
    classic_dir: str | None,
    directory: Path,
    as_json: bool,
) -> None:
    """Describe a cluster whose nodes run on several hosts, each with its name and the address that others connect to.

    The files description.json and secret are made in --dir. Copy both to a directory on each host, and start the node
    there: perftest broker start --node NODE --dir DIRECTORY. Status, metrics and changes of members work in --dir, too.
    """
    from infra import description

    roles = {"wal_dir": wal_dir, "segment_dir": segment_dir, "classic_dir": classic_dir}
    places, at = [], dict[str, int]()
    for name, separator, address in (node.partition("=") for node in nodes):
        if not separator:
            raise click.UsageError(f"{name}: must be a name and an address, such as node1=10.0.0.1")
        at[address] = at.get(address, -1) + 1
        places.append(
            description.NodePlace(
                name=name,
                address=address,
                ports=description.usual_ports(port, at[address]),
                directories={role: path for role, path in roles.items() if path},
                addresses={"bind": bind} if bind else {},
            )
        )
    described = description.describe(f"hosts-{secrets.token_hex(4)}", places)
    cluster = description.write(described, directory)
    names = ", ".join(node.name for node in cluster.nodes)
    answer = {
        "directory": cluster.directory,
        "cluster": cluster.cluster,
        "nodes": [node.name for node in cluster.nodes],
    }
    say(f"described {names} in {cluster.directory}; copy description.json and secret to each host", answer, as_json)


COMMANDS = (describe,)
