"""``perftest workload import``: convert loads of other tools into workload files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from perftest.cli.sections import SectionedCommand, json_option, option
from perftest.exits import CliError, Exit, explained

if TYPE_CHECKING:
    from perftest.importers.notes import Imported
    from perftest.spec.problem import Problem

_ABOVE_MAX: Final = 4
"""Number of directories above a playlist that are looked into: it lies in orchestration/run/playlists/…"""


@click.command(
    "import",
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR,),
    examples=(
        "perftest workload import 'perf-test -x 2 -y 4 -u q -qq -c 100 -z 60' -o mine.yaml",
        "perftest workload import playlists/flow.json --topologies topologies -o flow/   of RabbitTestTool",
        "perftest workload import workloads/1-topic-1kb.yaml --json                      of OpenMessaging Benchmark",
    ),
)
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@option(
    "-o",
    "--output",
    section="Output",
    type=click.Path(path_type=Path),
    default=None,
    help="File to write, or a directory if several workloads are written.  [default: stdout]",
)
@option(
    "--topologies",
    section="Load",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Directory of the playlist's topologies; its policies are looked for beside it.  [default: near the playlist]",
)
@option(
    "--strict",
    section="Judgement",
    is_flag=True,
    help="End with exit code 2 if a part of the source has no equivalent.",
)
@json_option
@click.pass_context
def import_(
    ctx: click.Context,
    /,
    sources: tuple[str, ...],
    output: Path | None,
    topologies: Path | None,
    strict: bool,
    as_json: bool,
) -> None:
    """Convert loads of PerfTest, RabbitTestTool or OpenMessaging Benchmark into workload files.

    SOURCE is a PerfTest command line in quotes, or a file: a script of such lines, a playlist, a topology or a
    workload. A note on stderr and in the file names each part of the source whose meaning changed or which has no
    equivalent.
    """
    from perftest.importers.notes import Level
    from perftest.options.command_line_import import INLINE
    from perftest.spec.problem import SpecError

    imported: list[tuple[str, Imported]] = []
    problems = []
    for source in sources:
        try:
            imported.append((source if _is_file(Path(source)) else INLINE, _import(source, topologies)))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    files = _files(imported, output)
    notes = [note for _, each in imported for note in each.notes]
    if as_json:
        click.echo(json.dumps(_records(imported, files), indent=1, ensure_ascii=False))
    else:
        for note in notes:
            click.echo(note.lines(), err=True)
    _write(files, output, quiet=as_json)
    if strict and any(note.level is not Level.DIFFERENT for note in notes):
        ctx.exit(Exit.USAGE)


def _import(source: str, topologies: Path | None) -> Imported:
    """The workloads of one source. Raises SpecError if the generator would refuse a workload."""
    from perftest.importers.write import problems_of
    from perftest.options.command_line_import import refused
    from perftest.spec.problem import SpecError

    try:
        found = _converted(source, topologies)
    except SpecError as error:
        raise SpecError([_with_line(each) for each in error.problems]) from error
    problems = [each for workload in found.workloads for each in problems_of(workload.content, source[:60])]
    if problems:
        raise refused(problems)
    return found


def _with_line(problem: Problem) -> Problem:
    """The problem with the line of its key in the file that a person wrote, if the key can be found there."""
    from perftest.importers.write import line_of

    if problem.line is not None or not problem.path or not _is_file(Path(problem.file)):
        return problem
    with suppress(OSError, UnicodeDecodeError):
        return replace(problem, line=line_of(problem.path, Path(problem.file).read_text(encoding="utf-8-sig")))
    return problem


def _converted(source: str, topologies: Path | None) -> Imported:
    from perftest.importers.command_line import is_command_line
    from perftest.importers.openmessaging import import_openmessaging, is_openmessaging
    from perftest.importers.perftest_multi import is_multi
    from perftest.importers.rabbittesttool import import_playlist, import_topology, is_playlist, is_topology
    from perftest.options.command_line_import import INLINE, import_command_lines, import_scenarios

    path = Path(source)
    if not _is_file(path):
        if is_command_line(source):
            return import_command_lines(source, INLINE)
        fix = "give a file that can be read, or a command line in quotes: 'perf-test -x 1 -y 2'"
        raise CliError(f"this is neither a file nor a command line of PerfTest: {source}", "SOURCE", fix, Exit.USAGE)
    text, data = _read(path)
    if is_multi(data):
        return import_scenarios(data, source)
    if is_playlist(data):
        return import_playlist(text, source, _Neighbours(path, topologies).text_of)
    if is_topology(data):
        return import_topology(text, source)
    if is_openmessaging(data):
        return import_openmessaging(text, source, _Neighbours(path, None).path_of)
    if data is None and is_command_line(text):
        return import_command_lines(text, source)
    what = "this is neither a playlist, nor a topology, nor a workload of OpenMessaging, nor a command line"
    fix = "a playlist has benchmarks, a topology topologyGroups, a workload topics; a command line names perf-test"
    raise CliError(what, source, fix, Exit.USAGE)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a long command line is no path
        return False


def _read(path: Path) -> tuple[str, Any]:
    """The text of a file, and its content as JSON or YAML; None if the text is neither."""
    import yaml

    with explained("the source cannot be read", path, "give a text file that can be read", Exit.USAGE):
        text = path.read_text(encoding="utf-8-sig")
    try:
        return text, json.loads(text)
    except json.JSONDecodeError as error:
        if path.suffix == ".json":
            fix = f"correct line {error.lineno}"
            raise CliError(f"this is not JSON: {error.msg}", f"{path}:{error.lineno}", fix, Exit.USAGE) from error
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError:
        data = _loosely(text)
    return text, data if isinstance(data, dict) else None


def _loosely(text: str) -> dict[str, Any]:
    """The keys of a text that is nearly YAML, so that the right importer can say what is wrong with the text."""
    return {line.partition(":")[0]: None for line in text.splitlines() if ":" in line and line[:1].isalpha()}


def _files(imported: list[tuple[str, Imported]], output: Path | None) -> list[tuple[Path | None, str]]:
    """The path that each workload is written to, and its text."""
    from perftest.importers.write import to_yaml

    found = [(source, workload) for source, each in imported for workload in each.workloads]
    single = output is not None and output.suffix in (".yaml", ".yml")
    if single and len(found) > 1:
        what = f"{len(found)} workloads do not fit into one file"
        raise CliError(what, f"-o {output}", "give a directory", Exit.USAGE)
    files: list[tuple[Path | None, str]] = []
    for source, workload in found:
        name = workload.content["name"]
        place = None if output is None else output if single else output / f"{name}.yaml"
        if place is not None and place in [path for path, _ in files]:
            fix = "import them into directories of their own"
            raise CliError(f"two workloads have the name {name}", str(place), fix, Exit.USAGE)
        files.append((place, to_yaml(workload.content, source, workload.notes)))
    return files


def _records(imported: list[tuple[str, Imported]], files: list[tuple[Path | None, str]]) -> list[dict[str, Any]]:
    places = iter(files)
    return [
        {
            "source": source,
            "workloads": [_record(workload.content, next(places)) for workload in each.workloads],
            "notes": [note.to_json() for note in each.notes],
        }
        for source, each in imported
    ]


def _record(workload: dict[str, Any], file: tuple[Path | None, str]) -> dict[str, Any]:
    path, _ = file
    return {"file": str(path)} | workload if path is not None else workload


def _write(files: list[tuple[Path | None, str]], output: Path | None, *, quiet: bool) -> None:
    if output is None:
        if not quiet:
            click.echo("---\n".join(text for _, text in files), nl=False)
        return
    for path, text in files:
        assert path is not None
        with explained("the workload cannot be written", path, "give a place that can be written to with -o"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if not quiet:
            click.echo(str(path))


class _Neighbours:
    """The files that a source names, looked for where its tool has them."""

    def __init__(self, source: Path, topologies: Path | None) -> None:
        self._source = source
        self._topologies = topologies

    def path_of(self, name: str) -> str | None:
        """The path of a file, beside the source or above it; None if there is none."""
        for directory in [Path(), self._source.parent, *self._source.parents[1 : _ABOVE_MAX + 1]]:
            if (directory / name).is_file():
                return str(directory / name)
        return None

    def text_of(self, kind: str, name: str) -> tuple[str, str] | None:
        """Path and text of a topology or a policy; None if there is none, or it cannot be read."""
        for directory in self._directories(kind):
            path = directory / name
            if path.is_file():
                return _shown_path(path), path.read_text(encoding="utf-8-sig", errors="replace")
        return None

    def _directories(self, kind: str) -> Iterator[Path]:
        """The directories for files of a kind: as the tool has it, ``topologies`` and ``policies`` are neighbours."""
        if self._topologies is not None:
            neighbour = self._topologies.resolve().parent / kind
            yield from (self._topologies,) if kind == "topologies" else (neighbour, self._topologies / kind)
            yield self._topologies
            return
        for parent in [*self._source.resolve().parents][: _ABOVE_MAX + 1]:
            yield from (parent / kind, parent / "benchmark" / kind)
        yield self._source.parent


def _shown_path(path: Path) -> str:
    """As a person would name it from here."""
    here = Path.cwd()
    return str(path.resolve().relative_to(here)) if path.resolve().is_relative_to(here) else str(path)
