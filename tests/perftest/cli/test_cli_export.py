"""``perftest export``: files where they are asked for, and errors that name what to ask for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pyarrow.parquet
import pytest

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def place(records: ModuleType, tmp_path: Path) -> str:
    return str(records.write_run(tmp_path / "runs").path)


@pytest.mark.parametrize(
    ("words", "start"),
    [
        (("csv",), "run.id,run.started_ns,"),
        (("csv", "--table", "intervals"), "run.id,run.started_ns,"),
        (("json",), '{\n "run": {\n  "id": '),
        (("hlog", "--series", "e2e", "--step", "2"), "#[Histogram log format version 1.3]\n"),
        (("hgrm", "--series", "e2e", "--step", "2"), "       Value     Percentile"),
        (("perftest",), '{\n "flow_control/in_flight": {'),
    ],
)
def test_text_goes_to_stdout_or_into_a_file(
    call: Call, place: str, tmp_path: Path, words: tuple[str, ...], start: str
) -> None:
    code, out, err = call("export", place, "--format", *words)
    assert code == 0 and out.startswith(start) and not err
    file = tmp_path / "new" / "file"
    assert call("export", place, "--format", *words, "--out", str(file))[0] == 0
    assert file.read_text() == out


def test_histograms_of_several_steps_are_several_files(call: Call, place: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, _, err = call("export", place, "--format", "hgrm", "--out", str(out))
    names = sorted(each.name for each in out.iterdir())
    assert code == 0 and len(names) == 6 == len(err.splitlines())
    assert names[:2] == ["01-in_flight=1.confirm.hgrm", "01-in_flight=1.e2e.hgrm"]


def test_a_parquet_file_has_types(call: Call, place: str, tmp_path: Path) -> None:
    file = tmp_path / "steps.parquet"
    assert call("export", place, "--format", "parquet", "--out", str(file))[0] == 0
    table = pyarrow.parquet.read_table(file)
    assert table.num_rows == 3 and str(table.schema.field("latency.e2e.p99_ns").type) == "int64"


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (("hgrm",), 2, "error: the run has 6 histograms"),
        (("hgrm", "--step", "9"), 2, "fix  the run measured 1, 2, 3"),
        (("hgrm", "--series", "ack"), 1, "error: the run has no such latencies"),
        (("parquet",), 2, "fix  name a file: --out steps.parquet"),
    ],
)
def test_an_error_says_what_to_ask_for(call: Call, place: str, words: tuple[str, ...], code: int, what: str) -> None:
    found, out, err = call("export", place, "--format", *words)
    assert found == code and not out and what in err


def test_a_run_of_another_tool_has_the_figures_that_it_told(call: Call, place: str, tmp_path: Path) -> None:
    """An interval log tells no counts; its latencies are histograms here, too."""
    hlog, out = tmp_path / "e2e.hlog", str(tmp_path / "imported")
    assert call("export", place, "--format", "hlog", "--series", "e2e", "--step", "2", "--out", str(hlog))[0] == 0
    assert call("import-results", str(hlog), "--unit", "ns", "--tag", "e2e=e2e", "--out", out)[0] == 0
    (imported,) = map(str, Path(out).iterdir())
    for name in ("csv", "json", "hlog", "perftest"):
        assert call("export", imported, "--format", name)[0] == 0
    direct = call("export", place, "--format", "hgrm", "--series", "e2e", "--step", "2")[1]
    again = call("export", imported, "--format", "hgrm")[1]
    assert again.splitlines()[:40] == direct.splitlines()[:40], "an import knows no exact maximum"


def test_damage_is_named_and_the_rest_is_exported(call: Call, place: str) -> None:
    with (Path(place) / "latency.hlog").open("a") as log:
        log.write("cut short")
    code, out, err = call("export", place, "--format", "csv")
    assert code == 9 and "damaged: " in err and out.startswith("run.id")


def test_what_is_no_run_is_told(call: Call, tmp_path: Path) -> None:
    code, _, err = call("export", str(tmp_path), "--format", "csv")
    assert code == 1 and "this is not a run" in err
