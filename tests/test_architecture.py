"""The structure that the documentation promises, checked on the source itself.

Without these a benchmark could quietly import the broker it measures, a "pure" core could read a clock, and functions
could grow until nobody reads them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = ("hdr_buckets", "perftest", "reference_broker", "reports", "infra", "workloads")
FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 800
FILES_MAX = 25
"""Files on one floor, besides ``__init__.py``: as many names as a reader takes in at a glance."""

NAMES_SHARED_MAX = 40
"""Names of public classes that two modules may use, in rooms that do not meet."""

_ROOMS = "reference_broker.node"
_BASE = ("alarms", "classic_place", "config", "drive_config", "observer", "ports", "start_problems")
"""Files of a node that every room may use."""
ROOMS = {
    "links": (),
    "replication": ("links",),
    "owned": ("links", "replication"),
    "hosting": ("links", "replication", "owned"),
    "clients": ("links", "replication", "owned", "hosting"),
    "operations": ("links", "replication", "owned", "hosting", "clients"),
    "endpoints": ("links", "replication", "owned", "hosting", "clients", "operations", "shard"),
}
"""The rooms of a node, from the bottom up, and what each may import besides itself and the base."""

_CLIENTS = (
    "perftest.engine.connections",
    "perftest.engine.accounting",
    "perftest.engine.context",
    "perftest.amqp",
    "perftest.metrics",
    "perftest.spec",
)
"""What publishers and consumers are made of. They know neither each other nor the worker they live in."""

# package -> what of ours it may import. The longest matching prefix decides.
MAY_IMPORT = {
    "workloads": ("workloads",),
    # Both sides count latencies in the same buckets, and neither needs to know the other for that.
    "hdr_buckets": (),
    "reference_broker": ("reference_broker",),
    "reference_broker.raft": (
        "reference_broker.raft",
        "reference_broker.checksum",
        "reference_broker.idle",
        "reference_broker.records",
        "reference_broker.types",
    ),
    "reference_broker.routing": ("reference_broker.routing",),
    "reference_broker.access": ("reference_broker.access", "reference_broker.patterns"),
    "reference_broker.machines": (
        "reference_broker.machines",
        "reference_broker.access",
        "reference_broker.routing",
        "reference_broker.checksum",
        "reference_broker.idle",
        "reference_broker.patterns",
        "reference_broker.records",
        "reference_broker.types",
        "reference_broker.message_run",
    ),
    "reference_broker.anatomy": (
        "hdr_buckets",
        "reference_broker.anatomy",
        "reference_broker.machines.commands",
        "reference_broker.machines.effects",
        "reference_broker.idle",
        "reference_broker.records",
        "reference_broker.types",
        "reference_broker.message_run",
    ),
    "reference_broker.storage": ("reference_broker.storage",),
    "reference_broker.log": (
        "reference_broker.log",
        "reference_broker.storage",
        "reference_broker.checksum",
        "reference_broker.idle",
        "reference_broker.records",
        "reference_broker.types",
    ),
    "reference_broker.classic": (
        "reference_broker.classic",
        "reference_broker.storage",
        "reference_broker.checksum",
        "reference_broker.idle",
        "reference_broker.records",
        "reference_broker.types",
        "reference_broker.message_run",
    ),
    "reference_broker.mirroring": (
        "reference_broker.mirroring",
        "reference_broker.classic.message_store",
        "reference_broker.classic.parts",
        "reference_broker.machines.cluster.metadata",
        "reference_broker.machines.cluster.mirror_records",
        "reference_broker.idle",
        "reference_broker.records",
        "reference_broker.types",
        "reference_broker.message_run",
    ),
    "reference_broker.amqp": (
        "reference_broker.amqp",
        "reference_broker.routing.records",
        "reference_broker.idle",
        "reference_broker.records",
        "reference_broker.types",
        "reference_broker.message_run",
    ),
    "reference_broker.queues": (
        "reference_broker.queues",
        "reference_broker.amqp.properties",
        "reference_broker.anatomy",
        "reference_broker.classic.message_store",
        "reference_broker.classic.part_codec",
        "reference_broker.classic.parts",
        "reference_broker.machines",
        "reference_broker.mirroring.master",
        "reference_broker.idle",
        "reference_broker.records",
        "reference_broker.types",
        "reference_broker.message_run",
    ),
    "reference_broker.worlds": ("reference_broker.worlds",),
    # Events of a running cluster are drawn as those of the simulator are: the page knows neither.
    "reference_broker.worldpage": ("reference_broker.worldpage",),
    "reference_broker.management": (
        "reference_broker.management",
        "reference_broker",
    ),
    # No commands, no machine and no kind of queue: a node knows queues through their port.
    "reference_broker.node": (
        "reference_broker.classic",
        *(f"reference_broker.{each}" for each in ("node", "amqp", "anatomy", "log", "raft", "storage")),
        *(f"reference_broker.queues.{each}" for each in ("arguments", "kinds", "port", "session")),
        *(f"reference_broker.machines.{each}" for each in ("cluster", "effects")),
        "reference_broker.mirroring",
        "reference_broker.access",
        "reference_broker.routing",
        "reference_broker.checksum",
        "reference_broker.idle",
        "reference_broker.patterns",
        "reference_broker.records",
        "reference_broker.types",
        "reference_broker.message_run",
    ),
    "perftest": ("perftest", "workloads"),
    "perftest.metrics": ("perftest.metrics", "hdr_buckets"),
    "perftest.spec": (
        "perftest.spec",
        "perftest.errors",
        "perftest.metrics.figures",
        "perftest.metrics.names",
        "workloads",
    ),
    "perftest.search": ("perftest.search", "perftest.metrics.figures", "perftest.spec"),
    "perftest.importers": ("perftest.importers", "perftest.spec"),
    "perftest.ci": (*("perftest.ci", "perftest.exits", "perftest.results", "perftest.spec", "perftest.tell"),),
    "perftest.telemetry": ("perftest.telemetry", "hdr_buckets", "perftest.metrics", "perftest.tell"),
    "perftest.exporters": ("perftest.exporters", "hdr_buckets", "perftest.metrics", "perftest.results"),
    "perftest.amqp": ("perftest.amqp", "perftest.metrics"),
    "perftest.engine": ("perftest.engine", "perftest.amqp", "perftest.metrics", "perftest.spec"),
    "perftest.engine.accounting": (
        "perftest.engine.accounting",
        "perftest.amqp.events",
        "perftest.metrics",
        "perftest.spec",
    ),
    "perftest.engine.schedule": ("perftest.engine.schedule", "perftest.spec"),
    "perftest.engine.connections": (*_CLIENTS, "perftest.engine.schedule.intended_times"),
    "perftest.engine.publishing": (*_CLIENTS, "perftest.engine.publishing", "perftest.engine.schedule"),
    "perftest.engine.consuming": (*_CLIENTS, "perftest.engine.consuming", "perftest.engine.schedule"),
    "perftest.engine.api": ("perftest.engine.api", "perftest.metrics"),
    "perftest.engine.workers": (
        *_CLIENTS,
        "perftest.engine.api",
        "perftest.engine.consuming",
        "perftest.engine.host",
        "perftest.engine.publishing",
        "perftest.engine.wakeups",
        "perftest.engine.workers",
    ),
    "perftest.doctor": (
        *(f"perftest.{each}" for each in ("doctor", "engine", "amqp", "metrics", "spec", "results.provenance")),
    ),
    "perftest.results": ("perftest.results", "hdr_buckets", "perftest.errors", "perftest.metrics", "perftest.spec"),
    "perftest.foreign": (
        *(
            "perftest.foreign",
            "hdr_buckets",
            "perftest.results",
            "perftest.errors",
            "perftest.metrics",
            "perftest.spec",
        ),
    ),
    "perftest.actions": ("perftest", "infra", "reference_broker.storage.drives.profiles"),
    "perftest.screen": (
        "perftest.screen",
        "perftest.errors",
        "perftest.exits",
        "perftest.metrics",
        "perftest.results",
        "perftest.engine.api",
        "perftest.spec",
    ),
    "perftest.measuring": ("perftest", "infra", "reference_broker", "reports.stats", "workloads"),
    "perftest.series": ("perftest", "infra", "reports.stats"),
    "perftest.reproduction": ("perftest", "reports.stats", "workloads"),
    "perftest.options": ("perftest", "infra.layout"),
    "perftest.simulation": ("perftest", "infra", "reference_broker", "reports.stats"),
    # A rival is modelled from its own sources: the model knows drives, and nothing of the bundled broker.
    "perftest.rabbitmq_model": ("perftest.rabbitmq_model", "reference_broker.storage.drives"),
    "perftest.remote": ("perftest", "infra"),
    "perftest.cli": OURS,
    "reports": ("reports", "perftest.errors", "perftest.results", "perftest.metrics"),
    "reports.charts": ("reports.charts",),
    "reports.pages": (
        "reports.pages",
        "reports.charts",
        "reports.comparison",
        "reports.stats",
        "reports.store",
        "perftest.results.bottleneck",
        "perftest.results.trust",
        "perftest.results.hosts",
    ),
    "reports.store": (*("reports.store", "reports.errors", "perftest.errors", "perftest.results"),),
    "reports.pipeline": (
        "hdr_buckets",
        *(f"reports.{each}" for each in ("pipeline", "compute", "store", "errors")),
        "perftest.errors",
        "perftest.results",
    ),
    "reports.compute": (
        "hdr_buckets",
        "reports.compute",
        *(f"reports.store.{each}" for each in ("columns", "schema")),
        "reports.errors",
        "perftest.errors",
        "perftest.results",
        "perftest.metrics.histogram",
        "perftest.metrics.host_clock",
        "perftest.metrics.clock_model",
    ),
    "reports.catalogue": ("reports.catalogue", "reports.store", "reports.errors", "perftest.results"),
    "reports.server": (
        "hdr_buckets",
        "reports.server",
        "reports.html.render",
        "reports.pages",
        "reports.charts",
        "reports.catalogue.annotations",
        *(f"reports.store.{each}" for each in ("locations", "stored", "transactions")),
        "reports.errors",
        "perftest.errors",
        "perftest.results",
        "perftest.metrics",
    ),
    "reports.stats": (
        *("reports.stats", "reports.store.schema", "reports.store.tables"),
        *("perftest.results", "perftest.metrics.figures", "perftest.metrics.names"),
    ),
    "infra": ("infra", "perftest.errors", "perftest.results.provenance"),
}

# Modules that take values and give values back: no I/O, no time, no randomness.
PURE = (
    "hdr_buckets",
    "reference_broker.raft",
    "reference_broker.routing",
    "reference_broker.machines",
    "reference_broker.anatomy",
    "reference_broker.amqp",
    "reference_broker.access",
    "reference_broker.message_run",
    "reference_broker.patterns",
    "reference_broker.types",
    "reference_broker.queues",
    "reference_broker.mirroring",
    "reference_broker.classic.message_store",
    "reference_broker.storage.block_device.disk",
    "reference_broker.storage.block_device.protocol",
    "reference_broker.storage.drives",
    "reference_broker.virtual.costs",
    *(f"reference_broker.worldpage.{each}" for each in ("events", "members", "node_log", "page", "walk", "window")),
    "reference_broker.log.wal_codec",
    "reference_broker.log.recovery",
    "reference_broker.log.housekeeping",
    "reference_broker.log.extents",
    "reference_broker.log.memtable",
    "reference_broker.log.segment_codec",
    "reference_broker.classic.index_codec",
    "reference_broker.classic.part_codec",
    "reference_broker.classic.parts",
    *(f"perftest.foreign.{each}" for each in ("formats", "hdr_log", "hdr_payload", "openmessaging", "perftest_csv")),
    *(f"perftest.ci.{each}" for each in ("annotations", "cases", "junit")),
    "perftest.exporters",
    *(f"perftest.results.{each}" for each in ("bottleneck", "course", "foreign", "hosts", "run_checks")),
    *(f"perftest.results.{each}" for each in ("noise", "steadiness", "trust", "trust_list")),
    *(f"perftest.telemetry.{each}" for each in ("latency_buckets", "run_totals")),
    "perftest.amqp.assembly",
    "perftest.amqp.connection",
    "perftest.amqp.content",
    "perftest.amqp.encode",
    "perftest.amqp.errors",
    "perftest.amqp.events",
    "perftest.amqp.fastpath",
    "perftest.amqp.listener",
    "perftest.amqp.methods",
    "perftest.amqp.uri",
    "perftest.engine.schedule",
    "perftest.engine.coordination.warm_up",
    "perftest.metrics.figures",
    "perftest.metrics.names",
    "perftest.engine.publishing.inflight",
    "perftest.engine.consuming.ack_policy",
    "perftest.rabbitmq_model",
    "perftest.search",
    "reports.stats",
    "reports.compute",
    *(f"reports.server.{each}" for each in ("daily", "filters", "list_page", "listed_run", "picks")),
)
IMPURE_IMPORTS = {
    "asyncio", "socket", "os", "pathlib", "time", "random", "threading", "logging", "subprocess", "secrets", "uvloop",
    "selectors", "signal", "tempfile", "shutil",
}  # fmt: skip
BANNED_IMPORTS = {"pickle", "marshal", "shelve", "dill"}
"""Nothing that came over a socket or from a file may execute code."""


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of ours, by dotted name."""
    for package in OURS:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = dict(modules())


def longest_prefix(name: str, table: tuple[str, ...]) -> str | None:
    """The entry of ``table`` that is ``name`` or a package around it, the longest if there are several."""
    fitting = [entry for entry in table if name == entry or name.startswith(entry + ".")]
    return max(fitting, key=len, default=None)


@cache
def imported_names(name: str, *, for_types: bool = False) -> tuple[tuple[str, int], ...]:
    """Each dotted name that a module imports, and its line. Imports that only type checkers see count ``for_types``
    alone."""
    return tuple(_imported_names(parsed(name), for_types=for_types))


def _imported_names(tree: ast.AST, *, for_types: bool) -> Iterator[tuple[str, int]]:
    only_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and not for_types
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in only_types:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield (full if full in MODULES else node.module or "", node.lineno)


@cache
def parsed(name: str) -> ast.Module:
    return ast.parse(MODULES[name].read_text(), str(MODULES[name]))


def importers(names: Iterable[str], forbidden: Callable[[str], bool]) -> list[str]:
    """What some modules import that they may not, by file and line."""
    return [
        f"{MODULES[name]}:{line}: {imported}"
        for name in names
        for imported, line in imported_names(name)
        if forbidden(imported)
    ]


def test_imports_stay_within_the_rules() -> None:
    """The generator knows nothing of the broker, the broker nothing of the generator, and so on down the house."""
    rules = {name: longest_prefix(name, tuple(MAY_IMPORT)) for name in MODULES}
    assert not [name for name, rule in rules.items() if rule is None]
    broken = []
    for name, rule in rules.items():
        assert rule is not None
        for imported, line in imported_names(name):
            ours = imported.split(".")[0] in OURS and imported != rule.split(".")[0]
            if ours and not longest_prefix(imported, MAY_IMPORT[rule]):
                broken.append(f"{MODULES[name]}:{line}: {rule} may not import {imported}")
    assert not broken


def test_a_room_of_the_node_knows_only_the_rooms_below() -> None:
    broken = []
    for room, below in ROOMS.items():
        allowed = tuple(f"{_ROOMS}.{each}" for each in (room, *below, *_BASE))
        for name in (each for each in MODULES if each.startswith(f"{_ROOMS}.{room}.")):
            for imported, line in imported_names(name, for_types=True):
                if imported.startswith(f"{_ROOMS}.") and not longest_prefix(imported, allowed):
                    broken.append(f"{MODULES[name]}:{line}: {room} may not import {imported}")
    assert not broken


def test_the_rooms_of_the_node_are_all_in_the_table() -> None:
    assert {path.name for path in (ROOT / "reference_broker/node").iterdir() if (path / "__init__.py").exists()} == {
        *ROOMS
    }


def test_no_floor_has_more_files_than_a_reader_takes_in() -> None:
    floors = {path.parent for path in MODULES.values()}
    counts = {str(floor.relative_to(ROOT)): sum(1 for each in floor.glob("*.py")) for floor in floors}
    crowded = {floor: count for floor, count in counts.items() if count - 1 > FILES_MAX}
    assert not crowded


def test_a_name_stands_for_one_thing() -> None:
    """No public class has the name of two others, few have the name of another, and no file has to tell two apart."""
    homes: dict[str, list[str]] = {}
    for name in MODULES:
        for node in parsed(name).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name)
    shared = {name: places for name, places in homes.items() if len(places) > 1}
    assert not [name for name, places in shared.items() if len(places) > 2]
    assert len(shared) <= NAMES_SHARED_MAX, sorted(shared)
    for importer in MODULES:
        imported = {each for each, _ in imported_names(importer, for_types=True)} | {importer}
        assert not [name for name, places in shared.items() if set(places) <= imported], importer


def test_no_files_import_each_other() -> None:
    """Files in a circle can only be read, tested and replaced together. An import for type checkers counts, too: who
    names a type depends on it. An object gets the small port that it needs instead, defined where it is needed."""
    graph = {name: {i for i, _ in imported_names(name, for_types=True) if i in MODULES} for name in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_nothing_imports_the_command() -> None:
    """perftest.cli is the composition root: what everything hangs from must not be hung from."""
    names = [name for name in MODULES if not name.startswith(("perftest.cli", "perftest.__main__"))]
    assert not importers(names, lambda imported: imported.startswith("perftest.cli"))


def test_only_the_command_knows_click() -> None:
    """What the command does besides parsing and printing can be called without a command line."""
    names = [name for name in MODULES if not name.startswith("perftest.cli") and not name.endswith("__main__")]
    assert not importers(names, lambda imported: imported.split(".")[0] == "click")


def test_only_the_pipeline_starts_spark() -> None:
    """A load generator or a page writer that starts a JVM would disturb what it measures, or make readers wait."""
    names = [name for name in MODULES if not name.startswith("reports.pipeline")]
    assert not importers(names, lambda imported: imported.split(".")[0] in ("pyspark", "py4j"))


def test_pure_cores_do_no_io() -> None:
    """One seed must replay a whole cluster: a core that reads a clock or a socket cannot be replayed."""
    names = [name for name in MODULES if longest_prefix(name, PURE)]
    assert {longest_prefix(name, PURE) for name in names} == {*PURE}
    assert not importers(names, lambda imported: imported.split(".")[0] in IMPURE_IMPORTS)


def test_nothing_unpickles() -> None:
    """A peer, a client or a run directory from elsewhere must never run code here."""
    assert not importers(MODULES, lambda imported: imported.split(".")[0] in BANNED_IMPORTS)


def test_functions_fit_on_a_screen() -> None:
    """A function that does not fit on a screen is not read, and what is not read is not right."""
    long = [name for name, path in MODULES.items() if len(path.read_text().splitlines()) > MODULE_LINES_MAX]
    for name in MODULES:
        for node in ast.walk(parsed(name)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    long.append(f"{MODULES[name]}:{node.lineno}: {node.name} has {lines} lines")
    assert not long


def test_every_module_says_what_it_is() -> None:
    """A newcomer finds the room for a change by the modules' first lines."""
    assert not [path for name, path in MODULES.items() if parsed(name).body and not ast.get_docstring(parsed(name))]
