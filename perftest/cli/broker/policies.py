"""Policies, which are settings for all queues whose names match a pattern: set-policy, clear-policy, policies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from perftest.cli.broker.common import change, command, say, vhost_option
from perftest.cli.sections import option
from perftest.cli.ui.table import print_table

_OPERATOR = option("--operator", section="Target", is_flag=True, help="An operator's policy, which sets upper limits.")


class _Definition(click.ParamType[Any]):
    """A JSON object of settings."""

    name = "definition"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The JSON object. click reports a value that cannot be read."""
        try:
            plain = json.loads(value)
        except ValueError as error:
            self.fail(f"{value!r} is not JSON ({error}); write it as '{{\"max-length\": 1000}}'", param, ctx)
        if not isinstance(plain, dict):
            self.fail(f"{value!r} is not a JSON object; write it as '{{\"max-length\": 1000}}'", param, ctx)
        return plain


@command(
    "set-policy",
    """perftest broker set-policy short '^tmp[.]' '{"max-length": 1000}'""",
    """perftest broker set-policy dead '.*' '{"dead-letter-exchange": ""}' --priority 5""",
    """perftest broker set-policy lost '^orders' '{"alternate-exchange": "unroutable"}' --apply-to exchanges --json""",
)
@click.argument("name", metavar="NAME")
@click.argument("pattern", metavar="PATTERN")
@click.argument("definition", metavar="DEFINITION", type=_Definition())
@option(
    "--priority",
    section="Target",
    type=int,
    default=0,
    help="Priority of the policy. If several policies match a queue, the highest priority wins.",
)
@option(
    "--apply-to",
    section="Target",
    type=click.Choice(["queues", "exchanges", "all"]),
    default="all",
    help="What the policy is for. Of the settings, alternate-exchange is for exchanges, and all others for queues.",
)
@_OPERATOR
@vhost_option
def set_policy(operator: bool, directory: Path, as_json: bool, **policy: Any) -> None:
    """Set a policy for all queues and exchanges of a virtual host whose names match.

    PATTERN is a regular expression on names. DEFINITION is a JSON object of settings. With --operator the policy
    holds beside those of users and sets upper limits: of two limits the lower holds.
    """
    answer = change(directory, op="set-operator-policy" if operator else "set-policy", **policy)
    say(f"policy {policy['name']} is set", {**policy, **answer}, as_json)


@command("clear-policy", arguments=("short",))
@click.argument("name", metavar="NAME")
@_OPERATOR
@vhost_option
def clear_policy(name: str, operator: bool, vhost: str, directory: Path, as_json: bool) -> None:
    """Remove a policy. Its queues fall back to the next policy that matches them."""
    answer = change(directory, op="clear-operator-policy" if operator else "clear-policy", name=name, vhost=vhost)
    say(f"policy {name} is cleared", {"cleared": name, **answer}, as_json)


@command("policies")
@_OPERATOR
def policies(operator: bool, directory: Path, as_json: bool) -> None:
    """List the policies of a cluster, of users or with --operator of operators."""
    found = change(directory, op="operator-policies" if operator else "policies")["policies"]
    if not as_json:
        found = [
            {**policy, "definition": json.dumps(policy["definition"]), "no effect": ", ".join(policy["without_effect"])}
            for policy in found
        ]
    shown = (
        "vhost",
        "name",
        "pattern",
        "apply_to",
        "priority",
        "definition",
        "without_effect" if as_json else "no effect",
    )
    print_table([{key: policy[key] for key in shown} for policy in found], as_json=as_json)


COMMANDS = (set_policy, clear_policy, policies)
