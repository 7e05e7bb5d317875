"""Who may use a cluster: users, virtual hosts, permissions, and permissions for routing keys."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from perftest.cli.broker.common import change, command, say
from perftest.cli.sections import option
from perftest.cli.ui.table import print_table

_VHOST = option("--vhost", section="Target", default="/", help="Virtual host of the permission.")


def _password(*, again: bool = True) -> str:
    """The password, from a prompt or from the first line of the standard input. It is no argument: arguments stand in
    the list of processes and in the history of the shell."""
    if sys.stdin.isatty():
        password: str = click.prompt("Password", hide_input=True, confirmation_prompt=again)
        return password
    return sys.stdin.readline().rstrip("\r\n")


@command("users")
def users(directory: Path, as_json: bool) -> None:
    """List the users of a cluster."""
    found = change(directory, op="users")["users"]
    if not as_json:
        found = [{**user, "tags": " ".join(user["tags"])} for user in found]
    shown = ("name", "tags", "has_password", "max_connections", "max_channels")
    print_table([{key: user[key] for key in shown} for user in found], as_json=as_json)


@command(
    "add-user",
    "perftest broker add-user bench",
    "perftest broker add-user ann --tag administrator",
    "perftest broker add-user ann --tag monitoring --tag policymaker --json",
)
@click.argument("name", metavar="NAME")
@option("--tag", "tags", section="Target", multiple=True, help="What the user may do over HTTP; may be repeated.")
def add_user(name: str, tags: tuple[str, ...], directory: Path, as_json: bool) -> None:
    """Add a user.

    The command asks for the password, or reads it from the standard input. A new user has no permissions:
    set-permissions gives them.
    """
    answer = change(directory, op="add-user", name=name, tags=list(tags), password=_password())
    say(f"user {name} is there; set-permissions says what the user may do", {"added": name, **answer}, as_json)


@command("delete-user", arguments=("bench",))
@click.argument("name", metavar="NAME")
def delete_user(name: str, directory: Path, as_json: bool) -> None:
    """Delete a user, with all permissions. The user's connections are closed."""
    answer = change(directory, op="delete-user", name=name)
    say(f"user {name} is deleted", {"deleted": name, **answer}, as_json)


@command("set-password", arguments=("bench",))
@click.argument("name", metavar="NAME")
def set_password(name: str, directory: Path, as_json: bool) -> None:
    """Give a user another password. Connections that are open stay open."""
    answer = change(directory, op="set-password", name=name, password=_password())
    say(f"user {name} has another password", {"changed": name, **answer}, as_json)


@command("authenticate", arguments=("bench",))
@click.argument("name", metavar="NAME")
def authenticate(name: str, directory: Path, as_json: bool) -> None:
    """Ask the cluster whether a password is the user's."""
    answer = change(directory, op="authenticate", name=name, password=_password(again=False))
    say(f"this is the password of user {name}", {"authenticated": name, **answer}, as_json)


@command("set-user-tags", arguments=("bench administrator", "bench"))
@click.argument("name", metavar="NAME")
@click.argument("tags", metavar="[TAG]...", nargs=-1)
def set_user_tags(name: str, tags: tuple[str, ...], directory: Path, as_json: bool) -> None:
    """Set what a user may do over HTTP; without a TAG, nothing.

    The tags are management, policymaker, monitoring and administrator, as in RabbitMQ.
    """
    answer = change(directory, op="set-user-tags", name=name, tags=list(tags))
    say(f"user {name} has the tags {', '.join(tags) or 'none'}", {"user": name, "tags": tags, **answer}, as_json)


@command(
    "set-user-limits",
    "perftest broker set-user-limits bench --connections 100",
    "perftest broker set-user-limits bench --channels 1000 --json",
    "perftest broker set-user-limits bench --connections -1 --channels -1",
)
@click.argument("name", metavar="NAME")
@option("--connections", section="Target", type=int, help="Most connections of the user to each node; -1: no limit.")
@option("--channels", section="Target", type=int, help="Most channels of the user on each node; -1: no limit.")
def set_user_limits(name: str, connections: int | None, channels: int | None, directory: Path, as_json: bool) -> None:
    """Limit the connections and channels of a user."""
    limits = {"max_connections": connections, "max_channels": channels}
    given = {key: limit for key, limit in limits.items() if limit is not None}
    answer = change(directory, op="set-user-limits", name=name, **given)
    say(f"user {name} has these limits now", {"user": name, **given, **answer}, as_json)


@command("vhosts")
def vhosts(directory: Path, as_json: bool) -> None:
    """List the virtual hosts of a cluster."""
    found = change(directory, op="vhosts")["vhosts"]
    if not as_json:
        found = [{**vhost, "tags": " ".join(vhost["tags"])} for vhost in found]
    shown = ("name", "description", "tags", "queues", "max_connections", "max_queues")
    print_table([{key: vhost[key] for key in shown} for vhost in found], as_json=as_json)


@command(
    "add-vhost",
    "perftest broker add-vhost tenant",
    "perftest broker add-vhost tenant --description 'orders and bills' --tag production",
    "perftest broker add-vhost tenant --json",
)
@click.argument("name", metavar="NAME")
@option("--description", section="Target", default="", help="Text for people.")
@option("--tag", "tags", section="Target", multiple=True, help="Word for people and programs; may be repeated.")
def add_vhost(name: str, description: str, tags: tuple[str, ...], directory: Path, as_json: bool) -> None:
    """Add a virtual host: queues, exchanges, policies and permissions of its own.

    A name in one virtual host means nothing in another. Users need permissions for each: set-permissions gives them.
    """
    answer = change(directory, op="add-vhost", name=name, description=description, tags=list(tags))
    say(f"virtual host {name} is there; set-permissions says who may use it", {"added": name, **answer}, as_json)


@command("delete-vhost", arguments=("tenant",))
@click.argument("name", metavar="NAME")
def delete_vhost(name: str, directory: Path, as_json: bool) -> None:
    """Delete a virtual host with its queues, messages, exchanges, policies and permissions.

    The connections to the virtual host are closed.
    """
    answer = change(directory, op="delete-vhost", name=name)
    say(f"virtual host {name} is deleted with everything in it", {"deleted": name, **answer}, as_json)


@command(
    "set-vhost-limits",
    "perftest broker set-vhost-limits tenant --connections 100",
    "perftest broker set-vhost-limits tenant --queues 1000 --json",
    "perftest broker set-vhost-limits tenant --connections -1 --queues -1",
)
@click.argument("name", metavar="NAME")
@option("--connections", section="Target", type=int, help="Most connections to it on each node; -1: no limit.")
@option("--queues", section="Target", type=int, help="Most queues in it; -1: no limit.")
def set_vhost_limits(name: str, connections: int | None, queues: int | None, directory: Path, as_json: bool) -> None:
    """Limit the connections and queues of a virtual host."""
    limits = {"max_connections": connections, "max_queues": queues}
    given = {key: limit for key, limit in limits.items() if limit is not None}
    answer = change(directory, op="set-vhost-limits", name=name, **given)
    say(f"virtual host {name} has these limits now", {"vhost": name, **given, **answer}, as_json)


@command("permissions")
def permissions(directory: Path, as_json: bool) -> None:
    """List the permissions of all users."""
    found = change(directory, op="permissions")["permissions"]
    shown = ("user", "vhost", "configure", "write", "read")
    print_table([{key: each[key] for key in shown} for each in found], as_json=as_json)


@command(
    "set-permissions",
    "perftest broker set-permissions bench '.*' '.*' '.*'",
    "perftest broker set-permissions reader '' '' '^orders'",
    "perftest broker set-permissions bench '^perftest' '^(perftest|amq[.]default)' '^perftest' --vhost / --json",
)
@click.argument("user", metavar="USER")
@click.argument("configure", metavar="CONFIGURE")
@click.argument("write", metavar="WRITE")
@click.argument("read", metavar="READ")
@_VHOST
def set_permissions(directory: Path, as_json: bool, **permission: Any) -> None:
    """Set what a user may do with queues and exchanges.

    CONFIGURE, WRITE and READ are regular expressions. The user may declare and delete, publish and bind to, or consume
    and bind from what each of them finds. The empty expression finds nothing. The default exchange is called
    amq.default.
    """
    answer = change(directory, op="set-permissions", **permission)
    say(f"user {permission['user']} has these permissions in {permission['vhost']}", permission | answer, as_json)


@command("clear-permissions", arguments=("bench",))
@click.argument("user", metavar="USER")
@_VHOST
def clear_permissions(user: str, vhost: str, directory: Path, as_json: bool) -> None:
    """Take all permissions of a user in a virtual host away."""
    answer = change(directory, op="clear-permissions", user=user, vhost=vhost)
    say(f"user {user} has no permissions in {vhost}", {"user": user, "vhost": vhost, **answer}, as_json)


@command("topic-permissions")
def topic_permissions(directory: Path, as_json: bool) -> None:
    """List the permissions of all users for routing keys."""
    found = change(directory, op="topic-permissions")["topic_permissions"]
    shown = ("user", "vhost", "exchange", "write", "read")
    print_table([{key: each[key] for key in shown} for each in found], as_json=as_json)


@command(
    "set-topic-permissions",
    "perftest broker set-topic-permissions bench amq.topic '^bench[.]' '.*'",
    "perftest broker set-topic-permissions bench amq.topic '^{username}[.]' '^{username}[.]'",
    "perftest broker set-topic-permissions bench amq.topic '' '' --vhost / --json",
)
@click.argument("user", metavar="USER")
@click.argument("exchange", metavar="EXCHANGE")
@click.argument("write", metavar="WRITE")
@click.argument("read", metavar="READ")
@_VHOST
def set_topic_permissions(directory: Path, as_json: bool, **permission: Any) -> None:
    """Set which routing keys a user may use with a topic exchange.

    WRITE and READ are regular expressions on the routing keys of publishes and of bindings. In them, {username} and
    {vhost} stand for the names of the user and of the virtual host.
    """
    answer = change(directory, op="set-topic-permissions", **permission)
    say(f"user {permission['user']} has these permissions at {permission['exchange']}", permission | answer, as_json)


@command("clear-topic-permissions", arguments=("bench", "bench amq.topic"))
@click.argument("user", metavar="USER")
@click.argument("exchange", metavar="[EXCHANGE]", required=False)
@_VHOST
def clear_topic_permissions(user: str, exchange: str | None, vhost: str, directory: Path, as_json: bool) -> None:
    """Let a user use all routing keys again, with an exchange or with all."""
    answer = change(directory, op="clear-topic-permissions", user=user, vhost=vhost, exchange=exchange)
    say(f"user {user} may use all routing keys", {"user": user, "exchange": exchange, **answer}, as_json)


COMMANDS = (
    users, add_user, delete_user, set_password, authenticate, set_user_tags, set_user_limits, vhosts, add_vhost,
    delete_vhost, set_vhost_limits, permissions,
    set_permissions, clear_permissions, topic_permissions, set_topic_permissions, clear_topic_permissions,
)  # fmt: skip
