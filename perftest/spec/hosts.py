"""The inventory: the hosts that take part in a run, and how each of them is reached (``hosts.yaml``). Pure.

::

    defaults: {user: bench, known_hosts: lab_known_hosts}
    groups:
      fast: {hosts: [rabbit1, rabbit2], storage: {wal: /mnt/nvme/wal}}
    hosts:
      rabbit[1-3]: {roles: [broker], address: "10.0.0.{n}"}
      load[01-20]: {roles: [load]}

A host's own values take precedence over its groups' values, and these over the defaults. A name with a range stands for
several hosts; ``{n}`` in its values is their number. There are no passwords: keys, or the agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from perftest.spec.fields import Count
from perftest.spec.keys import Model
from perftest.spec.load import Document, problem_of, read_yaml, text_of
from perftest.spec.problem import Location, Problem, SpecError

HOSTS_MAX: Final = 1000
"""Number of hosts above that of any range."""
PORTS: Final = {"amqp": 5672, "peer": 5772, "control": 5872}
"""The ports of a broker node, where the inventory names no others."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,62}")
_RANGE: Final = re.compile(r"([A-Za-z0-9.-]*)\[(\d{1,6})-(\d{1,6})\]([A-Za-z0-9.-]*)")
_JUMP: Final = re.compile(
    r"(?:(?P<user>[^@\s:-][^@\s:]*)@)?(?P<address>[A-Za-z0-9][A-Za-z0-9.-]*)(?::(?P<port>\d{1,5}))?"
)
_HIDDEN: Final = ("password", "passphrase", "passwd", "secret")

Role = Literal["load", "broker"]
_Port = Annotated[int, Field(ge=1, le=65535)]
_Groups = Annotated[
    bool | list[str], Field(description="true: all groups of load; false: none; or the names of some, '' the measured")
]


def _one_line(value: object) -> object:
    """Words that reach other programs: no line breaks, nothing that begins like an option."""
    if isinstance(value, str) and (not value.strip() or value.startswith("-") or not value.isprintable()):
        context = {"fix": "write a plain word, without line breaks and without a dash at its beginning"}
        raise PydanticCustomError("quantity", "{rule}", context | {"rule": f"{value!r} cannot be used here"})
    return value


_Word = Annotated[str, BeforeValidator(_one_line)]


class Ports(Model):
    """The ports of a broker node."""

    amqp: _Port | None = None
    peer: _Port | None = None
    control: _Port | None = None


class HostKeys(Model):
    """What can be said of a host, of a group of hosts, or of all hosts."""

    roles: Annotated[list[Role] | None, Field(min_length=1, description="what the host does in a run")] = None
    address: Annotated[_Word | None, Field(description="where its sshd listens; its name, if left out")] = None
    port: Annotated[_Port | None, Field(description="of sshd")] = None
    user: _Word | None = None
    key: Annotated[_Word | None, Field(description="file of a private key; left out: agent and ~/.ssh/config")] = None
    jump: Annotated[_Word | None, Field(description="host to go through: user@address:port, or a name of jumps")] = None
    known_hosts: Annotated[_Word | None, Field(description="file of host keys; left out: the user's")] = None
    python: Annotated[_Word | None, Field(description="its Python, 3.11 or newer")] = None
    directory: Annotated[_Word | None, Field(description="for all that is put there; relative to the home")] = None
    traffic_address: Annotated[_Word | None, Field(description="for load and node links; left out: the address")] = None
    ports: Ports | None = None
    layout: Annotated[_Word | None, Field(description="layout file of its drives")] = None
    storage: Annotated[
        dict[Literal["data", "logs", "segment", "wal", "classic"], _Word] | None,
        Field(description="directory of each kind of files of a broker node"),
    ] = None
    workers: Annotated[Count | None, Field(description="generator processes; left out: chosen by load and cores")] = (
        None
    )
    publishes: _Groups | None = None
    consumes: _Groups | None = None
    near: Annotated[list[_Word] | None, Field(description="broker hosts that its clients connect to first")] = None
    lab: Annotated[_Word | None, Field(description="directory of the lab (perftest lab up) that the host is in")] = None


class GroupKeys(HostKeys):
    """What is said of several hosts at once."""

    hosts: Annotated[list[str], Field(min_length=1)]


class Inventory(Model):
    """The content of ``hosts.yaml``."""

    title: str = ""
    defaults: HostKeys = HostKeys()
    groups: dict[str, GroupKeys] = Field(default_factory=dict)
    jumps: dict[str, HostKeys] = Field(default_factory=dict, description="hosts that others are reached through")
    hosts: Annotated[dict[str, HostKeys], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """A host on the way to another one."""

    address: str
    port: int | None = None
    user: str | None = None
    key: str | None = None
    known_hosts: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """A host with everything that is said of it. None stands for what ``~/.ssh/config`` or a default decides.

    ``publishes`` and ``consumes`` are as in :class:`~perftest.spec.load_hosts.LoadHost`.
    """

    name: str
    roles: frozenset[str]
    address: str
    port: int | None = None
    user: str | None = None
    key: str | None = None
    jump: Jump | None = None
    known_hosts: str | None = None
    python: str = "python3"
    directory: str = ".perftest"
    traffic_address: str
    ports: Mapping[str, int] = field(default_factory=lambda: dict(PORTS))
    layout: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict)
    workers: int = 0
    publishes: tuple[str, ...] | None = None
    consumes: tuple[str, ...] | None = None
    near: tuple[str, ...] = ()
    lab: str | None = None

    @property
    def is_load(self) -> bool:
        """Whether load is generated there."""
        return "load" in self.roles

    @property
    def is_broker(self) -> bool:
        """Whether a broker node is there."""
        return "broker" in self.roles


def json_schema() -> dict[str, object]:
    """The JSON schema of an inventory, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Inventory.model_json_schema()}


def load_hosts(path: Path) -> tuple[HostSpec, ...]:
    """Read an inventory. Paths in it are relative to its directory. Raises SpecError with all problems of the file."""
    fix = "give the path of a file that names the hosts (hosts.yaml)"
    return parse_hosts(text_of(path, "inventory", fix), str(path))


def parse_hosts(text: str, file: str) -> tuple[HostSpec, ...]:
    """:func:`load_hosts` for text that was read already."""
    document = read_yaml(text, file, what="an inventory", begin="hosts: {rabbit1: {roles: [broker]}}")
    if problems := list(_secrets(document)):
        raise SpecError(problems)
    try:
        inventory = Inventory.model_validate(document.data)
    except ValidationError as error:
        raise SpecError([problem_of(document, detail, Inventory) for detail in error.errors()]) from error
    broken = (*_broken_names(inventory), *_broken_jumps(inventory))
    if problems := [document.problem(*each) for each in broken]:
        raise SpecError(problems)
    hosts = tuple(_resolved(inventory, Path(file).parent))
    if problems := [document.problem(*each) for each in _broken_relations(inventory, hosts)]:
        raise SpecError(problems)
    return hosts


def _secrets(document: Document) -> Iterator[Problem]:
    """Keys that would hold a secret: the file is copied, mailed and committed."""
    for place in document.lines:
        if place and str(place[-1]).lower() in _HIDDEN:
            rule = f"{place[-1]!r}: an inventory holds no secrets"
            fix = "remove it; use a key file that only you can read (key: …), or the agent (ssh-add)"
            yield document.problem(place, rule, fix, "***")


# Names


def expanded(name: str) -> list[tuple[str, str]]:
    """The hosts that a name of the inventory stands for, with the number of each: ``load[08-10]`` are load08, load09
    and load10. A name without a range has an empty number."""
    match = _RANGE.fullmatch(name)
    if match is None:
        return [(name, "")]
    before, first, last, behind = match.groups()
    numbers = (f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))
    return [(f"{before}{number}{behind}", number) for number in numbers]


def _size(name: str) -> int:
    match = _RANGE.fullmatch(name)
    return int(match[3]) - int(match[2]) + 1 if match else 1


def _broken_names(inventory: Inventory) -> Iterator[tuple[Location, str, str, Any]]:
    """Names that cannot be names of hosts, and names of no host."""
    named: dict[str, str] = {}
    for name in inventory.hosts:
        place: Location = ("hosts", name)
        if not 1 <= _size(name) <= HOSTS_MAX:
            yield (
                place,
                f"the range {name!r} has {_size(name)} hosts",
                f"use 1 to {HOSTS_MAX}, such as load[01-20]",
                name,
            )
            continue
        for host, _number in expanded(name):
            if not _NAME.fullmatch(host):
                rule = f"{host!r} is no name of a host"
                yield place, rule, "use letters, digits, dots and dashes, such as load1 or load[01-20]", name
                break
            if host in named:
                yield place, f"host {host} is named twice", f"remove it here, or from {named[host]!r}", name
                break
            named[host] = name
    for group, keys in inventory.groups.items():
        for index, name in enumerate(keys.hosts):
            for host, _number in expanded(name) if _size(name) <= HOSTS_MAX else ():
                if host not in named:
                    place = ("groups", group, "hosts", index)
                    yield place, f"there is no host {host!r}", f"use names of hosts: {_some(named)}", name
                    break


def _broken_jumps(inventory: Inventory) -> Iterator[tuple[Location, str, str, Any]]:
    """Ways over hosts that cannot be read."""
    said: list[tuple[Location, HostKeys]] = [(("defaults",), inventory.defaults)]
    said += [(("groups", name), keys) for name, keys in inventory.groups.items()]
    said += [(("hosts", name), keys) for name, keys in inventory.hosts.items()]
    for place, keys in said:
        if keys.jump is not None and keys.jump not in inventory.jumps and not _JUMP.fullmatch(keys.jump):
            fix = f"write user@address:port, or a name of jumps ({_some(inventory.jumps) or 'there are none'})"
            yield (*place, "jump"), f"{keys.jump!r} is no host to go through", fix, keys.jump


def _some(names: Mapping[str, object]) -> str:
    shown = list(names)[:8]
    return ", ".join(shown) + (", …" if len(names) > len(shown) else "")


# Hosts


def _resolved(inventory: Inventory, directory: Path) -> Iterator[HostSpec]:
    for name, keys in inventory.hosts.items():
        for host, number in expanded(name):
            said = _said(inventory, host, keys)
            yield _host(inventory, host, _with_number(said, number, host), directory)


def _said(inventory: Inventory, host: str, keys: HostKeys) -> dict[str, Any]:
    """Everything that is said of a host, the most particular last. Storage and ports are merged key by key."""
    said: dict[str, Any] = {}
    groups = [
        group
        for group in inventory.groups.values()
        if any(host == member for name in group.hosts for member, _ in expanded(name))
    ]
    for each in (inventory.defaults, *groups, keys):
        plain = each.model_dump(exclude_none=True, exclude={"hosts"})
        for key, value in plain.items():
            said[key] = {**said.get(key, {}), **value} if isinstance(value, dict) else value
    return said


def _with_number(said: dict[str, Any], number: str, name: str) -> dict[str, Any]:
    """Values with ``{n}`` replaced by the host's number, and ``{name}`` by its name."""

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return (value.replace("{n}", number) if number else value).replace("{name}", name)
        if isinstance(value, dict):
            return {key: filled(each) for key, each in value.items()}
        return [filled(each) for each in value] if isinstance(value, list) else value

    return {key: filled(value) for key, value in said.items()}


def _host(inventory: Inventory, name: str, said: dict[str, Any], directory: Path) -> HostSpec:
    address = said.get("address", name)
    plain: dict[str, Any] = {
        key: said[key] for key in ("port", "user", "python", "directory", "storage", "workers") if key in said
    }
    plain |= {key: _beside(directory, said[key]) for key in ("key", "known_hosts", "layout", "lab") if key in said}
    plain |= {key: groups for key in ("publishes", "consumes") if (groups := _groups(said.get(key))) is not None}
    return HostSpec(
        name=name,
        roles=frozenset(said.get("roles", ["load"])),
        address=address,
        traffic_address=said.get("traffic_address", address),
        jump=_jump(inventory, said["jump"], directory) if "jump" in said else None,
        ports=PORTS | said.get("ports", {}),
        near=tuple(said.get("near", ())),
        **plain,
    )


def _beside(directory: Path, path: str) -> str:
    """A path of the inventory; relative ones are relative to the inventory."""
    return str(directory / Path(path).expanduser())


def _groups(value: bool | list[str] | None) -> tuple[str, ...] | None:
    if value is None or value is True:
        return None
    return () if value is False else tuple(value)


def _jump(inventory: Inventory, text: str, directory: Path) -> Jump:
    if text in inventory.jumps:
        said = inventory.defaults.model_dump(exclude_none=True, include={"user", "key", "known_hosts"})
        said |= inventory.jumps[text].model_dump(
            exclude_none=True, include={"address", "port", "user", "key", "known_hosts"}
        )
        said |= {key: _beside(directory, said[key]) for key in ("key", "known_hosts") if key in said}
        return Jump(**{"address": text, **said})
    match = _JUMP.fullmatch(text)
    assert match is not None, "broken relations are found before"
    return Jump(address=match["address"], port=int(match["port"]) if match["port"] else None, user=match["user"])


# Relations


def _broken_relations(inventory: Inventory, hosts: tuple[HostSpec, ...]) -> Iterator[tuple[Location, str, str, Any]]:
    entries = {host: name for name in inventory.hosts for host, _ in expanded(name)}
    brokers = [host.name for host in hosts if host.is_broker]
    load = [host for host in hosts if host.is_load]
    if not load:
        yield ("hosts",), "no host has the role load", "write roles: [load] for the hosts of the generator", None
    for key in ("publishes", "consumes"):
        if load and all(getattr(host, key) == () for host in load):
            yield ("hosts",), f"no host {key}", f"leave out {key}: false on at least one host with the role load", None
    for host in hosts:
        place: Location = ("hosts", entries[host.name])
        for other in host.near:
            if other not in brokers:
                fix = f"use hosts with the role broker: {', '.join(brokers) or 'there are none'}"
                yield (*place, "near"), f"{host.name} is near {other!r}, which is no broker host", fix, other
        if host.is_broker and len(set(host.ports.values())) < len(host.ports):
            yield (*place, "ports"), f"two ports of {host.name} are the same", "use three ports", dict(host.ports)
        for role, path in host.storage.items():
            if not path.startswith("/"):
                rule = f"the directory {path!r} of {host.name} is not absolute"
                yield (*place, "storage", role), rule, "write the whole path, such as /mnt/nvme/wal", path
        if host.lab != hosts[0].lab:
            rule = f"{host.name} and {hosts[0].name} are not in the same lab"
            yield place, rule, "write the lab under defaults: all hosts of a run are in one, or none is", host.lab
        if host.layout and host.storage:
            rule = f"{host.name} has a layout and storage"
            yield place, rule, "use one of them: layout names drives, storage only directories", None
    yield from _collisions(hosts, entries)


def _collisions(hosts: tuple[HostSpec, ...], entries: Mapping[str, str]) -> Iterator[tuple[Location, str, str, Any]]:
    """Hosts that would get in each other's way."""
    seen: dict[tuple[str, int | None, str], str] = {}
    listening: dict[tuple[str, int], str] = {}
    for host in hosts:
        place: Location = ("hosts", entries[host.name])
        sshd = host.address, host.port, host.directory
        if sshd in seen:
            rule = f"{host.name} and {seen[sshd]} are one place: {host.address}, directory {host.directory}"
            yield place, rule, "give each host an address or a directory of its own (directory: perftest-{name})", None
        seen.setdefault(sshd, host.name)
        for role, port in host.ports.items() if host.is_broker else ():
            at = host.traffic_address, port
            if listening.get(at, host.name) != host.name:
                rule = f"{host.name} and {listening[at]} would both listen at {at[0]}:{port} ({role})"
                yield (*place, "ports"), rule, "give one of them other ports", port
            listening.setdefault(at, host.name)
