"""The archive that executors get, used by a Python that has nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from reports.errors import ArchiveError
from reports.pipeline import executor_archive


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_a_python_without_packages_can_run_our_tasks(cache: Path, tmp_path: Path) -> None:
    """On another machine the archive is all there is: a module missing from it fails every task."""
    with zipfile.ZipFile(executor_archive.archive_for_executors(cache)) as archive:
        archive.extractall(tmp_path)
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import reports.pipeline.tasks, reports.pipeline.large_run_parts, hdrh.histogram
assert all(each.__file__.startswith({str(tmp_path)!r}) for each in (sys.modules["numpy"], sys.modules["pyarrow"]))
assert "pyspark" not in sys.modules and "pandas" not in sys.modules
"""
    answer = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr


def test_the_archive_is_made_once_and_leaves_nothing_half(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A half archive under its final name would break every report from then on."""
    made = executor_archive.archive_for_executors(cache)
    written_ns = made.stat().st_mtime_ns
    assert executor_archive.archive_for_executors(cache) == made and made.stat().st_mtime_ns == written_ns

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    with pytest.raises(ArchiveError, match="No space left"):
        executor_archive.archive_for_executors(tmp_path)
    assert [*tmp_path.rglob("*.zip"), *tmp_path.rglob("*.part")] == []


@pytest.mark.parametrize("version", ["3", "2.7", "three", "3.12.1", ""])
def test_what_is_no_version_is_refused_without_a_download(tmp_path: Path, version: str) -> None:
    with pytest.raises(ArchiveError, match="no version of Python"):
        executor_archive.archive_for_executors(tmp_path, version)
