"""The trust list of a run: the checks for and against its figures, worst first; and the result that it completes.

The run makes the list once, at its end, and records it in manifest and result. All that show or judge the run read the
record: terminal and exit code, ``search``, ``compare``, the page, and the list of runs. A run that was killed, and a
run of an earlier version, have no record; then readers make the list by the same functions.

Pure: facts in, checks out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from perftest.metrics.figures import three_figures
from perftest.results.bottleneck import Bottleneck, bottleneck_checks
from perftest.results.foreign import foreign_checks, foreign_of, known_figures
from perftest.results.integrity import Damages
from perftest.results.run_checks import Disturbances, facts_of, run_checks
from perftest.results.schema import SCHEMA_VERSION
from perftest.results.steadiness import Timeline, steady_state
from perftest.results.summary import OPEN
from perftest.results.trust import Check, Facts, Status, of_all_steps, step_checks, worst_first

CLOCK_WARN: Final = 0.1
"""Clock bound between hosts, as a share of the lowest p50, from which on it is warned of. A greater bound makes no
figure wrong: the check ``clock`` of each step names the percentiles below the bound."""
TRUST: Final = "trust"
"""The key of the list, in manifest and result."""
_ONE_RUN: Final = (
    "one repetition: how much a figure varies from run to run is not known, so a difference between steps or runs may"
    " be chance"
)
_DAMAGED: Final = "damaged_records"


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The facts of a run's course for the list, beside rows, ledger and events.

    ``timelines`` has the steady time of each row, ``bottlenecks`` the limits of a run on several hosts, and ``damages``
    what could not be read.
    """

    timelines: Sequence[Timeline] = ()
    bottlenecks: Sequence[Bottleneck] = ()
    damages: Damages = field(default_factory=Damages)


def trust_list(
    run: Facts,
    rows: Sequence[Facts],
    ledger: Mapping[str, Any] | None,
    disturbances: Disturbances,
    course: Course,
    foreign: Mapping[str, Any] | None = None,
) -> list[Check]:
    """The list, worst first. ``run`` has the keys of :func:`~perftest.results.run_checks.facts_of`, and ``foreign`` the
    manifest's facts about another tool that measured the run."""
    last = [damaged_records(course.damages), steady_state(course.timelines)]
    if foreign is not None:
        return worst_first([*foreign_checks(foreign, rows), *last, *_notes(run)])
    found = [*run_checks(run, rows, ledger, disturbances), *of_all_steps(rows), *last]
    return worst_first([*found, _host_clocks(run, rows), *bottleneck_checks(course.bottlenecks), *_notes(run)])


def result_of(
    manifest: Mapping[str, Any],
    rows: Iterable[Facts],
    ledger: Mapping[str, Any] | None,
    disturbances: Disturbances,
    course: Course,
    background: Sequence[Facts] = (),
) -> dict[str, Any]:
    """The content of ``result.json``: the rows, each with its own checks, the trust list of the run, and whether the
    run is ``valid``; and the rows of background loads, which are not judged."""
    foreign = foreign_of(manifest)
    if foreign is not None:
        steps = [{**known_figures(row, foreign), "trust": []} for row in rows]
    else:
        steps = [{**row, "trust": [check.to_json() for check in step_checks(row)]} for row in rows]
    found = trust_list(facts_of(manifest), steps, ledger, disturbances, course, foreign)
    listed = [check.to_list_json() for check in found]
    result = {"schema": SCHEMA_VERSION, "valid": is_valid(found), "steps": steps, TRUST: listed}
    return result | ({"background": list(background)} if background else {})


def recorded_list(record: Mapping[str, Any], damages: Damages) -> list[Check] | None:
    """The list that a run recorded in its manifest, with what was found damaged since; None without a usable list."""
    try:
        found = [Check.from_json(each) for each in record[TRUST]]
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    if not damages:
        return found
    return worst_first([damaged_records(damages) if each.check == _DAMAGED else each for each in found])


def failed(found: Iterable[Check]) -> list[Check]:
    """The checks that failed."""
    return [check for check in found if check.status is Status.FAIL]


def is_valid(found: Iterable[Check]) -> bool:
    """Whether no check failed. Else the run is INVALID."""
    return not failed(found)


def damaged_records(damages: Damages) -> Check:
    """The check of the records themselves."""
    if not damages:
        return Check(_DAMAGED, Status.PASS, "every record of the run could be read")
    said = []
    if damages.files:
        changed = ", ".join(f"{file} {reason}" for file, reason in sorted(damages.files.items()))
        said.append(f"not as the run left it: {changed}; what comes from there may be wrong")
    if damages.records:
        count = sum(damages.records.values())
        files = ", ".join(f"{number} in {file}" for file, number in sorted(damages.records.items()))
        noun = "record was" if count == 1 else "records were"
        said.append(f"{count:,} damaged {noun} set aside ({files}): what they held is missing")
    return Check(_DAMAGED, Status.WARN, "; ".join(said))


def _host_clocks(run: Facts, rows: Sequence[Facts]) -> Check:
    """Can sends on one host be compared with deliveries on another?"""
    bound_ns = int(run.get("clock_bound_ns") or 0)
    if not bound_ns:
        return Check("host_clocks", Status.PASS, "one clock took every time: end-to-end latency has no clock error")
    leading = [row["latency"].get("e2e_sched" if row.get("loop") == OPEN else "e2e", {}) for row in rows]
    lowest_ns = min((float(each["p50_ns"]) for each in leading if each.get("count")), default=0.0)
    text = f"the hosts' clocks agree within {three_figures(bound_ns / 1e6)} ms"
    if not lowest_ns > 0:
        return Check("host_clocks", Status.WARN, f"{text}, and there is no p50 to compare that with")
    text += f", and the lowest p50 is {three_figures(lowest_ns / 1e6)} ms"
    return Check("host_clocks", Status.WARN if bound_ns >= CLOCK_WARN * lowest_ns else Status.PASS, text)


def _notes(run: Facts) -> Iterator[Check]:
    """Notes for a reader who was not there when the run was made."""
    yield Check("repetitions", Status.NOTE, _ONE_RUN)
    if beside := run.get("background"):
        text = f"beside the measured load, and in no figure but those of broker and hosts, ran another: {beside}"
        yield Check("background", Status.NOTE, text)
    said = str(run.get("durability") or "")
    status, meaning = (Status.NOTE, f": {said}") if said else (Status.WARN, " for the safety of a message is unknown")
    yield Check("durability", status, f"what a confirm meant{meaning}")
