"""Round trips from a host to nodes: the least of several tries, bounded in time, and what was not reached."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest

from infra.remote.round_trips import FAILURES, MODULE, TRIES, TRY_S, WHOLE_S, opened_ns, round_trips, shown


class Network:
    """A network with a clock of its own: each node answers after its times in turn, or fails with an error after as
    long as the caller waits."""

    def __init__(self, **answers: list[float | OSError]) -> None:
        self.now_s = 100.0
        self.tries: list[str] = []
        self._answers = answers

    def connect(self, address: str, _port: int, timeout_s: float) -> int:
        self.tries.append(address)
        answer = self._answers[address].pop(0)
        if isinstance(answer, OSError):
            self.now_s += 0 if isinstance(answer, ConnectionRefusedError) else timeout_s
            raise answer
        self.now_s += answer
        return round(answer * 1e9)

    def measure(self, *names: str) -> dict[str, dict[str, object]]:
        found = round_trips({name: (name, 5672) for name in names}, self.connect, lambda: self.now_s)
        return {str(row["node"]): row for row in found}


def test_the_least_of_several_tries_counts() -> None:
    network = Network(near=[0.003, 0.001, 0.002, 0.004, 0.002], far=[0.05] * TRIES)
    found = network.measure("near", "far")
    assert found["near"] == {"node": "near", "address": "near:5672", "round_trip_ns": 1_000_000, "tries": TRIES}
    assert found["far"]["round_trip_ns"] == 50_000_000
    assert network.tries[:4] == ["near", "far", "near", "far"], "the nodes take turns"


def test_a_node_that_fails_is_given_up_and_its_reason_told() -> None:
    refused = ConnectionRefusedError(111, "Connection refused")
    network = Network(near=[0.001] * TRIES, off=[refused] * TRIES)
    found = network.measure("off", "near")
    assert found["off"] == {
        "node": "off", "address": "off:5672", "round_trip_ns": None, "tries": 0, "reason": "Connection refused",
    }  # fmt: skip
    assert network.tries.count("off") == FAILURES and found["near"]["tries"] == TRIES


def test_a_try_that_fails_does_not_spoil_those_that_succeed() -> None:
    network = Network(lossy=[TimeoutError("timed out"), 0.002, 0.001, 0.003, 0.002])
    (row,) = network.measure("lossy").values()
    assert (row["round_trip_ns"], row["tries"], "reason" in row) == (1_000_000, TRIES - 1, False)


def test_nodes_that_answer_nothing_cost_a_bounded_time() -> None:
    names = [f"silent{number}" for number in range(20)]
    network = Network(**{name: [TimeoutError("timed out")] * TRIES for name in names})
    found = network.measure(*names)
    assert network.now_s == 100.0 + WHOLE_S
    reasons = [str(found[name]["reason"]) for name in names]
    tried = -(-int(WHOLE_S * 10) // int(TRY_S * 10))
    assert reasons == ["timed out"] * tried + [f"not tried within {WHOLE_S:g} s"] * (len(names) - tried)


def test_an_ipv6_address_is_one_word_with_its_port() -> None:
    assert (shown("::1", 5672), shown("rabbit1", 5672)) == ("[::1]:5672", "rabbit1:5672")


def test_an_address_that_nobody_has_is_an_error() -> None:
    with pytest.raises(OSError):
        opened_ns("nobody.invalid", 5672, 1.0)


def test_a_host_measures_real_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else can
        asked = {"up": listening.getsockname(), "down": bound.getsockname()}
        found = subprocess.run(
            [sys.executable, "-m", MODULE], input=json.dumps(asked) + "\n", capture_output=True, text=True, check=True
        )
    up, down = json.loads(found.stdout)
    assert up["round_trip_ns"] > 0 and up["tries"] == TRIES
    assert down["round_trip_ns"] is None and down["reason"] == "Connection refused"
