"""The observer of a host: facts first, then samples, and an end with its stdin."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_an_observer_tells_facts_and_samples_until_its_stdin_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "infra.remote.observer", "load1", str(tmp_path), "0.02"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as observer:
        assert observer.stdin is not None and observer.stdout is not None
        facts = json.loads(observer.stdout.readline())["facts"]
        samples = [json.loads(observer.stdout.readline()) for _ in range(3)]
        observer.stdin.write("a word that means nothing\n")
        observer.stdin.flush()
        samples.append(json.loads(observer.stdout.readline()))
        observer.stdin.close()
        assert observer.wait(timeout=30) == 0
    assert facts["name"] == "load1" and facts["cores"] >= 1 and facts["tool"]["python"]
    assert {sample["host"] for sample in samples} == {"load1"}
    times = [sample["t_ns"] for sample in samples]
    assert times == sorted(times)
    for name in ("rx_bytes", "tx_bytes", "disk_read_bytes", "disk_write_bytes"):
        counts = [sample[name] for sample in samples]
        assert counts == sorted(counts), f"{name} counts up"


def test_an_observer_ends_when_nobody_listens(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "infra.remote.observer", "load1", str(tmp_path), "0.01"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as observer:
        assert observer.stdout is not None and observer.stderr is not None
        observer.stdout.readline()
        observer.stdout.close()
        assert observer.wait(timeout=30) is not None
        assert not observer.stderr.read()
