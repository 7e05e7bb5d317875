"""The documentation, held to the code: links lead somewhere, commands parse, names and limits are those there are.

A reader who meets one command that does not work stops believing the rest.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import click
import pytest

import workloads
from perftest import __version__
from perftest.cli.main import cli
from perftest.engine.accounting import stamp
from perftest.engine.publishing import publisher
from perftest.engine.workers import health, shares
from perftest.exits import MEANING
from perftest.options.table import OPTIONS
from perftest.results import run_checks, schema, steadiness, trust, trust_list
from perftest.spec import check
from perftest.spec.load import load_workload
from reference_broker.amqp.config import ConnectionConfig
from reference_broker.amqp.fields import TABLE_DEPTH_MAX, TABLE_FIELDS_MAX
from reference_broker.log.config import LogConfig
from reference_broker.log.counters import COUNTERS
from reference_broker.log.wal_codec import RowKind
from reference_broker.machines.batch import CommandKind
from reference_broker.machines.effects import Effect
from reference_broker.machines.fifo import PACED_MESSAGES_MIN
from reference_broker.node.config import Limits
from reference_broker.node.config import load as load_node
from reference_broker.node.endpoints.control import _OWN as CONTROL_OPERATIONS
from reference_broker.node.links.frame_kinds import FrameKind
from reference_broker.node.links.handshake import VERSION as LINK_VERSION
from reference_broker.node.links.link_octets import PURPOSES
from reference_broker.queues import port
from reference_broker.raft.core import RaftCore
from reference_broker.raft.ready import Ready
from reference_broker.sim.scenes.catalogue import SCENES
from reference_broker.worldpage.walk import walks_of
from reports.stats import knee
from reports.store.schema import STORE_VERSION

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "workloads/**/*.md")
    for path in ROOT.glob(pattern)
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)
NAMES = [str(path.relative_to(ROOT)) for path in PAGES]
PROSE_WIDTH_MAX = 120
WORLDS = {*SCENES, *walks_of(ROOT.joinpath("docs", "local-delivery.md").read_text(encoding="utf-8"))}
"""Pages that `make docs` makes in docs/worlds, by name: scenes and walks."""

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^(?:\$ )?(perftest(?: \S.*)?)$", re.MULTILINE)
_INLINE = re.compile(r"`(perftest [^`]+)`")
_POINTER = re.compile(r"`((?:hdr_buckets|perftest|reference_broker|reports|infra)/[\w/]+\.py):([\w.]+)`")
_FILE = re.compile(
    r"`((?:hdr_buckets|perftest|reference_broker|reports|infra|tests|workloads)/[\w/.]+\.(?:py|txt|yaml|json))`"
)


@cache
def read(name: str) -> str:
    """One page."""
    return ROOT.joinpath(name).read_text(encoding="utf-8")


@cache
def anchors(text: str) -> set[str]:
    """The anchors a page has, as GitHub makes them of its headings."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_pages_are_found() -> None:
    """A wrong pattern would make everything below pass without a look at anything."""
    assert {"README.md", "docs/tutorial.md", "docs/internals/raft.md", "workloads/README.md"} <= set(NAMES)


@pytest.mark.parametrize(("name", "lines"), [("README.md", 90), ("ARCHITECTURE.md", 180)])
def test_the_first_pages_stay_short(name: str, lines: int) -> None:
    """A newcomer reads one screen; what does not fit there has a page of its own."""
    assert len(read(name).splitlines()) <= lines


def dead_links(name: str) -> Iterator[str]:
    """The links of a page to what is not there."""
    for target in _LINK.findall(_FENCE.sub("", read(name))):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        found = (ROOT / name).parent / path if path else ROOT / name
        if found.parent.resolve() == ROOT / "docs" / "worlds" and found.stem in WORLDS:
            continue  # `make docs` makes it
        if not found.exists() or (anchor and anchor not in anchors(found.read_text(encoding="utf-8"))):
            yield target


def test_the_site_has_the_pages_of_worlds() -> None:
    """A link to one of them is dead in a clone, so nothing else would miss it."""
    for command in ("sim.scenes", "worldpage docs/local-delivery.md"):
        assert f"python -m reference_broker.{command} build/pages/docs/worlds" in read("Makefile")
    linked = {Path(target).stem for name in NAMES for target in _LINK.findall(read(name)) if "worlds/" in target}
    assert linked == WORLDS


def test_links_lead_somewhere() -> None:
    """A dead link is a page that nobody can find, or an anchor that was renamed."""
    assert not [f"{name}: {target}" for name in NAMES for target in dead_links(name)]


# Commands


def commands(name: str) -> list[str]:
    """Every command line of a page: lines of code blocks, and inline code with more than the command's name."""
    text = read(name)
    blocks = "\n".join(_FENCE.findall(text))
    lines = [re.split(r"   #| > ", line)[0].rstrip() for line in _COMMAND.findall(blocks)]
    # A line break within inline code is a space.
    return lines + [" ".join(line.split()) for line in _INLINE.findall(_FENCE.sub("", text))]


def problem(line: str) -> str | None:
    """What click says of a command line, without running it; None if it parses."""
    words = shlex.split(line)[1:]
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group):
        if not words or words[0] in {"COMMAND", *(flag for each in command.params for flag in each.opts)}:
            return None
        found = command.get_command(context, words[0].rstrip(","))
        if found is None:
            return f"there is no command {words[0]!r}"
        command, words = found, words[1:]
    # A placeholder in capitals, or nothing at all, names a command rather than calls it: only its options can be wrong.
    if not words or any(word.isupper() or word.rstrip(".").isupper() for word in words):
        flags = {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)} | {"--help"}
        own = itertools.takewhile(lambda word: word != "--", words)
        unknown = [word for word in own if word.startswith("--") and not any(f.startswith(word) for f in flags)]
        return f"no such options: {unknown}" if unknown else None
    try:
        command.make_context("perftest", list(words), resilient_parsing=False)
    except click.exceptions.Exit:
        return None
    except click.ClickException as error:
        return error.format_message()
    return None


def test_commands_parse() -> None:
    """An option that was renamed would leave the reader with an error on the first try."""
    assert not {(name, line): found for name in NAMES for line in commands(name) if (found := problem(line))}


PLACEHOLDERS = {
    *("hosts.yaml", "lab/hosts.yaml", "mine.yaml", "own_log.yaml", "one_disk.yaml", "two_disks.yaml"),
    *("1-topic-1kb.yaml", "playlists/flow.json", "setup.json"),
}
"""Files in command lines that are the reader's own."""


def absent(line: str) -> set[str]:
    """The workloads, layouts and files of a command line that are neither there nor a placeholder."""
    words = {part for word in shlex.split(line)[1:] for part in re.split(r"[,=]", word)}
    bundled = {*workloads.names(), *workloads.layout_names()}
    folders = "|".join(sorted({name.partition("/")[0] for name in bundled}))
    named = {word for word in words if re.fullmatch(rf"({folders})/[a-z0-9_]+", word)}
    files = {word for word in words if re.fullmatch(r"[\w./-]+\.(?:ya?ml|json)", word)} - PLACEHOLDERS
    return (named - bundled) | {file for file in files if not ROOT.joinpath(file).exists()}


@pytest.mark.parametrize("name", NAMES)
def test_workloads_and_files_of_commands_are_there(name: str) -> None:
    """A workload that was renamed would leave the reader with an error on the first try, as an option would."""
    assert not {line: found for line in commands(name) if (found := absent(line))}


def test_a_wrong_command_would_be_found() -> None:
    """The checks above must be able to fail."""
    assert absent("perftest sweep flow_control/nothing --layout disks/one_hdd") == {"flow_control/nothing"}
    assert absent("perftest remote run other.yaml mine.yaml") == {"other.yaml"}
    assert problem("perftest sweep FILE --no-such-option 5") is not None
    assert problem("perftest run --no-such-option") is not None
    assert problem("perftest nothing") is not None
    assert problem("perftest broker start --nodes 2") is not None
    assert problem("perftest sweep flow_control/in_flight --quick") is None
    assert len(commands("README.md")) >= 5
    assert len(commands("docs/tutorial.md")) >= 8


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with its path."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from leaves(child, (*path, name))
    else:
        yield path, command


@pytest.mark.parametrize("name", ["docs/cli.md", "docs/tutorial.md", "docs/layouts.md", "docs/reading-a-report.md"])
def test_options_in_sentences_are_there(name: str) -> None:
    """A promise about an option that no command has leaves the reader with an error, too."""
    known = {"--help", *(f"--{long}" for option in OPTIONS for long in option.long)}
    known |= {
        flag
        for _, command in leaves(cli)
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }
    codes = [code for code in re.findall(r"`([^`\n]+)`", read(name)) if not code.startswith("python -m")]
    named = {flag for code in codes for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", code)}
    assert named
    assert not {flag for flag in named if not any(each.startswith(flag) for each in known)}  # names may be shortened


def test_every_option_is_explained() -> None:
    """docs/cli.md promises the options: one that is missing there is known to nobody."""
    text = read("docs/cli.md")
    missing = {
        f"{' '.join(path)} {flag}"
        for path, command in leaves(cli)
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for flag in (*parameter.opts, *parameter.secondary_opts)
        if f"`{flag}`" not in text and flag not in ("--help", "-?")
    }
    assert not missing


def test_every_command_is_in_the_table() -> None:
    """A command that the table leaves out is found by nobody who reads."""
    table = read("docs/cli.md").split("## Commands\n")[1].split("\n## ")[0]
    named = set()
    for cell in re.findall(r"^\| (`perftest .+?) \|", table, re.MULTILINE):
        first, *others = re.findall(r"`(?:perftest )?([^`]+)`", cell)
        group = first.rpartition(" ")[0]
        named |= {first, *(f"{group} {other}".strip() for other in others)}
    assert named == {" ".join(path) for path, _ in leaves(cli)}


def test_exit_codes_are_those_of_the_command() -> None:
    """A build gate is written from this table."""
    rows = dict(re.findall(r"^\| (\d+) \| (.+?) \|$", read("docs/cli.md"), re.MULTILINE))
    assert {int(code): text.split(" (reserved")[0] for code, text in rows.items()} == {
        int(code): meaning for code, meaning in MEANING.items()
    }


def test_reserved_exit_codes_are_used_by_no_command() -> None:
    """A code that a command has begun to use must lose its word "reserved"."""
    reserved = {int(code) for code in re.findall(r"^\| (\d+) \|.*reserved", read("docs/cli.md"), re.MULTILINE)}
    used = {int(code) for _, command in leaves(cli) for code in getattr(command, "exits", ())}
    assert reserved == {int(code) for code in MEANING} - used


# Pointers into the code


@cache
def definitions(path: str) -> frozenset[str]:
    """Functions, classes and ``Class.method`` of a module, and its constants."""
    found: set[str] = set()
    for node in ast.parse(ROOT.joinpath(path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{item.name}" for item in node.body if hasattr(item, "name")}
    return frozenset(found)


def pointers_to_nothing(name: str) -> Iterator[str]:
    """What a page says of the code that is not there: files, and functions of files."""
    text = _FENCE.sub("", read(name))
    yield from (path for path in _FILE.findall(text) if not ROOT.joinpath(path).exists())
    for path, function in _POINTER.findall(text):
        if not ROOT.joinpath(path).exists() or function not in definitions(path):
            yield f"{path}:{function}"


def test_pointers_into_the_code_hold() -> None:
    """The tutorial sends readers to a function: it must be there."""
    assert not [f"{name}: {pointer}" for name in NAMES for pointer in pointers_to_nothing(name)]


@pytest.mark.parametrize("name", ["docs/internals/message-way.md", "docs/internals/ra-and-rabbit-fifo.md"])
def test_pointers_below_the_broker_hold(name: str) -> None:
    """These pages leave out the package that they are about."""
    pointers = re.findall(r"`([a-z_]+/[\w/]+\.py)(?::([\w.]+))?`", read(name))
    assert len(pointers) >= 10
    places = [(f"reference_broker/{path}", function) for path, function in pointers]
    gone = {place for place, _ in places if not ROOT.joinpath(place).exists()}
    assert not gone | {f"{place}:{name}" for place, name in places if name and name not in definitions(place)}


def test_every_folder_is_in_the_table_of_rooms() -> None:
    """A newcomer looks for a folder in this table; a folder that is not there has no place in the house."""
    rows = dict(re.findall(r"^\| `([\w/]+)` \| (.+) \|$", read("ARCHITECTURE.md"), re.MULTILINE))
    packages = {
        path.parent.relative_to(ROOT)
        for package in ("perftest", "reference_broker", "reports", "infra")
        for path in ROOT.joinpath(package).rglob("__init__.py")
    } - {Path("perftest"), Path("reference_broker"), Path("reports")}
    told = set(rows) | {name for text in rows.values() for name in re.findall(r"`([\w/]+)`", text)}
    homeless = {str(each) for each in packages if str(each) not in told and each.name not in told}
    assert not homeless
    first = {f"{name}/{file}" for name, text in rows.items() for file in re.findall(r"`([\w/]+\.\w+)`", text)}
    assert not {name for name in {*rows, *first} if not ROOT.joinpath(name).exists()}


# Tables of the internals, held to the enums, ports and constants that they describe


def rows_of(name: str, head: str) -> list[list[str]]:
    """The rows of the table of a page whose first line begins with ``head``, as cells."""
    lines = iter(read(name).splitlines())
    assert any(line.startswith(head) for line in lines), f"{name} has no table {head}"
    table = itertools.takewhile(lambda line: line.startswith("|"), lines)
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table][1:]


def words_of(cells: list[str]) -> set[str]:
    """The words in backticks of some cells."""
    return {word for cell in cells for word in re.findall(r"`([\w.-]+)`", cell)}


def spelt(name: str) -> str:
    """The name of a class or a member, as a page writes it."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").lower()


def test_every_frame_between_nodes_is_drawn() -> None:
    """A peer in another language would be written from this table."""
    cells = [row[0] for row in rows_of("docs/internals/node.md", "| kind | body |")]
    assert [pair for cell in cells for pair in re.findall(r"(\d+) ([a-z ]+)", cell)] == [
        (str(kind.value), spelt(kind.name)) for kind in FrameKind
    ]


def test_every_module_of_a_node_is_in_its_table() -> None:
    """The table is the way into the largest part of the broker."""
    rows = rows_of("docs/internals/node.md", "| room | module | what it does |")
    node = ROOT / "reference_broker" / "node"
    room, told = "", set()
    for first, modules, _what in rows:
        room = first.strip("`") or room
        folder = node if room == "the floor itself" else node / room
        told |= {folder / name for name in re.findall(r"`(\w+\.py)`", modules)}
    assert not {str(path) for path in told if not path.exists()}
    assert not {str(path) for path in node.glob("*/*.py") if path not in told and path.name != "__init__.py"}


def test_every_request_of_the_control_port_is_listed() -> None:
    """Scripts of operators are written from this table."""
    text = " ".join(row[0] for row in rows_of("docs/internals/node.md", "| request | answer |"))
    folder = ROOT / "reference_broker" / "node" / "operations"
    method = re.compile(r'^\s+"([a-z-]+)": (?:functools\.partial\()?self\._', re.MULTILINE)
    known = set(CONTROL_OPERATIONS)
    for path in folder.glob("*_requests.py"):
        known.update(method.findall(path.read_text(encoding="utf-8")))
    assert len(known) >= 35
    told = set(re.findall(r'"op": "([a-z-]+)"', text)) | set(re.findall(r"`([a-z-]+)`", text))
    # Permissions for routing keys have one line together with the other permissions.
    assert {name for name in known if name.replace("topic-permissions", "permissions") not in told} == set()


def test_every_command_and_effect_of_a_queue_is_drawn() -> None:
    """The octets of a log are read with this page in hand."""
    name = "docs/internals/commands.md"
    kinds = {int(row[0]): row[1] for row in rows_of(name, "| kind | command |")}
    written = {"enqueue expiring": "enqueue with a time to live", "enqueue keyed": "enqueue with labels"}
    assert kinds == {kind.value: written.get(spelt(kind.name), spelt(kind.name)) for kind in CommandKind}
    told = {row[0] for row in rows_of(name, "| command | effect on the state |")}
    assert told == set(kinds.values()) - set(written.values())
    assert {row[0] for row in rows_of(name, "| effect | executed by |")} == {
        spelt(each.__name__) for each in get_args(Effect)
    }


def test_every_row_of_a_log_file_is_drawn() -> None:
    """As for commands: the rows of WAL and meta log."""
    rows = rows_of("docs/internals/wal-format.md", "| kind | name | meaning |")
    assert {int(row[0]): row[1] for row in rows} == {kind.value: spelt(kind.name) for kind in RowKind}


def test_every_method_of_the_queue_port_is_listed() -> None:
    """A new kind of queue is written from these tables."""
    name = "docs/internals/queues.md"
    heads = ("| `Queue` | what the queue does | the channel hears |", "| `Queue` | what the node says |")
    asked = words_of([row[0] for head in heads for row in rows_of(name, head)])
    assert asked == {each for each in vars(port.Queue) if callable(vars(port.Queue)[each]) and not each.startswith("_")}
    answered = words_of([row[0] for row in rows_of(name, "| `Channels` | the channel is told |")])
    assert answered == {each for each in vars(port.Channels) if callable(vars(port.Channels)[each]) and each[0] != "_"}
    fields = words_of([row[0] for row in rows_of(name, "| field | meaning |")])
    assert fields == {field.name for field in dataclasses.fields(port.QueueKind)}


def test_every_file_of_a_run_directory_is_listed() -> None:
    """The run directory is a contract: a file that the page does not know is one that nobody may rely on."""
    told = words_of([row[0] for row in rows_of("docs/internals/run-directory.md", "| file | one record is |")])
    assert told == {schema.MANIFEST, *schema.BESIDE_MANIFEST, schema.ROUNDS, schema.LAYOUTS}


def test_every_field_of_a_ready_has_its_rule() -> None:
    """The contract of Raft's core is what a shell in another program would be written from."""
    rows = rows_of("docs/internals/raft.md", "| field | the shell must |")
    assert words_of([row[0] for row in rows]) == {field.name for field in dataclasses.fields(Ready)}


def test_every_input_of_the_raft_core_is_listed() -> None:
    """As above: what is handed to the core. Questions to the core have no row."""
    told = {
        re.sub(r"\(.*", "", code)
        for row in rows_of("docs/internals/raft.md", "| call | says |")
        for code in re.findall(r"`([a-z_]+(?:\([^`]*\))?)`", row[0])
    }
    public = {name for name, each in vars(RaftCore).items() if callable(each) and not name.startswith("_")}
    assert told <= public
    steady = {"ready", "configuration_at", "machine_version_at", "can_do_without", "pinned_snapshots"}
    steady |= {name for name in public if "steadily" in name} | {"notice", "take_commit"}
    assert public - steady == told


def test_every_purpose_of_a_link_is_explained() -> None:
    """A label of a metric that the page does not know is read wrongly."""
    assert words_of([row[0] for row in rows_of("docs/internals/node.md", "| purpose | frames |")]) == set(PURPOSES)


# Limits


def percent(part: float) -> str:
    return f"{100 * part:g} %"


LIMITS = {
    "docs/reading-a-report.md": [
        f"at {percent(trust.CPU_SHARE_WARN)} of a core at most",
        f"| {percent(trust.CPU_SHARE_INVALID)} or more; or above {percent(trust.CPU_SHARE_WARN)}",
        f"while less than {percent(trust.ACHIEVED_MIN)} of the schedule",
        f"| {percent(trust.WAIT_SHARE_WARN)} of the time or more without a core",
        f"less than {percent(trust.STEAL_WARN)} of the load host's CPU time | {percent(trust.STEAL_WARN)} or more",
        f"| {percent(trust.STEAL_FAIL)} or more |",
        f"{percent(trust.ACHIEVED_MIN)} or more of the intended",
        f"below {percent(trust.SCHEDULE_LAG_WARN)} of the step's p99",
        f"more than {percent(trust.SCHEDULE_LAG_FAIL)} where the generator had nothing left",
        f"{100 * trust.SAMPLES_ABOVE:,} or more, so that p99",
        f"{percent(trust.KEPT_UP_MIN)} or more of what was published",
        f"for {percent(run_checks.COMPLETE)} or more of its planned time",
        f"below {trust.HOST_CPU_WARN:g} % | {trust.HOST_CPU_WARN:g} % or more",
        f"differ by {percent(trust.ACCOUNTED_WARN)} at most | up to {percent(trust.ACCOUNTED_FAIL)}",
        f"rate within {percent(steadiness.RATE_DRIFT_WARN)}, p50 within {percent(steadiness.P50_DRIFT_WARN)}",
        f"no step has {steadiness.SLOTS_MIN} intervals",
        f"hosts {percent(trust_list.CLOCK_WARN)} or more of the lowest p50",
        f"at least {percent(knee.ENOUGH)} of the peak rate",
        f"gains less than {percent(knee.SATURATED)} over",
    ],
    "docs/measuring-honestly.md": [
        f"per {publisher.QUANTUM_NS / 1000:g} µs",
        f"first {stamp.SIZE} octets",
        f"rate {shares.WAKEUP_S * 1e6:g} µs",
        f"at most {shares.WAKEUPS_PER_PUBLISHER:,} times a second",
        f"{shares.BUSY_CLIENTS_PER_WORKER} clients; in any case one for each {shares.CLIENTS_PER_WORKER:,} clients",
        f"above {percent(trust.CPU_SHARE_WARN)} of a core | from {percent(trust.CPU_SHARE_INVALID)} on",
        f"| {percent(trust.WAIT_SHARE_WARN)} or more, and no time left beside it |",
        f"timer every {health.BEAT_NS / 1e6:g} ms), longest garbage collection | above the p99 of the step",
        f"(`/proc/stat`) | {percent(trust.STEAL_WARN)} | {percent(trust.STEAL_FAIL)} |",
    ],
    "docs/cli.md": [f"at most {check.PREFETCH_MAX}", f"body in octets, {check.SIZE_BYTES_MIN} or more"],
    "docs/internals/amqp.md": [
        f"{ConnectionConfig().frame_max:,} octets",
        f"{ConnectionConfig().channel_max:,}",
        f"{TABLE_DEPTH_MAX} deep, {TABLE_FIELDS_MAX:,} fields",
        f"({Limits().publish_bytes_max >> 20} MiB)",
    ],
    "docs/internals/log-and-storage.md": [
        f"`memtable_bytes` | `limits` | {LogConfig(wal_dir='w', data_dir='d').memtable_bytes >> 20} MiB",
        f"`wal_file_bytes` | `limits` | {LogConfig(wal_dir='w', data_dir='d').wal_file_bytes >> 20} MiB",
        *(f"| `{counter.name}` |" for counter in COUNTERS),
    ],
    "docs/configuration.md": [f"| `{each.name}` | {each.default:,} |" for each in dataclasses.fields(Limits)],
    "docs/decisions/0004-settles-ride-with-enqueues.md": [
        f"`settle_delay_ms` ({Limits().settle_delay_ms} ms)",
        f"at least {PACED_MESSAGES_MIN} messages",
        f"`entries_uncommitted_max` ({Limits().entries_uncommitted_max})",
    ],
    "docs/internals/node.md": [f"`version` is {LINK_VERSION}."],
    "docs/internals/report-store.md": [f"`perftest.version`: {STORE_VERSION}"],
    "docs/internals/run-directory.md": [f'"schema": {schema.SCHEMA_VERSION}', f'"version": "{__version__}"'],
    "docs/stability.md": [f"Version {__version__} promises", f'`"schema": {schema.SCHEMA_VERSION}` in `manifest.json`'],
    "CHANGELOG.md": [f"## {__version__} ("],
    "docs/tutorial.md": [
        f"{Limits().election_ticks_min} to {Limits().election_ticks_max} ticks of {Limits().tick_ms} ms",
    ],
}


def test_limits_are_those_of_the_code() -> None:
    """A limit that was changed in the code alone would be argued with from the page."""
    texts = {name: " ".join(read(name).split()) for name in LIMITS}
    assert not [f"{name}: {phrase}" for name, text in texts.items() for phrase in LIMITS[name] if phrase not in text]


def test_every_check_of_the_trust_list_is_explained() -> None:
    """A reader who is warned must be able to look up what it means."""
    text = read("docs/reading-a-report.md")
    places = [*ROOT.glob("perftest/results/*.py"), *ROOT.glob("reports/stats/*.py")]
    source = "".join(path.read_text(encoding="utf-8") for path in places)
    names = set(re.findall(r'(?:Check|judged)\(\s*"([^"]+)"', source))
    assert len(names) >= 25
    assert not {name for name in names if trust.title(name) not in text}


def test_prose_fits() -> None:
    """Lines that fit are read, and differ where they differ. Tables, links and code are as long as they must be."""
    long = [
        f"{name}: {line}"
        for name in NAMES
        for line in _FENCE.sub("", read(name)).splitlines()
        if len(line) > PROSE_WIDTH_MAX and not line.startswith("|") and " " in line.strip()
    ]
    assert not long


# Examples


def blocks(name: str, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", read(name), re.MULTILINE | re.DOTALL)


def test_local_delivery_is_shown_as_the_tests_run_it() -> None:
    """A drawing that the machine does not make would teach another broker than the one that is there."""
    data = ROOT / "tests" / "reference_broker" / "machines" / "data"
    drawn = [line for block in blocks("docs/local-delivery.md", "text") for line in block.splitlines() if line]
    run = [
        line
        for name in ("local_delivery.txt", "consumer_failure.txt", "proxied.txt")
        for line in data.joinpath(name).read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    assert drawn == run
    (excerpt,) = [block for block in blocks("docs/tutorial.md", "text") if "----" in block]
    assert excerpt in data.joinpath("local_delivery.txt").read_text(encoding="utf-8")


def test_the_tutorial_shows_scenes_as_the_tests_run_them() -> None:
    """Each page of a scene is introduced with what its clients see."""
    data = ROOT / "tests" / "reference_broker" / "sim" / "data"
    shown = [block for block in blocks("docs/tutorial.md", "text") if "----" not in block]
    names = ("poison-message", "full-queue", "change-of-members")
    assert shown == [data.joinpath(f"{name}.txt").read_text(encoding="utf-8") for name in names]


def test_the_workload_example_can_be_run(tmp_path: Path) -> None:
    """It is what a first file of one's own is copied from."""
    (example,) = blocks("workloads/README.md", "yaml")
    path = tmp_path / "mine.yaml"
    path.write_text(example, encoding="utf-8")
    assert check.check(*load_workload(path)) == []


def test_the_node_example_can_be_started_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what the configuration of a cluster on several hosts is copied from."""
    (example, *_) = blocks("docs/internals/node.md", "json")
    path = tmp_path / "node.json"
    path.write_text(example, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    secret = Path(json.loads(example)["secret_file"])
    secret.parent.mkdir()
    secret.touch(mode=0o600)
    secret.write_text("5" * 64)
    config = load_node(path)
    assert len(config.members) == 3
    assert config.data_dir != config.wal_dir
