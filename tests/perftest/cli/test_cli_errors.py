"""Errors are three lines and a stable exit code: never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]


def three_lines(text: str) -> tuple[str, str, str]:
    """The parts of the one error in a text."""
    what, where, fix = text.rstrip("\n").split("\n")[-3:]
    assert what.startswith("error: ") and where.startswith("  at   ") and fix.startswith("  fix  ")
    return what[7:], where[7:], fix[7:]


@pytest.mark.parametrize(
    ("arguments", "what", "fix"),
    [
        (["rnu"], "no such command 'rnu'", "did you mean `perftest run`?"),
        (["broker", "strat"], "no such command 'strat'", "did you mean `perftest broker start`?"),
        (["workload", "xyzzy"], "no such command 'xyzzy'", "see `perftest workload --help`"),
        (["-x", "1", "-y", "2", "-u", "q 1"], "options of `perftest run`", "write `perftest run -x 1 -y 2 -u 'q 1'`"),
        (["--uri=amqp://me:secret@h"], "options of `perftest run`", "perftest run '--uri=amqp://me:***@h'"),
        (["-h"], "-h is an option of `perftest run`", "perftest --help"),
        (["--no-such"], "no such option", "perftest --help"),
        (["run", "-h"], "-h needs a value", "write -h URI, or --help for help"),
        (["sweep", "--repeat", "2"], "no such option", "did you mean --repeats?"),
        (["run", "--no-such"], "no such option: --no-such", "perftest run --help"),
        (["run", "--producer", "2", "-z", "1"], "--producer is short for several options", "--producers or"),
        (["run", "--pruducers", "2"], "no such option: --pruducers", "did you mean --producers?"),
        (["run", "-sq", "-z", "1"], "-sq: streams are not measured", "use -qq"),
        (["run", "-z", "5 parsecs"], "unknown unit 'parsecs'", "use one of"),
        (["run", "-A", "50", "-q", "10"], "-A (50) is larger than -q (10)", "lower -A to 10"),
        (["run", "-h", "rabbit1"], "not a usable AMQP URI: the scheme is 'missing'", "write -h amqp://rabbit1"),
        (["run", "-h", "localhost:5691"], "the scheme is 'localhost'", "write -h amqp://localhost:5691"),
        (["run", "-h", "me:secret@h/v"], "not a usable AMQP URI", "write -h amqp://me:***@h/v"),
        (["run", "-h", "http://h:15672/"], "the scheme is 'http'", "write -h amqp://h"),
        (["run", "-h", "ampq://h"], "the scheme is 'ampq'", "write -h amqp://h"),
        (["run", "-H", "amqps://a:1,b:2"], "the scheme is 'b'", "write -H amqps://a:1,amqps://b:2"),
        (["sweep", "flow_control/prefetch", "-h", "h:5691"], "the scheme is 'h'", "write -h amqp://h:5691"),
        (["run", "-h", "ftp://h"], "the scheme is 'ftp'", "amqp://user:password@host"),
        (["run", "-h", "amqp://h:99999"], "the port must be a number from 1 to 65535", "amqp://user:password@host"),
        (["run", "-h", "amqp://h", "--cluster", "c"], "both a cluster and a URI are named", "name one"),
        (
            ["sweep", "flow_control/prefetch", "-h", "amqp://h", "--cluster", "c"],
            "both a cluster and a URI",
            "name one",
        ),
        (["run", "-i", "0"], "an interval of 0s is out of range", "100ms to 1m"),
        (["run", "-q", "70000"], "-q 70000 is above 65535", "0 for no limit"),
        (["run", "-u", "a,a"], "two queues are named 'a'", "own name"),
        (["sweep"], "there is nothing to sweep", "name a workload"),
        (["sweep", "flow_control/inflight"], "there is no workload", "did you mean 'flow_control/in_flight'?"),
        (["sweep", "flow_control/in_flight", "--set", "load.prefech=1"], "unknown key 'prefech'", "'prefetch'"),
        (["sweep", "no.yaml"], "cannot be read: No such file", "workload list"),
        (["broker", "start", "--nodes", "2"], "'2' is not one of '1', '3', '5'", "broker start --help"),
    ],
)
def test_usage_errors_exit_2(call: Call, arguments: list[str], what: str, fix: str) -> None:
    """A script can tell a wrong command line from a failed run."""
    code, out, err = call(*arguments)
    got_what, where, got_fix = three_lines(err)
    assert (code, out) == (2, "")
    assert what in got_what and fix in got_fix and where


def test_a_directory_that_is_no_run_exits_1_before_a_jvm_starts(call: Call, tmp_path: Path) -> None:
    """Nobody waits for Spark to learn of a typing error."""
    code, _, err = call("report", str(tmp_path))
    what, where, _ = three_lines(err)
    assert code == 1 and "there is no run in it" in what and where == str(tmp_path)


def test_no_cluster_exits_1(call: Call, tmp_path: Path) -> None:
    """Status and stop say where they looked."""
    for command in ("status", "stop"):
        code, _, err = call("broker", command, "--dir", str(tmp_path))
        assert code == 1 and three_lines(err)[1] == str(tmp_path)


def test_a_cluster_that_was_stopped_exits_1(call: Call, tmp_path: Path) -> None:
    """Its data is there, its nodes are not: start it again, rather than look for the port that is closed."""
    node = dict.fromkeys(("name", "data_dir", "log_file"), "x") | dict.fromkeys(("amqp_port", "peer_port"), 1)
    state = {
        "version": 1,
        "cluster": "c",
        "directory": str(tmp_path),
        "nodes": [{**node, "node": 1, "control_port": 1}],
    }
    (tmp_path / "cluster.json").write_text(json.dumps(state))
    code, _, err = call("run", "--cluster", str(tmp_path), "-z", "1", "--out", str(tmp_path / "runs"))
    what, where, fix = three_lines(err)
    assert (code, what, where) == (1, "this cluster is not running", str(tmp_path))
    assert f"perftest broker start --dir {tmp_path}" in fix and not (tmp_path / "runs").exists()


def test_a_bug_is_three_lines_too(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even then the user learns where it was and what to send us."""
    import workloads

    monkeypatch.setattr(workloads, "names", lambda: 1 / 0)
    code, _, err = call("workload", "list")
    what, where, fix = three_lines(err)
    assert code == 1 and "ZeroDivisionError" in what and "PERFTEST_DEBUG=1" in fix and ".py:" in where
    assert "Traceback" not in err


def test_debug_shows_the_traceback_of_a_bug(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who look for the bug need it."""
    import workloads

    monkeypatch.setenv("PERFTEST_DEBUG", "1")
    monkeypatch.setattr(workloads, "names", lambda: 1 / 0)
    assert "Traceback" in call("workload", "list")[2]


def test_a_reader_that_leaves_early_is_no_error() -> None:
    """perftest workload show … | head"""
    command = [sys.executable, "-m", "perftest.cli", "sweep", "flow_control/in_flight", "--dry-run"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait() == 0


def test_validate_tells_all_problems_and_exits_2(call: Call, tmp_path: Path) -> None:
    """One round of corrections, not one per problem."""
    path = tmp_path / "bad.yaml"
    path.write_text(
        "schema: 1\nname: bad\ntitle: t\nqueues: [{name: q}]\nstep: {duraton: 4s, warmup: 1s}\nload: {prefech: 1}\n"
    )
    code, out, err = call("workload", "validate", str(path))
    assert code == 2 and out == "" and err.count("error: ") == 3
    assert f"{path}:5: step.duraton" in err and "did you mean 'duration'?" in err
    code, out, _ = call("workload", "validate", str(path), "--json")
    problems = json.loads(out)[0]["problems"]
    assert code == 2 and {item["path"] for item in problems} == {"step.duration", "step.duraton", "load.prefech"}


def test_validate_accepts_the_bundled_ones(call: Call) -> None:
    """They are the examples."""
    code, out, err = call("workload", "validate", "flow_control/in_flight", "flow_control/prefetch")
    assert (code, err) == (0, "") and out.count(": ok\n") == 2


def test_list_and_show_in_both_forms(call: Call) -> None:
    """A table for people, JSON for scripts."""
    assert "flow_control/in_flight" in call("workload", "list")[1]
    rows = json.loads(call("workload", "list", "--json")[1])
    assert [row["values"] for row in rows if row["name"] == "flow_control/prefetch"] == [[1, 10, 100, 1000, 10000]]
    assert call("workload", "show", "flow_control/prefetch")[1].startswith("# yaml-language-server")
    shown = json.loads(call("workload", "show", "flow_control/prefetch", "--json")[1])
    assert shown["schema"] == 1 and shown["step"]["duration"] == 300.0


def test_dry_run_shows_steps_and_time(call: Call) -> None:
    """Half an hour is known before it is spent."""
    out = call("sweep", "flow_control/in_flight", "--dry-run")[1]
    assert "in_flight=10000" in out and "6 steps, live: 30m, and up to 30s of draining" in out
    plain = json.loads(call("sweep", "flow_control/in_flight", "--dry-run", "--quick", "--json")[1])
    assert plain["total_s"] == 24 and len(plain["plan"]["steps"]) == 6


@pytest.mark.parametrize("encoding", ["ascii", "iso8859-2"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--help"],
        ["run", "-d", "µ→漢", "-h", "ämqp://µ"],
        ["workload", "list"],
        ["workload", "show", "µ→漢"],
        ["runs", "list", "--store", "µ→漢"],
    ],
)
def test_no_character_ends_a_command(encoding: str, arguments: list[str], tmp_path: Path) -> None:
    """A terminal that lacks µ gets a question mark for it."""
    done = subprocess.run(
        [sys.executable, "-m", "perftest", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        timeout=120,
    )
    assert b"UnicodeEncodeError" not in done.stderr and b"Traceback" not in done.stderr, done.stderr


def test_every_stream_replaces_what_it_lacks(tmp_path: Path) -> None:
    """Also where rich draws, click asks, and the lines of PerfTest are written."""
    script = tmp_path / "prints.py"
    script.write_text(
        "import sys, click\n"
        "from rich.console import Console\n"
        "from perftest.cli import main\n"
        "main._replace_what_a_terminal_lacks()\n"
        "Console().print('µ 漢 ─')\n"
        "click.echo('µ 漢')\n"
        "click.echo('µ 漢', err=True)\n"
        "click.confirm('µ 漢', default=True)\n"
        "sys.stdout.write('µ 漢')\n",
        encoding="utf-8",
    )
    environment = {**os.environ, "PYTHONIOENCODING": "iso8859-2"}
    done = subprocess.run([sys.executable, script], env=environment, input=b"\n", capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"? ?") == 4 and b"? ?" in done.stderr
