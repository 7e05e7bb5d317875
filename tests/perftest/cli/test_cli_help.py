"""Help is the first thing anybody reads: quick, in sections, with examples that work."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from perftest.cli.main import COMMANDS, cli
from perftest.cli.sections import SectionedCommand

GOLDEN = Path(__file__).parent / "golden"
HELPS = {
    "perftest": [],
    "run": ["run"],
    "sweep": ["sweep"],
    "report": ["report"],
    "report-spark-archive": ["report", "spark-archive"],
    "compare": ["compare"],
    "export": ["export"],
    "history": ["history"],
    "import-results": ["import-results"],
    "query": ["query"],
    "runs": ["runs"],
    "runs-list": ["runs", "list"],
    "runs-read": ["runs", "read"],
    "doctor": ["doctor"],
    "search": ["search"],
    "reproduce": ["reproduce"],
    "simulate": ["simulate"],
    "broker": ["broker"],
    **{
        f"broker-{name}": ["broker", name]
        for name in (
            "start",
            "status",
            "stop",
            "clean",
            "kill",
            "pause",
            "resume",
            "metrics",
            "quorum-status",
            "add-member",
            "remove-member",
            "transfer-leader",
            "rebalance",
            "set-policy",
            "clear-policy",
            "policies",
            "users",
            "add-user",
            "delete-user",
            "set-password",
            "authenticate",
            "set-user-tags",
            "set-user-limits",
            "vhosts",
            "add-vhost",
            "delete-vhost",
            "set-vhost-limits",
            "permissions",
            "set-permissions",
            "clear-permissions",
            "topic-permissions",
            "set-topic-permissions",
            "clear-topic-permissions",
            "export-definitions",
            "import-definitions",
            "drive",
            "describe",
        )
    },
    "workload": ["workload"],
    "workload-list": ["workload", "list"],
    "workload-show": ["workload", "show"],
    "workload-validate": ["workload", "validate"],
    "workload-import": ["workload", "import"],
}
HEAVY = {"numpy", "pandas", "pyarrow", "pydantic", "rich", "yaml", "psutil", "hdrh", "pyspark", "asyncio", "plotly"}

Call = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("name", HELPS)
def test_help_is_as_reviewed(name: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """An option that appears, moves or loses its default is a change for every script: REWRITE=1, and review."""
    monkeypatch.setenv("COLUMNS", "100")
    code, out, _ = call(*HELPS[name], "--help")
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("REWRITE"):
        path.write_text(out)
    assert (code, out) == (0, path.read_text())


def test_a_question_mark_is_help_because_h_is_the_uri(call: Call) -> None:
    """-h is PerfTest's URI."""
    assert call("run", "-?")[1] == call("run", "--help")[1]


def test_help_imports_nothing_heavy() -> None:
    """`perftest --help` is typed often; numpy, pydantic or Spark would make it take seconds."""
    script = (
        "import sys\nfrom perftest.cli.main import call\ncode = call(sys.argv[1:])\n"
        f"print(sorted({HEAVY!r} & set(sys.modules)), code, file=sys.stderr)"
    )
    for arguments in (["--help"], ["run", "--help"], ["sweep", "-?"], ["broker", "start", "--help"]):
        done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
        assert done.stderr == "[] 0\n"


def commands() -> list[SectionedCommand]:
    """Every command that does something."""
    found: list[SectionedCommand] = []
    context = click.Context(cli)
    for name in (name for section in COMMANDS.values() for name in section):
        command = cli.get_command(context, name)
        children = command.commands.values() if isinstance(command, click.Group) else [command]
        found += [child for child in children if isinstance(child, SectionedCommand)]
    return found


@pytest.mark.parametrize("command", commands(), ids=lambda command: str(command.name))
def test_every_command_has_three_examples_that_parse(command: SectionedCommand) -> None:
    """An example that does not work is worse than none."""
    assert len(command.examples) == 3
    for example in command.examples:
        line = example.split("   ")[0].split(" > ")[0]
        words = shlex.split(line)[1:]
        context, other = click.Context(cli), cli.get_command(click.Context(cli), words.pop(0))
        if isinstance(other, click.Group):
            other = other.get_command(context, words.pop(0))
        assert isinstance(other, SectionedCommand)
        with other.make_context(str(other.name), words):
            pass


@pytest.mark.parametrize(
    ("words", "begun", "expected"),
    [
        (["compare", "--metric"], "e2e.p99", ["e2e.p99", "e2e.p99.9"]),
        (["compare", "--metric"], "p9", ["p99", "p99.9"]),
        (["history"], "del", ["delivered"]),
        (["run", "--slo"], "confirm.p99", ["confirm.p99", "confirm.p99.9", "confirm.p99.99"]),
        (["search", "--slo"], "dup", ["duplicates"]),
        (["sweep", "--until"], "broker", ["broker_cpu"]),
        ([], "com", ["compare"]),
    ],
)
def test_the_shell_completes_metrics(words: list[str], begun: str, expected: list[str]) -> None:
    """Nobody has to know by heart how a metric is spelled. A line of ``run`` may end in the middle."""
    found = ShellComplete(cli, {}, "perftest", "_PERFTEST_COMPLETE").get_completions(words, begun)
    assert [each.value for each in found] == expected


def test_a_process_that_completes_words_ends_well() -> None:
    """What `eval "$(_PERFTEST_COMPLETE=bash_source perftest)"` runs at each press of the key."""
    asked = {"_PERFTEST_COMPLETE": "bash_complete", "COMP_WORDS": "perftest compare --metric e2e.p9", "COMP_CWORD": "3"}
    command = [sys.executable, "-c", "from perftest.cli.main import main; main()"]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["plain,e2e.p99", "plain,e2e.p99.9"])


@pytest.mark.parametrize("module", ["perftest", "perftest.cli"])
def test_the_console_script_and_the_modules_are_one(module: str) -> None:
    """`python -m perftest` works where the script is not on the PATH."""
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "perftest, version 1.0.0\n")
