"""Metrics of a running load over HTTP, as ``-mpr`` and its companions ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perftest.cli.exits import CliError
from perftest.metrics.interval import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Where they are served, how they are called, and what stands on each."""

    host: str = "127.0.0.1"
    port: int = 8080
    path: str = "/metrics"
    prefix: str = "perftest_"
    labels: Mapping[str, str] = field(default_factory=dict)
    exposed: Mapping[str, float] = field(default_factory=dict)
    command: str = ""


class Served:
    """An endpoint that is open until :meth:`close`."""

    def __init__(self, metrics: Metrics) -> None:
        """Open the port. Raises CliError."""
        # prometheus-client is imported where somebody wants metrics only.
        from perftest.results.exposition import Endpoint, RunCollector

        self._collector = RunCollector(
            prefix=metrics.prefix, labels=metrics.labels, command=metrics.command, exposed=metrics.exposed
        )
        try:
            self._endpoint = Endpoint(self._collector, host=metrics.host, port=metrics.port, path=metrics.path)
        except (OSError, OverflowError) as error:
            what = f"metrics cannot be served: {getattr(error, 'strerror', None) or error}"
            fix = "choose another port with -mpp, another address with --metrics-host, or leave out -mpr"
            raise CliError(what, f"{metrics.host}:{metrics.port}", fix) from error

    def interval(self, record: Interval) -> None:
        """What happened in an interval of one worker."""
        self._collector.interval(record)

    def close(self) -> None:
        """No more answers."""
        self._endpoint.close()
