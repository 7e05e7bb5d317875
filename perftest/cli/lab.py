"""``perftest lab``: hosts on one machine, to try runs over hosts and faults of links."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import yaml

from perftest.cli.sections import (
    BANDWIDTH,
    COUNT,
    DURATION,
    SHARE,
    SectionedCommand,
    SummaryGroup,
    json_option,
    option,
    options,
)
from perftest.exits import CliError, Exit

if TYPE_CHECKING:
    from infra.lab.lab import Lab
    from infra.lab.switch import LabLinks, LinkState
    from infra.links.settings import LinkSettings

INVENTORY: Final = "hosts.yaml"
_OWN: Final = frozenset({INVENTORY, ".undo"})

_directory = option(
    "--dir", "directory", section="Target", type=click.Path(path_type=Path, file_okay=False), default=Path("lab"),
    help="Directory of the lab.",
)  # fmt: skip
# fmt: off
_link_options = options(
    option("--delay", section="Links", type=DURATION, default=None, metavar="TIME",
           help="How long each packet takes, one way, such as 5ms."),
    option("--loss", section="Links", type=SHARE, default=None, metavar="SHARE",
           help="Share of packets that are lost, such as 1%."),
    option("--bandwidth", section="Links", type=BANDWIDTH, default=None, metavar="RATE",
           help="The most that passes, such as 100mbit; 0: no limit."),
)
# fmt: on


@click.group(cls=SummaryGroup, context_settings={"help_option_names": ["--help", "-?"]})
def lab() -> None:
    """Make several hosts on this machine, with sshd and faulty links, to try runs over hosts (Linux, as root)."""


@lab.command(
    "up",
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR,),
    examples=(
        "perftest lab up",
        "perftest lab up --hosts 5 --brokers 3 --delay 250us --dir /tmp/lab",
        "perftest lab up --clock host5=5",
    ),
)
@_directory
@option("--hosts", section="Target", type=COUNT, default="5", help="Number of hosts.")
@option(
    "--brokers",
    section="Target",
    type=COUNT,
    default="3",
    help="So many of them, from host1 on, have the role broker; the others have the role load.",
)
@_link_options
@option(
    "--clock",
    "clocks",
    section="Target",
    metavar="HOST=SECONDS",
    multiple=True,
    help="Let the monotonic clock of a host be so many whole seconds ahead. Repeatable.",
)
@option("--seed", section="Links", type=COUNT, default="0", help="Seed of what the links lose.")
@json_option
def up(
    directory: Path, hosts: int, brokers: int, delay: float | None, loss: float | None, bandwidth: float | None,
    clocks: tuple[str, ...], seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Make a lab, and write its inventory, hosts.yaml, for `perftest remote`.

    Each host is a network namespace with processes, sshd, an address and a clock of its own. All hosts share the files
    and the cores of this machine, so the lab is for trying and for faults, not for figures. It stays until
    `perftest lab down`.
    """
    from infra.lab.lab import up as make

    if not 1 <= brokers < hosts:
        fix = "leave at least one host for the load"
        raise CliError(f"{brokers} of {hosts} hosts cannot be brokers", "--brokers", fix, Exit.USAGE)
    _refuse_foreign(directory)
    made = make(
        directory, hosts=hosts, defaults=_settings(delay, loss, bandwidth), clock_offsets_s=_clocks(clocks), seed=seed
    )
    path = directory / INVENTORY
    path.write_text(yaml.safe_dump(_inventory(made, brokers), sort_keys=False), encoding="utf-8")
    if as_json:
        found = {"inventory": str(path), "hosts": {host.name: host.address for host in made.hosts}}
        click.echo(json.dumps(found))
        return
    click.echo(f"{hosts} hosts, {brokers} of them for broker nodes: {path}")
    ssh = shlex.join(["ssh", "-F", str(made.directory / "ssh_config"), made.hosts[0].name])
    for command, what in (
        (f"perftest remote run {path} flow_control/in_flight --quick", "a workload over these hosts"),
        (f"perftest lab link host1 host2 --delay 5ms --dir {directory}", "make a link worse"),
        (ssh, "look around on a host"),
        (f"perftest lab down --dir {directory}", "end the lab"),
    ):
        click.echo(f"  {command}  # {what}")


@lab.command(
    "down",
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR,),
    examples=("perftest lab down", "perftest lab down --dir /tmp/lab", "perftest lab down --json"),
)
@_directory
@json_option
@click.pass_context
def down(ctx: click.Context, directory: Path, as_json: bool) -> None:
    """End a lab with all its processes, namespaces and files, also one whose maker crashed."""
    from infra.cleaning import CleanupOutcome
    from infra.lab.lab import down as end

    lines = end(directory)
    failed = [line for line in lines if line.outcome is CleanupOutcome.FAILED]
    if not failed:
        (directory / INVENTORY).unlink(missing_ok=True)
    if as_json:
        click.echo(json.dumps([{"kind": line.kind, "name": line.name, "outcome": line.outcome} for line in lines]))
    elif not lines:
        click.echo(f"there is no lab in {directory}")
    else:
        click.echo(f"ended: {len(lines) - len(failed)} things undone")
    for line in failed:
        click.echo(f"error: {line.text}\n  at  {line.name}\n  fix {line.fix}", err=True)
    ctx.exit(Exit.RUN_ERROR if failed else 0)


@lab.command(
    "show",
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR,),
    examples=("perftest lab show", "perftest lab show --dir /tmp/lab", "perftest lab show --json"),
)
@_directory
@json_option
def show(directory: Path, as_json: bool) -> None:
    """Show the links of a lab: their settings, and what has passed them."""
    from rich.console import Console
    from rich.table import Table

    links, addresses = _links(directory)
    states = links.show()
    if as_json:
        click.echo(json.dumps([_plain(each) for each in states]))
        return
    table = Table("from", "to", "link", "packets", "MB", "lost", box=None, header_style="bold")
    for each in states:
        source, target = (f"{name} {addresses.get(name, '')}".rstrip() for name in (each.source, each.target))
        passed = f"{each.packets:,}", f"{each.octets / 1e6:,.1f}", f"{each.lost:,}"
        table.add_row(source, target, _in_words(each.settings), *passed)
    Console(highlight=False).print(table)


@lab.command(
    "link",
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR,),
    examples=(
        "perftest lab link host1 host2 --delay 5ms",
        "perftest lab link host1 host4 --loss 1% --bandwidth 100mbit",
        "perftest lab link host1 host2 --cut --one-way",
    ),
)
@click.argument("one")
@click.argument("other")
@_directory
@_link_options
@option("--cut/--no-cut", section="Links", default=None, help="Let nothing pass, or let packets pass again.")
@option("--one-way", section="Links", is_flag=True, help="Change only what goes from ONE to OTHER.")
def link(
    one: str, other: str, directory: Path, delay: float | None, loss: float | None, bandwidth: float | None,
    cut: bool | None, one_way: bool,
) -> None:  # fmt: skip
    """Change the link between the hosts ONE and OTHER; `local` is this machine itself."""
    asked = {"delay_ms": None if delay is None else delay * 1e3, "loss": loss, "mbit": bandwidth, "cut": cut}
    changes = {name: value for name, value in asked.items() if value is not None}
    if not changes:
        raise CliError("no change is named", "--delay, --loss, --bandwidth, --cut", "name one", Exit.USAGE)
    links, _ = _links(directory)
    links.change([(one, other)] if one_way else [(one, other), (other, one)], changes)


@lab.command(
    "heal",
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR,),
    examples=("perftest lab heal", "perftest lab heal --dir /tmp/lab", "perftest lab heal --dir lab"),
)
@_directory
def heal(directory: Path) -> None:
    """Give all links the settings that they had when the lab was made."""
    _links(directory)[0].heal()


def _refuse_foreign(directory: Path) -> None:
    """A lab needs a directory of its own, because its end removes what is there. Raises CliError."""
    names = [each.name for each in directory.iterdir()] if directory.is_dir() else []
    if foreign := [name for name in names if name not in _OWN and not name.startswith("lab-")]:
        fix = "name a directory that is empty or does not exist"
        raise CliError(f"the directory holds something else: {foreign[0]}", f"--dir {directory}", fix, Exit.USAGE)


def _settings(delay: float | None, loss: float | None, bandwidth: float | None) -> LinkSettings:
    from infra.links.settings import LinkSettings

    changes = {"delay_ms": (delay or 0.0) * 1e3, "loss": loss or 0.0, "mbit": bandwidth or 0.0}
    return LinkSettings().changed(changes)


def _clocks(words: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for word in words:
        host, _, seconds = word.partition("=")
        try:
            found[host] = int(seconds)
        except ValueError:
            fix = "write HOST=SECONDS with whole seconds, such as host5=-3"
            raise CliError(f"{word!r} is no clock of a host", "--clock", fix, Exit.USAGE) from None
    return found


def _inventory(made: Lab, brokers: int) -> dict[str, Any]:
    """The inventory for ``perftest remote``. Paths are relative to the file."""
    place = made.directory.name
    first = made.hosts[0]
    return {
        "title": "a lab of hosts on one machine",
        "defaults": {
            "user": first.user, "key": f"{place}/user", "known_hosts": f"{place}/known_hosts", "lab": place,
            "python": first.python, "directory": str(made.directory / "{name}" / "home"),
        },
        "hosts": {
            host.name: {"address": host.address, "roles": ["broker" if number < brokers else "load"]}
            for number, host in enumerate(made.hosts)
        },
    }  # fmt: skip


def _links(directory: Path) -> tuple[LabLinks, dict[str, str]]:
    """The links of the lab, and the addresses of its hosts. Raises CliError if there is no lab."""
    from infra.lab import lab as labs
    from infra.lab.switch import LabLinks

    places = labs.places(directory)
    if not places:
        raise CliError("there is no lab here", f"--dir {directory}", "make one: perftest lab up", Exit.USAGE)
    return LabLinks(places[0]), labs.addresses(places[0])


def _plain(state: LinkState) -> dict[str, Any]:
    passed = {"packets": state.packets, "octets": state.octets, "lost": state.lost}
    return {"source": state.source, "target": state.target, **state.settings.plain(), **passed}


def _in_words(settings: LinkSettings) -> str:
    if settings.cut:
        return "cut"
    words = [
        f"{settings.delay_ms:g} ms" if settings.delay_ms else "",
        f"up to {settings.jitter_ms:g} ms more" if settings.jitter_ms else "",
        f"{settings.loss:.6g} lost" if settings.loss else "",
        f"{settings.mbit:g} mbit" if settings.mbit else "",
    ]
    return ", ".join(word for word in words if word) or "as it is"
