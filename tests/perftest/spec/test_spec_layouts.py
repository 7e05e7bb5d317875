"""Layout files: what is wrong with a file is told all at once, each with its line and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from perftest.spec.layout_file import load_layout, parse_layout
from perftest.spec.problem import SpecError

GOOD = """\
title: two drives
drives:
  disk: {directory: /var/lib/broker}
  fast: {mount: "/mnt/{node}"}
roles: {data: disk, logs: disk, segment: disk, wal: fast}
"""


def told(text: str) -> str:
    with pytest.raises(SpecError) as wrong:
        parse_layout(text, "drives.yaml")
    return wrong.value.lines()


def test_a_layout_places_each_role_on_a_drive() -> None:
    layout, _document = parse_layout(GOOD, "drives.yaml")
    assert layout.drives["disk"].directory == "/var/lib/broker" and layout.drives["fast"].mount == "/mnt/{node}"
    assert [layout.drive_of(role) for role in ("data", "wal", "classic")] == ["disk", "fast", "disk"]
    assert layout.io == "dedicated"


@pytest.mark.parametrize(
    ("io", "policy"), [("dedicated", "dedicated"), ("{pool: 1}", "pool:1"), ("{pool: 10}", "pool:10")]
)
def test_the_policy_is_that_of_a_node(io: str, policy: str) -> None:
    assert parse_layout(f"{GOOD}io: {io}\n", "drives.yaml")[0].io == policy


def test_a_modelled_drive_has_figures_with_units() -> None:
    text = GOOD.replace("{directory: /var/lib/broker}", "{figures: {latency: 1ms, octets_per_second: 250MB}}")
    figures = parse_layout(text, "drives.yaml")[0].drives["disk"].figures
    assert figures is not None and (figures.latency, figures.octets_per_second) == (0.001, 250_000_000)


@pytest.mark.parametrize(
    ("old", "new", "line", "rule", "fix"),
    [
        ("title: two", "titel: two", 1, "unknown key 'titel'", "did you mean 'title'?"),
        ("{directory: /var", "{directories: /var", 3, "unknown key 'directories'", "did you mean 'directory'?"),
        ("{directory: /var/lib/broker}", "{}", 3, "drive disk: nothing says what it is", "give exactly one of mount,"),
        ('{mount: "', '{profile: nvme, mount: "', 4, "drive fast: mount and profile are given", "give exactly one of"),
        (", wal: fast", "", 5, "the role wal has no drive", "add wal: disk"),
        ("wal: fast", "wal: slow", 5, "there is no drive 'slow'", "use one of: disk, fast"),
        ("wal: fast", "wal: disk", 4, "no role lies on drive fast", "place a role on it, or remove it"),
        ("roles:", "octets_per_second: 250MB\nroles:", 5,
         "what all drives reach together does not hold for drive disk, which is no modelled one", "or give the drive"),
        ("wal: fast", "wals: fast", 5, "'wals' is not one of", "did you mean 'wal'?"),
        ("roles:", "io: {pool: 0}\nroles:", 5, "{'pool': 0} is no I/O policy", "{pool: N} with N from 1 to 1024"),
        ("data: disk", "tape: disk", 5, "roles.tape: 'tape' is not one of", "write 'data'"),
        ("roles:", "io: {pool: 2, of: 3}\nroles:", 5, "is no I/O policy", "write dedicated"),
        ("{directory: /var/lib/broker}", "{figures: {latency: 1, octets_per_second: 0}}", 3,
         "a drive that writes nothing a second", "use 1 MB or more"),
        ("{directory: /var/lib/broker}", "{figures: {latency: soon, octets_per_second: 1MB}}", 3,
         "'soon'", "write"),
        ("{directory: /var/lib/broker}", "{figures: {latency: 1ms, octets_per_second: 1MB, seek_track: 2ms}}", 3,
         "the longest seek is shorter than the shortest", "use at least the time of seek_track"),
    ],
)  # fmt: skip
def test_each_problem_names_its_line_and_its_remedy(old: str, new: str, line: int, rule: str, fix: str) -> None:
    assert old in GOOD
    text = told(GOOD.replace(old, new))
    assert rule in text and fix in text and f"drives.yaml:{line}" in text


@pytest.mark.parametrize(
    ("disk", "refused"),
    [("{profile: nvme}", False), ("{fuse: {profile: st1-1t, size: 2GB}}", False), ("{directory: /x}", True)],
)
def test_the_bandwidth_of_all_drives_needs_modelled_ones(disk: str, refused: bool) -> None:
    """A real drive would not heed it, and the run was told to have it."""
    text = GOOD.replace("{directory: /var/lib/broker}", disk) + "octets_per_second: 250MB\n"
    if refused:
        assert "what all drives reach together does not hold for drive disk" in told(text)
    else:
        assert parse_layout(text, "drives.yaml")[0].octets_per_second == 250_000_000


def test_drives_of_nodes_and_fuse_drives_have_no_bandwidth_together() -> None:
    """The programs of FUSE drives and the nodes do not know of each other."""
    text = GOOD.replace("{directory: /var/lib/broker}", "{fuse: {profile: st1-1t, size: 2GB}}")
    text = text.replace("fast: {", "fast: {profile: nvme} #") + "octets_per_second: 250MB\n"
    assert "drives fast and disk have no bandwidth together" in told(text)


def test_all_problems_are_told_at_once() -> None:
    text = told(GOOD.replace("{directory: /var/lib/broker}", "{}").replace("wal: fast", "wal: slow"))
    assert text.count("error: ") == 3, "a drive that is nothing, a drive that does not exist, a drive without a role"


@pytest.mark.parametrize("text", ["", "7", "[]", "drives: {", "drives: {a: {directory: /a}}\ndrives: {}"])
def test_what_is_no_layout_is_said_to_be_none(text: str) -> None:
    assert told(text).startswith("error: ")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as wrong:
        load_layout(tmp_path / "none.yaml")
    assert "the layout file cannot be read" in wrong.value.lines() and "none.yaml" in wrong.value.lines()
