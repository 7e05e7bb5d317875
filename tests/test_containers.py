"""The container files: two images from this tree, and three nodes with a load host."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.ports import free_ports
from tests.test_docs import problem

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = ROOT.joinpath("Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(ROOT.joinpath("compose.yaml").read_text(encoding="utf-8"))


def instructions() -> list[tuple[str, str]]:
    """The instructions of the file with their arguments; a continued line is one line."""
    joined = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE))
    found = (line.partition(" ") for line in joined.splitlines() if line.strip())
    return [(name, arguments.strip()) for name, _, arguments in found]


def test_the_images_are_made_of_what_is_here() -> None:
    """A file that moved would break the build where nobody looks; and what the build may not see must not be copied."""
    seen = ROOT.joinpath(".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [
        source
        for name, arguments in instructions()
        if name == "COPY" and not arguments.startswith("--from")
        for source in arguments.split()[:-1]
    ]
    assert copied and all(ROOT.joinpath(source).exists() and f"!{source}" in seen for source in copied)
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert packages <= set(copied)


def test_there_are_two_targets_which_run_as_a_user() -> None:
    stages = [arguments.split(" AS ")[1] for name, arguments in instructions() if name == "FROM"]
    assert stages == ["wheel", "base", "all"]
    by_stage = DOCKERFILE.split("\nFROM ")[2:]
    assert [re.findall(r"^USER (\w+)", stage, re.MULTILINE)[-1] for stage in by_stage] == ["perftest"] * 2


def test_nodes_and_load_have_commands_that_parse() -> None:
    services = COMPOSE["services"]
    assert [name for name, service in services.items() if name.startswith("node")] == ["node1", "node2", "node3"]
    for service in services.values():
        assert service["build"]["target"] in ("base", "all")
        for word in service.get("command", ()):
            lines = re.findall(r"perftest [^;&']+", word.replace("$$NODE", "node1"))
            assert lines and not [found for line in lines if (found := problem(" ".join(shlex.split(line))))]
    volumes = {each.partition(":")[0] for service in services.values() for each in service["volumes"]}
    assert volumes - {"./runs"} == set(COMPOSE["volumes"])


@pytest.mark.slow
@pytest.mark.processes
def test_a_node_starts_by_the_lines_of_its_service(tmp_path: Path) -> None:
    """Without a container: the same lines, on loopback, with a directory in the place of each volume."""
    program = tmp_path / "bin" / "perftest"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m perftest "$@"\n')
    program.chmod(0o755)
    (tmp_path / "broker").mkdir()
    (port,) = free_ports(1)
    here = {
        "node1=node1 node2=node2 node3=node3 --bind 0.0.0.0": f"node1=127.0.0.1 --port {port}",
        **{f"/{name}": f"{tmp_path}/{name}" for name in ("description", "broker")},
        "$$": "$",
        "sleep infinity & wait": f"perftest broker status --dir {tmp_path}/broker --json; kill $$",
    }
    environment = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}", "NODE": "node1"}
    for name in ("description", "node1"):
        (line,) = COMPOSE["services"][name]["command"]
        for there, place in here.items():
            line = line.replace(there, place)
        done = subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert '"state": "running"' in done.stdout and "stopped" in done.stdout
