"""Clients that other people wrote, in programs that do what applications do (``clients/``).

Each program runs against the bundled broker, and against RabbitMQ, which shows that the program is right. A program
prints a line for each scenario that went well, and ends with an error at the first that did not.
``clients/install .cache/clients`` installs the clients.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from infra import rabbitmq_cluster

pytestmark = pytest.mark.clients

PROGRAMS = Path(__file__).parent / "clients"
INSTALLED = Path(os.environ.get("AMQP_CLIENTS") or PROGRAMS.parents[2] / ".cache" / "clients").absolute()
JARS = INSTALLED / "java" / "*"
PYTHON = str(INSTALLED / "python" / "bin" / "python")
TIMEOUT_S = 300

BROKERS = (
    pytest.param("bundled", marks=pytest.mark.processes),
    pytest.param(
        "rabbitmq",
        marks=(
            pytest.mark.rabbitmq,
            pytest.mark.skipif(not rabbitmq_cluster.is_installed(), reason="rabbitmq-server is not installed"),
        ),
    ),
)


class Program(NamedTuple):
    """A program in a client's language; its command gets the broker's URI as its last word."""

    language: str
    command: Sequence[str]
    environment: Mapping[str, str] = {}


def _python(name: str) -> Program:
    folder = PROGRAMS / "python"
    return Program("python", [PYTHON, str(folder / name)], {"PYTHONPATH": str(folder)})


CLIENTS = {
    "aio-pika": _python("with_aio_pika.py"),
    "py-amqp": _python("with_py_amqp.py"),
    "kombu": _python("with_kombu.py"),
    "celery": _python("with_celery.py"),
    "amqplib": Program(
        "node",
        ["node", str(PROGRAMS / "node" / "with_amqplib.js")],
        {"NODE_MODULES": str(INSTALLED / "node" / "node_modules")},
    ),
    "amqp091-go": Program("go", [str(INSTALLED / "go" / "with_amqp091_go")]),
    "java": Program(
        "java",
        ["java", "-cp", str(JARS), str(PROGRAMS / "java" / "WithJavaClient.java")],
    ),
}


def needs(language: str) -> None:
    if not (INSTALLED / language / ".installed").is_file():
        pytest.skip(f"the clients for {language} are not installed (tests/integration/clients/install .cache/clients)")


def run(command: Sequence[str], environment: Mapping[str, str], directory: Path) -> str:
    """The output of a program that went well; its directory is its own."""
    words = {**os.environ, **environment}
    ended = subprocess.run(
        command, env=words, cwd=directory, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@pytest.mark.parametrize("broker", BROKERS)
@pytest.mark.parametrize("name", CLIENTS)
def test_an_application_runs(name: str, broker: str, uri: str, tmp_path: Path) -> None:
    program = CLIENTS[name]
    needs(program.language)
    said = run([*program.command, uri], program.environment, tmp_path)
    assert re.search(r"^ok \w+$", said, re.MULTILINE), said


PERF_TESTS = {
    "default": [],
    "quorum, confirms": [
        "--quorum-queue",
        "--queue",
        "{name}",
        "--confirm",
        "100",
        "--qos",
        "50",
        "--multi-ack-every",
        "10",
    ],
    "several of each": ["-x", "2", "-y", "3", "--queue", "{name}", "--rate", "200"],
    "queues by pattern": [
        "--queue-pattern",
        "{name}-%d",
        "--queue-pattern-from",
        "1",
        "--queue-pattern-to",
        "3",
        "-x",
        "3",
        "-y",
        "3",
    ],
    "topic, persistent": [
        "--type",
        "topic",
        "-k",
        "a.b.c",
        "--flag",
        "persistent",
        "--flag",
        "mandatory",
        "--size",
        "1000",
    ],
}


@pytest.mark.parametrize("broker", BROKERS)
@pytest.mark.parametrize("name", PERF_TESTS)
def test_javas_perf_test_runs(name: str, broker: str, uri: str, tmp_path: Path) -> None:
    """The tool that people measure RabbitMQ with: it ends well, and has received what it sent."""
    needs("java")
    options = [word.format(name=f"perf-test {name}") for word in PERF_TESTS[name]]
    main = ["java", "-cp", str(JARS), "com.rabbitmq.perf.PerfTest"]
    said = run([*main, "--uri", uri, "--time", "3", "--id", "test", *options], {}, tmp_path)
    rates = [int(rate) for rate in re.findall(r"(?:sending|receiving) rate avg: (\d+) msg/s", said)]
    assert len(rates) == 2 and all(rates), said
