"""Fixtures of the command's tests: synthetic records, and an engine that replays them."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perftest.engine.api import BrokerProperties, RunError, RunOutcome, Sink, StopRequest
from perftest.spec import Plan


def _load_records() -> ModuleType:
    """The records of the run directory's tests; test files are no packages, so they are loaded by their path."""
    path = Path(__file__).parent.parent / "results" / "records.py"
    spec = importlib.util.spec_from_file_location("cli_records", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_RECORDS = _load_records()


@pytest.fixture
def records() -> ModuleType:
    """Makes synthetic intervals and run directories."""
    return _RECORDS


class FakeEngine:
    """Replays synthetic intervals for whatever plan it gets, and ends as it was told to."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.verdict = "ok"
        self.broker = BrokerProperties(product="RabbitMQ", version="3.10.8")
        self.lost = 0
        self.worker_cpu_ns = _RECORDS.SECOND // 10
        self.messages = 500
        self.state: Any = "finished"
        self.error: RunError | None = None
        self.interrupts = 0
        self.raises: Exception | None = None
        self.silent = False
        self.endless = False
        self.stops: list[tuple[bool, bool]] = []

    async def execute(self, plan: Plan, sink: Sink, stop: StopRequest, **timeline: Any) -> RunOutcome:
        self.plans.append(plan)
        if self.raises is not None:
            raise self.raises
        for record in () if self.silent else _RECORDS.intervals(plan, messages=self.messages):
            sink.event({"t_ns": record.start_ns, "kind": "step_started", "step": record.step, "label": "x"})
            sink.interval(replace(record, worker_cpu_ns=self.worker_cpu_ns))
        while self.endless and not stop.aborting:
            await asyncio.sleep(0)
        for _ in range(self.interrupts):
            before = (stop.finishing, stop.aborting)
            os.kill(os.getpid(), signal.SIGINT)
            while (stop.finishing, stop.aborting) == before:
                await asyncio.sleep(0)
            self.stops.append((stop.finishing, stop.aborting))
        if self.broker != BrokerProperties():
            sink.ledger(_RECORDS.ledger(self.verdict, lost=self.lost))
        state: Any = "interrupted" if stop.finishing else self.state
        return RunOutcome(state=state, error=self.error, broker=self.broker)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """The engine's place taken by a :class:`FakeEngine`."""
    from perftest.measuring import session

    fake = FakeEngine()
    monkeypatch.setattr(session, "execute", fake.execute)
    return fake


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command line in this process: exit code, stdout, stderr."""
    from perftest.cli.main import call as run

    def command(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run(list(arguments))
        out, err = capfd.readouterr()
        return code, out, err

    return command
