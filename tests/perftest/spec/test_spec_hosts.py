"""The inventory: what a file says of each host, and every problem of a file at once."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from perftest.spec.hosts import HostSpec, Jump, json_schema, load_hosts, parse_hosts
from perftest.spec.problem import SpecError


def hosts(text: str) -> dict[str, HostSpec]:
    return {host.name: host for host in parse_hosts(text, "lab/hosts.yaml")}


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as raised:
        parse_hosts(text, "hosts.yaml")
    return [f"{each.line}: {each.path}: {each.rule}" for each in raised.value.problems]


def test_what_is_said_of_a_host_counts_most() -> None:
    found = hosts("""
defaults: {user: bench, python: python3.12, known_hosts: known, storage: {wal: /wal, data: /data}}
groups:
  fast: {hosts: ["rabbit[1-2]"], storage: {wal: /nvme}, user: root, roles: [broker]}
hosts:
  rabbit[1-3]: {address: "10.0.0.{n}", roles: [broker], ports: {amqp: 5999}}
  load[08-10]: {workers: 2, near: [rabbit2], directory: "bench-{name}"}
  both: {roles: [load, broker], user: me, traffic_address: 10.9.9.9, consumes: false, publishes: ["", lazy]}
""")
    assert list(found) == ["rabbit1", "rabbit2", "rabbit3", "load08", "load09", "load10", "both"]
    assert found["rabbit2"].user == "root" and found["rabbit3"].user == "bench"
    assert dict(found["rabbit1"].storage) == {"wal": "/nvme", "data": "/data"}
    assert dict(found["rabbit3"].storage) == {"wal": "/wal", "data": "/data"}
    assert found["rabbit3"].address == found["rabbit3"].traffic_address == "10.0.0.3"
    assert dict(found["rabbit1"].ports) == {"amqp": 5999, "peer": 5772, "control": 5872}
    assert found["load09"].directory == "bench-load09" and found["load09"].address == "load09"
    assert found["load09"].is_load and not found["load09"].is_broker and found["load09"].near == ("rabbit2",)
    both = found["both"]
    assert (both.is_load, both.is_broker, both.user, both.traffic_address) == (True, True, "me", "10.9.9.9")
    assert (both.publishes, both.consumes) == (("", "lazy"), ())
    assert {host.known_hosts for host in found.values()} == {"lab/known"}


def test_a_host_may_be_reached_through_another() -> None:
    found = hosts("""
defaults: {jump: gate, user: bench}
jumps: {gate: {address: gate.example.org, key: /k}}
hosts:
  a: {}
  b: {jump: "me@other:2222"}
""")
    assert found["a"].jump == Jump(address="gate.example.org", user="bench", key="/k")
    assert found["b"].jump == Jump(address="other", user="me", port=2222)


def test_an_inventory_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text("hosts: {a: {key: id_ed25519}}")
    (host,) = load_hosts(path)
    assert host.key == str(tmp_path / "id_ed25519")
    with pytest.raises(SpecError, match="cannot be read"):
        load_hosts(tmp_path / "nothing.yaml")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("hosts: {}", ["1: hosts: "]),
        ("hosts: {a: {rolls: [load]}}", ["1: hosts.a.rolls: unknown key 'rolls'"]),
        ("hosts: {a: {password: x}}", ["1: hosts.a.password: 'password': an inventory holds no secrets"]),
        ("hosts: {'a;rm -rf /': {}}", ["1: hosts.a;rm -rf /: 'a;rm -rf /' is no name of a host"]),
        (
            "hosts: {a: {address: '-oProxyCommand=x'}}",
            ["1: hosts.a.address: hosts.a.address: '-oProxyCommand=x' cannot"],
        ),
        ('hosts: {a: {user: "x\\ny"}}', ["1: hosts.a.user: hosts.a.user: 'x\\ny' cannot be used here"]),
        ("hosts: {a: {jump: 'x y'}}", ["1: hosts.a.jump: 'x y' is no host to go through"]),
        ("hosts: {'a[1-9999]': {}}", ["1: hosts.a[1-9999]: the range 'a[1-9999]' has 9999 hosts"]),
        ("hosts: {'a[3-1]': {}}", ["1: hosts.a[3-1]: the range 'a[3-1]' has -1 hosts"]),
        ("hosts: {'a[1-3]': {}, a2: {}}", ["1: hosts.a2: host a2 is named twice"]),
        ("groups: {g: {hosts: [b]}}\nhosts: {a: {}}", ["1: groups.g.hosts[0]: there is no host 'b'"]),
        ("hosts: {a: {roles: [broker]}}", ["1: hosts: no host has the role load"]),
        ("hosts: {a: {consumes: false}}", ["1: hosts: no host consumes"]),
        ("hosts: {a: {near: [b]}}", ["1: hosts.a.near: a is near 'b', which is no broker host"]),
        (
            "hosts:\n  a: {address: x}\n  b: {address: x}",
            ["3: hosts.b: b and a are one place: x, directory .perftest"],
        ),
        (
            "defaults: {roles: [load, broker], address: x, directory: '{name}'}\n"
            "hosts:\n  a: {}\n  b: {ports: {peer: 1}}",
            [
                "4: hosts.b.ports: b and a would both listen at x:5672 (amqp)",
                "4: hosts.b.ports: b and a would both listen at x:5872 (control)",
            ],
        ),
        (
            "hosts: {a: {roles: [load, broker], ports: {amqp: 9, peer: 9}}}",
            ["1: hosts.a.ports: two ports of a are the"],
        ),
        (
            "hosts: {a: {layout: l.yaml, storage: {wal: /w}, port: 0}}",
            ["1: hosts.a.port: "],
        ),
        ("hosts: {a: {storage: {wal: w}}}", ["1: hosts.a.storage.wal: the directory 'w' of a is not absolute"]),
        ("hosts: {a: {layout: l.yaml, storage: {wal: /w}}}", ["1: hosts.a: a has a layout and storage"]),
    ],
)
def test_problems(text: str, wanted: list[str]) -> None:
    found = problems(text)
    assert len(found) == len(wanted), found
    for line, begin in zip(found, wanted, strict=True):
        assert line.startswith(begin), line


def test_a_secret_is_never_told_again() -> None:
    with pytest.raises(SpecError) as raised:
        parse_hosts("hosts: {a: {passphrase: s3cr3t}}", "hosts.yaml")
    assert "s3cr3t" not in raised.value.lines()


def test_the_example_is_an_inventory_and_the_schema_knows_its_keys() -> None:
    text = resources.files("perftest.spec").joinpath("hosts.example.yaml").read_text()
    found = parse_hosts(text, "hosts.example.yaml")
    assert sum(host.is_broker for host in found) == 3 and sum(host.is_load for host in found) == 20
    assert found[3].publishes is None and found[-1].publishes == ()
    schema = json_schema()
    parts: Any = schema["$defs"]
    assert parts["HostKeys"]["additionalProperties"] is False
    for said in yaml.safe_load(text)["hosts"].values():
        assert set(said) <= set(parts["HostKeys"]["properties"])
    assert set(yaml.safe_load(text)) <= set(schema["properties"])  # type: ignore[call-overload]
