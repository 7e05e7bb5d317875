"""``perftest doctor`` as it is typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from perftest.doctor import ceiling, host
from perftest.doctor.check import DoctorCheck

Call = Callable[..., tuple[int, str, str]]
QUICK = ("--time", "0.1", "--no-ceiling")


def test_every_check_is_a_line_and_a_record(call: Call, tmp_path: Path) -> None:
    """The same for people and for programs."""
    code, out, _ = call("doctor", "--dir", str(tmp_path), *QUICK)
    names = [line.split("  ", 1)[1].strip().partition(": ")[0] for line in out.splitlines()]
    assert code == 0
    assert names == ["clock", "timers", "processors", "descriptors", f"drive {tmp_path}", "loopback"]
    code, out, _ = call("doctor", "--dir", str(tmp_path), *QUICK, "--json")
    assert [check["check"] for check in json.loads(out)] == names
    assert {check["status"] for check in json.loads(out)} <= {"pass", "warn"}


def test_a_failed_check_is_an_exit_code(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A pipeline asks before it measures."""
    monkeypatch.setattr(host, "clock", lambda: DoctorCheck(name="clock", status="fail", text="it stands still"))
    code, out, _ = call("doctor", "--dir", str(tmp_path), *QUICK)
    assert code == 5
    assert out.startswith("FAIL  clock: it stands still")


@pytest.mark.parametrize(
    "flags, code, says",
    [
        (("-h", "amqp://127.0.0.1:1"), 1, "cannot connect to 127.0.0.1:1: Connection refused"),
        (("-h", "http://rabbit1"), 2, "amqp"),
        (("--dir", "/nowhere/at/all"), 2, "does not exist"),
        (("--time", "soon"), 2, "soon"),
    ],
)
def test_what_cannot_be_measured(call: Call, flags: tuple[str, ...], code: int, says: str) -> None:
    """An error for people; what was found before it has been printed."""
    found, _, err = call("doctor", *(flags if "--time" in flags else (*flags, "--time", "0.1")), "--no-ceiling")
    assert found == code
    assert says in err


def test_the_ceiling_is_measured_on_a_node_of_its_own(call: Call, tmp_path: Path) -> None:
    """Really: a process is started, loaded, and gone afterwards."""
    code, out, _ = call("doctor", "--dir", str(tmp_path), "--time", "0.5", "--json")
    found = {check["check"]: check["figures"] for check in json.loads(out)}
    assert code == 0
    assert {f"generator, {name}" for name in ceiling.LOADS} <= found.keys()
    bulk, single = (found[f"generator, {name}"]["us_per_message"] for name in ceiling.LOADS)
    assert 0 < bulk < single
