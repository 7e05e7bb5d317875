"""Results of other tools: their files in, a :class:`~perftest.foreign.measured.ForeignRun` out for each run, and from
there a run directory. A figure that a tool did not record is unknown here, too: no histogram is made of percentiles."""

from __future__ import annotations

from perftest.foreign.formats import read_results

__all__ = ["read_results"]
