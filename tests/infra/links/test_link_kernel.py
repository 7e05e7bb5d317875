"""What Linux is told, command by command."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.links.kernel import Shaper, rules
from infra.links.settings import LinkSettings

PLAIN = LinkSettings()


def told(shaper: Shaper, **outgoing: LinkSettings) -> list[str]:
    return [" ".join(each) for each in shaper.commands({f"10.0.0.{name[1:]}": each for name, each in outgoing.items()})]


@pytest.mark.parametrize(
    ("incoming", "drops"),
    [
        ({}, []),
        ({"10.0.0.1": replace(PLAIN, cut=True)}, ["ip saddr 10.0.0.1 drop"]),
        ({"10.0.0.1": replace(PLAIN, loss=1.0)}, ["ip saddr 10.0.0.1 drop"]),
        ({"10.0.0.1": replace(PLAIN, loss=0.01)}, ["ip saddr 10.0.0.1 numgen random mod 1000000 < 10000 drop"]),
        ({"10.0.0.1": replace(PLAIN, mbit=1.0)}, []),
        (
            {"fd00::2": replace(PLAIN, cut=True), "10.0.0.1": replace(PLAIN, cut=True)},
            ["ip saddr 10.0.0.1 drop", "ip6 saddr fd00::2 drop"],
        ),
    ],
)
def test_rules_say_whose_packets_are_dropped(incoming: dict[str, LinkSettings], drops: list[str]) -> None:
    lines = [line.strip() for line in rules(incoming).splitlines()]
    assert lines[:2] == ["table inet perftest_links", "delete table inet perftest_links"]
    assert [line for line in lines if "saddr" in line] == drops
    assert (lines[2:3] == ["table inet perftest_links {"]) == bool(drops)


def test_a_device_is_touched_by_its_first_fault_and_given_back_after_the_last() -> None:
    shaper = Shaper("eth0")
    assert told(shaper, h1=replace(PLAIN, cut=True)) == []
    assert told(shaper, h1=replace(PLAIN, mbit=10.0)) == [
        "tc qdisc add dev eth0 root handle 7d0: htb default 1",
        "tc class add dev eth0 parent 7d0: classid 7d0:1 htb rate 100000000kbit quantum 60000",
        "tc class add dev eth0 parent 7d0: classid 7d0:2 htb rate 10000kbit quantum 60000",
        "tc filter add dev eth0 parent 7d0: protocol ip prio 1 u32 match ip dst 10.0.0.1/32 flowid 7d0:2",
    ]
    assert told(shaper, h1=replace(PLAIN, mbit=10.0)) == []
    assert told(shaper, h1=replace(PLAIN, mbit=20.0), h2=replace(PLAIN, delay_ms=5.0)) == [
        "tc class change dev eth0 parent 7d0: classid 7d0:2 htb rate 20000kbit quantum 60000",
        "tc class add dev eth0 parent 7d0: classid 7d0:3 htb rate 100000000kbit quantum 60000",
        "tc filter add dev eth0 parent 7d0: protocol ip prio 1 u32 match ip dst 10.0.0.2/32 flowid 7d0:3",
        "tc qdisc replace dev eth0 parent 7d0:3 netem delay 5000us limit 1000000",
    ]
    assert told(shaper, h1=replace(PLAIN, mbit=20.0)) == ["tc qdisc del dev eth0 parent 7d0:3"]
    assert told(shaper) == ["tc qdisc del dev eth0 root handle 7d0:"]
    assert told(shaper) == []
    assert told(shaper, h2=replace(PLAIN, mbit=1.0))[2].split()[8] == "7d0:2"


def test_addresses_of_ipv6_have_filters_of_their_own() -> None:
    commands = Shaper("eth0").commands({"fd00::1": replace(PLAIN, mbit=1.0)})
    assert "protocol ipv6 prio 2 u32 match ip6 dst fd00::1/128" in " ".join(commands[-1])
