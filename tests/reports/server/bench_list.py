"""The list of many runs: ``python -m tests.reports.server.bench_list [RUNS]``.

Prints how long the server takes to read all runs, and how long some lists take then. The runs have the records that the
list reads, and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiohttp import ClientSession, web

from perftest.results.schema import MANIFEST, RESULT, SCHEMA_VERSION
from reports.server.app import LOOPBACK, ReportServer, Served
from reports.store.locations import location_of

STEPS = 6
LISTS = ("/", "/?name=load_1", "/?q=rabbitmq+quorum", "/?page=60", "/?verdict=invalid&since=2026-11-01", "/?tag=none")
REQUESTS = 5


def check(number: int, status: str) -> dict[str, str]:
    return {"check": f"check_{number}", "status": status, "text": "a sentence about what was found, with its figures"}


def records(number: int) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The name, manifest and result of a run; one starts every 15 minutes, backwards."""
    started_s = 1_795_986_436 - 900 * number
    name = f"{datetime.fromtimestamp(started_s, UTC):%Y%m%d-%H%M%S}-load-{number:04x}"
    trust = [check(at, "fail" if at == 0 and number % 17 == 0 else "pass") for at in range(23)]
    settings = {f"setting_{at}": at for at in range(12)}
    steps = [{"number": at, "label": f"in_flight={at}", "settings": settings} for at in range(STEPS)]
    plan = {"name": f"load_{number % 3}", "steps": steps, "queues": [{"type": ("quorum", "classic")[number % 2]}]}
    latency = {f"p{at}_ns": 10**6 + number for at in (50, 75, 95, 99, 999, 9999)} | {"count": 9}
    row = {"settings": settings, "loop": "closed", "delivered_per_s": 1e4 + number, "trust": trust}
    rows = [row | {"step": at, "latency": dict.fromkeys(("e2e", "confirm", "ack"), latency)} for at in range(STEPS)]
    manifest = {"schema": SCHEMA_VERSION, "id": name, "state": "finished", "started_ns": started_s * 10**9}
    manifest |= {"plan": plan, "broker": {"product": "RabbitMQ", "version": f"4.{number % 4}"}, "trust": trust}
    return name, manifest, {"steps": rows, "trust": trust}


def write(folder: Path, count: int) -> None:
    """Write that many runs."""
    for number in range(count):
        name, manifest, result = records(number)
        (folder / name).mkdir()
        (folder / name / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        (folder / name / RESULT).write_text(json.dumps(result, indent=1), encoding="utf-8")


def no_page(*asked: object) -> Path:
    raise AssertionError(asked)


async def measure(folder: Path) -> None:
    """Print the times."""
    served = Served(
        folder=folder, store=location_of(folder / ".store"), make_page=no_page, make_comparison=no_page, patience_s=None
    )
    runner = web.AppRunner(ReportServer(served).app(), access_log=None)
    begun_s = time.perf_counter()
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, 0).start()
    async with ClientSession(f"http://{LOOPBACK}:{runner.addresses[0][1]}", trust_env=False) as session:
        await answer_s(session, "/")
        sys.stdout.write(f"{time.perf_counter() - begun_s:6.2f} s  all runs are read\n")
        for path in LISTS:
            times = sorted([await answer_s(session, path) for _ in range(REQUESTS)])
            sys.stdout.write(f"{times[0]:6.2f} to {times[-1]:.2f} s  {path}\n")
    await runner.cleanup()


async def answer_s(session: ClientSession, path: str) -> float:
    """Seconds from a request to the end of its answer."""
    begun_s = time.perf_counter()
    async with session.get(path) as answer:
        await answer.read()
    return time.perf_counter() - begun_s


if __name__ == "__main__":
    with TemporaryDirectory() as place:
        write(Path(place), int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
        asyncio.run(measure(Path(place)))
