"""The dashboards of docs/grafana: what they ask for is served, and each panel has its place."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from perftest.telemetry.prometheus import RunCollector

FOLDER = Path(__file__).parents[3] / "docs" / "grafana"
NAMES = ("run", "broker")
_METRIC = re.compile(r"\b(?:perftest|process|rabbitmq|reference_broker)_\w+")
_SUFFIX = re.compile(r"_(?:total|bucket|count|sum|info)$")


def dashboard(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FOLDER.joinpath(f"{name}.json").read_text(encoding="utf-8"))
    return found


def expressions(name: str) -> Iterator[str]:
    """Every query of a dashboard."""
    for panel in dashboard(name)["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def asked(name: str) -> set[str]:
    """The families of metrics that a dashboard asks for."""
    variables = (each["query"]["query"] for each in dashboard(name)["templating"]["list"] if each["type"] == "query")
    found = (match for text in (*expressions(name), *variables) for match in _METRIC.findall(text))
    return {_SUFFIX.sub("", each) for each in found}


def test_the_dashboard_of_a_run_asks_for_what_runs_serve() -> None:
    """A renamed metric leaves an empty panel, which nobody sees until it is needed."""
    served = {family.name for family in RunCollector().collect()}
    assert asked("run") <= served and len(asked("run")) > 8


@pytest.mark.parametrize("name", NAMES)
def test_panels_lie_side_by_side_and_ask_the_chosen_prometheus(name: str) -> None:
    board = dashboard(name)
    assert (board["uid"], board["schemaVersion"]) == (f"perftest-{name}", 39)
    taken = [
        (panel["gridPos"]["x"] + column, panel["gridPos"]["y"] + row)
        for panel in board["panels"]
        for column in range(panel["gridPos"]["w"])
        for row in range(panel["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken)) and max(column for column, _ in taken) < 24
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in board["panels"]:
        assert panel["title"] and panel["datasource"]["uid"] == "${datasource}"
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == sorted(set(letters)) and letters


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (apt-get install prometheus)")
@pytest.mark.parametrize("name", NAMES)
def test_prometheus_reads_every_query(name: str, tmp_path: Path) -> None:
    """By the parser of Prometheus, with values in the place of Grafana's variables."""
    values = {"$__rate_interval": "1m", "$job": ".*", "$instance": ".*"}
    rules = []
    for number, text in enumerate(expressions(name)):
        for variable, value in values.items():
            text = text.replace(variable, value)
        rules.append({"record": f"query:number{number}", "expr": text})
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": name, "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
