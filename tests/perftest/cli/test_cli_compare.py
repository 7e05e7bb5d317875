"""``perftest compare``: what a gate in a build pipeline sees."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perftest.cli.compare import FACETS
from perftest.cli.report import LOCAL, Spark, served_comparison
from perftest.results import schema as files
from perftest.results.reader import Run
from reports.comparison.facets import REFUSED
from reports.errors import UnlikeRunsError
from tests.reports.comparison.conftest import make as make
from tests.reports.comparison.conftest import make_side as make_side

Call = Callable[..., tuple[int, str, str]]
Make = Callable[..., Path]


@pytest.mark.parametrize(
    "candidate, expected",
    [
        ({"ms": 2.0}, 0),
        ({"ms": 1.5}, 0),
        ({"ms": 2.6}, 8),
        ({"end": False}, 5),
        ({"prefetch": 7}, 6),
        ({"ms": 2.6, "prefetch": 7}, 6),
        ({"verdict": "violated", "harm": {"lost": 1}}, 3),
    ],
)
def test_the_exit_code_is_the_gate(call: Call, make_side: Make, candidate: dict[str, Any], expected: int) -> None:
    """A pipeline reads nothing else; with --json it is the same."""
    sides = str(make_side("a", seed=1)), str(make_side("b", seed=2, **candidate))
    assert call("compare", *sides)[0] == expected
    code, out, _ = call("compare", *sides, "--json")
    assert code == expected
    assert json.loads(out)["comparable"] is (expected not in (3, 5, 6))


DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "cut": lambda octets: octets[:-9],
    "missing": lambda octets: None,
    "empty": lambda octets: b"",
    "flip": lambda octets: octets[:-4] + bytes([octets[-4] ^ 1]) + octets[-3:],
}


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize(
    "name", [files.INTERVALS_CSV, files.INTERVALS_PARQUET, files.LATENCY_HLOG, files.LEDGER, files.RESULT]
)
def test_a_damaged_file_is_named_and_what_is_left_is_compared(call: Call, make: Make, name: str, how: str) -> None:
    """A spoiled copy of the baseline, and the build would have been green."""
    base, candidate = make("a", seed=1), make("b", seed=2)
    changed = DAMAGE[how]((candidate / name).read_bytes())
    (candidate / name).unlink()
    if changed is not None:
        (candidate / name).write_bytes(changed)
    code, out, err = call("compare", str(base), str(candidate))
    assert code == 9 and err.startswith(f"damaged: {candidate}: {name} ")
    assert "delivered" in out


def test_no_turned_bit_of_a_manifest_ends_in_success_or_in_a_traceback(call: Call, make: Make) -> None:
    """Whatever the bit hits: a key, a figure, the plan, or the checksum itself."""
    base, candidate = make("a", seed=1), make("b", seed=2)
    path = candidate / files.MANIFEST
    sound = path.read_bytes()
    keys = [sound.index(key) + 2 for key in (b'"steps"', b'"number"', b'"hosts"', b'"trust"', b'"broker"')]
    for seed in [*range(100), *(-at for at in keys)]:
        rng = random.Random(seed)
        octets = bytearray(sound)
        octets[-seed if seed < 0 else rng.randrange(len(octets))] ^= 1 << rng.randrange(5)
        path.write_bytes(octets)
        code, _, err = call("compare", str(base), str(candidate))
        assert code in (1, 5, 6, 9) and files.MANIFEST in err, (seed, code, err)
        assert "this is a bug" not in err.lower(), (seed, err)


def test_one_run_a_side_passes_and_says_that_it_is_no_gate(call: Call, make: Make) -> None:
    """Four times the latency, measured once: a gate needs repetitions, or objectives."""
    code, out, err = call("compare", str(make("a", seed=1)), str(make("b", seed=2, ms=8.0)))
    assert (code, err) == (0, "")
    assert "no verdict: 1 run against 1 cannot tell a change from chance" in out
    assert "measure each side 10 times" in out
    assert "perftest run --slo" in out


def test_unlike_runs_are_an_error_that_names_the_key_and_the_way_out(call: Call, make: Make) -> None:
    """And nothing on stdout that looks like a result."""
    code, out, err = call("compare", str(make("a", seed=1)), str(make("b", seed=2, prefetch=7)))
    assert (code, out) == (6, "")
    assert "plan.steps[0].settings.prefetch is 1000 against 7" in err
    assert "--allow plan" in err
    code, out, err = call("compare", str(make("c", seed=1)), str(make("d", seed=2, prefetch=7)), "--allow", "plan")
    assert (code, err) == (0, "")
    assert "differs: plan.steps[0].settings.prefetch: 1000 against 7" in out


def test_the_table_puts_what_got_worse_first(call: Call, make_side: Make) -> None:
    """And says how sure it is."""
    sides = str(make_side("a", seed=1)), str(make_side("b", seed=2, ms=2.6))
    lines = call("compare", *sides)[1].splitlines()
    assert lines[0].split() == ["step", "metric", "baseline", "candidate", "change", "interval", "p", "verdict"]
    assert "▼ regressed" in lines[1]
    assert any("each interval holds with 95 %" in line for line in lines)
    assert call("compare", *sides, "--markdown", "--metric", "p99")[1].startswith("**")


@pytest.mark.parametrize(
    "flags, expected, says",
    [
        (("--noise-latency", "5x"), 2, "is not a part of the whole"),
        (("--allow", "all"), 2, "plan"),
        (("--metric", "p42"), 2, "use delivered, published, e2e.p50"),
        (("--metric", "p9"), 2, "there is no metric 'p9'"),
        (("--metric", "p99", "--metric", "broker_cpu"), 2, "--metric broker_cpu: not every run measured this"),
    ],
)
def test_wrong_options(call: Call, make: Make, flags: tuple[str, ...], expected: int, says: str) -> None:
    """A metric that nothing has compares nothing: that must not pass a gate, and is no finding either."""
    code, _, err = call("compare", str(make("a", seed=1)), str(make("b", seed=2)), *flags)
    assert code == expected
    assert says in err


def test_two_brokers_are_compared_across(call: Call, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """One was started here, the other has a URI: the error has the option, and the option shows the difference."""
    from reports.comparison import compare

    read = compare.runs_of

    def with_one_node(place: Path) -> list[Run]:
        found = read(place)
        found[0].manifest["plan"]["cluster"]["nodes"] = 1 if place == candidate else 3
        return found

    base, candidate = make("a", seed=1), make("b", seed=2)
    monkeypatch.setattr(compare, "runs_of", with_one_node)
    code, out, err = call("compare", str(base), str(candidate))
    assert (code, out) == (6, "") and "or compare nonetheless: --across broker\n" in err
    code, out, err = call("compare", str(base), str(candidate), "--across", "broker")
    assert (code, err) == (0, "") and "differs: plan.cluster.nodes: 3 against 1" in out


def test_a_run_that_is_its_own_base(call: Call, make: Make) -> None:
    """A slip of the hand, which would pass every gate."""
    run = str(make("a", seed=1))
    code, out, err = call("compare", run, run)
    assert (code, out) == (2, "") and "is a run of both sides" in err


def test_a_change_against_the_medians_is_explained(call: Call, make: Make) -> None:
    """The medians fall from 4 to 3.4 ms, the median of all ratios is 3: both are right, and a reader must know how."""
    for side, speeds in (("a", (1.0, 4.0, 4.2)), ("b", (3.0, 3.4, 30.0))):
        for number, ms in enumerate(speeds):
            made = make(side, seed=number, ms=ms)
    code, out, _ = call("compare", str(made.parent.parent / "a"), str(made.parent), "--metric", "e2e p50")
    assert code == 0 and "e2e.p50: baseline and candidate are the medians of each side" in out


def test_a_directory_without_runs(call: Call, tmp_path: Path, make: Make) -> None:
    """Three lines, no traceback."""
    code, _, err = call("compare", str(tmp_path), str(make("a", seed=1)))
    assert code == 1
    assert err.startswith("error: there is no run in it")


def test_two_picked_runs_are_compared_unless_they_are_too_unlike(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison of ``perftest report --serve``: a sentence first, and the page if the reader insists."""
    built: list[tuple[Any, ...]] = []

    def build(result: Any, out: Path, names: tuple[Path, Path], **parts: Any) -> Path:
        built.append((len(result.lines) > 0, out, names, parts))
        return out

    monkeypatch.setattr("perftest.cli.report.build_comparison", build)
    base, candidate, other = make("a", seed=1), make("b", seed=2), make("c", seed=3, prefetch=7)
    made = partial(served_comparison, "store", LOCAL)
    assert made(base, candidate, frozenset(), tmp_path) == tmp_path
    with pytest.raises(UnlikeRunsError) as refused:
        made(base, other, frozenset({"host", "nonsense"}), tmp_path)
    assert refused.value.facets == ("plan",) and "prefetch" in refused.value.differences[0]
    assert made(base, other, frozenset({"plan"}), tmp_path) == tmp_path
    expected = {"store": "store", "spark": LOCAL}
    assert built == [(True, tmp_path, (base, side), expected) for side in (candidate, other)]


def test_what_is_refused_can_be_allowed() -> None:
    """The help has the names without the reports, which take a second to load."""
    assert FACETS == REFUSED


def test_a_page_of_the_comparison_keeps_the_verdict(
    call: Call, make_side: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate stays a gate; with --json the path of the page must not stand in the JSON."""
    from reports.store.store import Store

    def published(runs: list[Path], store: str | None, spark: Spark, *, beside: Path) -> dict[str, Any]:
        with Store.open(beside).publication() as writer:
            writer.land()
        return {"pages": str(beside), "runs": []}

    monkeypatch.setattr("perftest.cli.report.fill_store", published)
    sides = str(make_side("a", seed=1)), str(make_side("b", seed=2, ms=2.6))
    code, out, err = call("compare", *sides, "--out", str(tmp_path / "page"), "--json")
    assert code == 8 and json.loads(out)["comparable"]
    page = tmp_path / "page" / "comparison.html"
    assert str(page) in err and "✕ regressed" in page.read_text(encoding="utf-8")
