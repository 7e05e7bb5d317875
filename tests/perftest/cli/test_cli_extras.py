"""An installation without reports and without SSH measures, and says what the rest needs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from perftest.cli.extras import MODULES
from perftest.installation import command_for, target

Call = Callable[..., tuple[int, str, str]]
PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
HIDE = "import sys; sys.modules.update(dict.fromkeys({hidden!r}))\n"
EXTRAS = {module.partition(".")[0] for modules in MODULES.values() for module in modules}
HIDDEN = sorted({*EXTRAS, "py4j", "cryptography", "nacl"})


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(PYPROJECT.read_text())["project"]
    return found


def without_extras(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python that has the base only."""
    command = [sys.executable, "-c", HIDE.format(hidden=HIDDEN) + program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def names(requirements: list[str]) -> set[str]:
    return {re.match(r"[\w.-]+", each).group().lower() for each in requirements}  # type: ignore[union-attr]


def test_the_extras_are_those_of_the_project() -> None:
    """A module that is forgotten here ends in a traceback there."""
    distributions = packages_distributions()
    for extra, modules in MODULES.items():
        if extra == "otlp":  # all packages of OpenTelemetry share one name space
            modules = [f"{module}-otlp-proto-http" if "exporter" in module else module for module in modules]
            found = {module.replace(".", "-") for module in modules}
        else:
            found = {distributions[module][0].lower() for module in modules}
        assert found == names(project()["optional-dependencies"][extra])


IMPORTS = """
import importlib, json
OURS = ("hdr_buckets", "perftest", "reference_broker", "reports", "infra", "workloads")
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps(sorted(new - sys.stdlib_module_names - set(OURS))))
"""


def test_load_and_broker_hosts_need_only_the_base() -> None:
    """A host that has only the base must be able to do all that hosts are for."""
    modules = [
        "perftest.engine.workers.worker", "reference_broker.node.server", "reference_broker.node.endpoints.metrics",
        "reference_broker.node.__main__", "infra.remote.observer", "infra.local_cluster", "uvloop", "perftest.cli.main",
        "perftest.cli.measure", "perftest.cli.conclusion",
    ]  # fmt: skip
    done = without_extras(IMPORTS, *modules)
    assert done.returncode == 0, done.stderr
    distributions = packages_distributions()
    loaded = [name for name in json.loads(done.stdout) if name in distributions]
    found = {distributions[name][0].lower().replace("_", "-") for name in loaded}
    extras = project()["optional-dependencies"]
    assert {"numpy", "psutil", "uvloop"} <= found
    assert not found & (names(extras["report"]) | names(extras["remote"]))


@pytest.mark.parametrize(
    ("arguments", "module", "extra"),
    [
        (["report", "--serve"], "deltalake", "report"),
        (["query", "SELECT 1"], "deltalake", "report"),
        (["run", "-z", "1", "--otlp", "http://x:1"], "opentelemetry", "otlp"),
        (["remote", "exec", "hosts.yaml", "--", "true"], "paramiko", "remote"),
    ],
)
def test_a_command_names_what_it_needs(arguments: list[str], module: str, extra: str, tmp_path: Path) -> None:
    """One sentence with the command that helps, and before anything is measured."""
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text("hosts: {load1: {}}\n")
    words = [str(hosts) if word == hosts.name else word for word in arguments]
    done = without_extras("from perftest.cli.main import main; main()", *words)
    assert done.returncode == 7 and done.stdout == ""
    assert f"needs {module}" in done.stderr and ", which is not installed" in done.stderr
    assert f"fix  {command_for(extra)}\n" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["sweep", "flow_control/in_fligt"],
        ["simulate", "flow_control/in_fligt"],
        ["report", "runs/none"],
        ["remote", "exec", "none.yaml", "--", "true"],
    ],
)
def test_a_mistyped_name_is_told_before_a_missing_package(arguments: list[str]) -> None:
    """Whoever installs half a gigabyte to be told of a typing error will not be back."""
    done = without_extras("from perftest.cli.main import main; main()", *arguments)
    assert done.returncode in (1, 2) and "installed" not in done.stderr and "  fix  " in done.stderr, done.stderr


HELP = """
import click
from perftest.cli.main import call, cli

def words(group, path):
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        yield [*path, name]
        if isinstance(command, click.Group):
            yield from words(command, [*path, name])

found = list(words(cli, []))
for each in found:
    assert call([*each, "--help"]) == 0, each
assert len(found) > 60
"""


def test_help_needs_no_extra() -> None:
    """Help is what a person reads to find out what to install."""
    done = without_extras(HELP)
    assert done.returncode == 0, done.stderr


CLONE, WHEEL = Path("/home/me/clone"), "file:///home/me/dist/quorum_perftest-1.0.0-py3-none-any.whl"


@pytest.mark.parametrize(
    ("origin", "here", "words"),
    [
        (None, CLONE, "'quorum-perftest[report]'"),
        ({"url": CLONE.as_uri(), "dir_info": {"editable": True}}, CLONE, "-e '.[report]'"),
        ({"url": CLONE.as_uri(), "dir_info": {"editable": True}}, Path("/tmp"), "-e '/home/me/clone[report]'"),
        ({"url": CLONE.as_uri(), "dir_info": {}}, Path("/home/me"), "'./clone[report]'"),
        ({"url": WHEEL}, Path("/tmp"), "'/home/me/dist/quorum_perftest-1.0.0-py3-none-any.whl[report]'"),
        ({"url": "https://x.org/q.whl"}, CLONE, "'quorum-perftest[report] @ https://x.org/q.whl'"),
        (
            {"url": "https://x.org/q.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            *(CLONE, "'quorum-perftest[report] @ git+https://x.org/q.git@abc'"),
        ),
    ],
)
def test_a_fix_names_the_place_that_this_was_installed_from(
    origin: dict[str, Any] | None, here: Path, words: str
) -> None:
    """No index may know the name: a fix that fails is worse than none."""
    assert target(origin, "report", here) == words


def test_a_module_that_nobody_checked_for_is_no_traceback(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one place where exceptions become messages knows the extras, too; other modules are bugs."""
    import workloads

    for module, code in (("pyspark.sql", 7), ("paramiko", 7), ("perftest.nothing", 1)):

        def missing(module: str = module) -> None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)

        monkeypatch.setattr(workloads, "names", missing)
        got, _, err = call("workload", "list")
        assert got == code and ("pip install" in err) == (code == 7)


def test_intervals_stay_as_text_where_pyarrow_is_missing(tmp_path: Path) -> None:
    """A run on the base alone ends well: the typed copy of the intervals is left out, the intervals are there."""
    program = "from perftest.results.intervals import write_parquet; from pathlib import Path\n"
    done = without_extras(program + "write_parquet(Path(sys.argv[1]))", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
