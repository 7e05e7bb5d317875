"""The needs of executors on other machines besides Python, as one archive: our code, and the libraries that it imports.

Spark unpacks the archive beside each executor, because compiled modules cannot be imported from a zip file. The
libraries come from the installed files of this machine: no package index is asked. For another version of Python pip
downloads the same versions of the libraries. An archive is made once, and again when a file of its content changes.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import Distribution
from pathlib import Path
from typing import Final

from reports.errors import ArchiveError

PACKAGES: Final = ("hdr_buckets", "perftest", "reports")
LIBRARIES: Final = ("hdrhistogram", "numpy", "pyarrow")
"""Libraries that the code in executors imports."""

FOLDER: Final = "perftest-env"
"""The folder beside an executor that Spark unpacks the archive into."""

HERE: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The version of Python on this machine, such as "3.11"."""

_UNUSED: Final = re.compile(
    r"(^|/)(tests|include|__pycache__)/|\.(pyc|pyi|pyx|pxd|pxi|h|hpp|lib|a)$|^pyarrow/libarrow_flight|^pyarrow/libarrow_python_flight"
    r"|^pyarrow/_flight|^\.\.|^/|-nspkg\.pth$"
)
"""Files of the libraries that nothing imports at work."""
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_FAST: Final = 1
"""Compression at a third of the time, for an archive a tenth larger."""
_DOWNLOAD_S: Final = 600.0


def archive_for_executors(cache: Path, python: str = HERE) -> Path:
    """The archive for executors with this version of Python, made on first use.

    :param cache: the directory that archives are kept in
    :param python: version of the Python of the executors, such as "3.12"
    :raises ArchiveError: the archive cannot be made
    """
    folder = cache / "executors"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if python == HERE:
            return _kept(folder, _project_files() | _installed_files())
        with tempfile.TemporaryDirectory(dir=folder) as downloads:
            return _kept(folder, _project_files() | _downloaded_files(Path(downloads), python))
    except OSError as error:
        what = f"the archive for executors cannot be written: {error.strerror or error}"
        fix = "free 200 MB there, or set XDG_CACHE_HOME to another directory"
        raise ArchiveError(what, str(folder), fix) from error


def _kept(folder: Path, files: Mapping[str, Path]) -> Path:
    target = folder / f"{FOLDER}-{_state(files)}.zip"
    if not target.exists():
        _write(target, files)
    return target


def _state(files: Mapping[str, Path]) -> str:
    """The same for two sets of files unless a file is another one, or was changed."""
    seen = hashlib.sha256()
    for name, path in sorted(files.items()):
        found = path.stat()
        seen.update(f"{name}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return seen.hexdigest()[:16]


def _write(target: Path, files: Mapping[str, Path]) -> None:
    """Written beside its place and then renamed: a crash leaves no half archive, and two processes do no harm."""
    descriptor, name = tempfile.mkstemp(dir=target.parent, suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            for each in sorted(files):
                entry = zipfile.ZipInfo(each, _EPOCH)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, files[each].read_bytes(), zipfile.ZIP_DEFLATED, _FAST)
        Path(name).chmod(0o644)
        Path(name).replace(target)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _project_files() -> dict[str, Path]:
    """Our modules. A folder without __init__.py gets none: it is a namespace package."""
    import hdr_buckets
    import perftest.results
    import reports

    roots = {Path(folder) for package in (hdr_buckets, perftest, reports) for folder in package.__path__}
    return {
        path.relative_to(root.parent).as_posix(): path
        for root in sorted(roots)
        if root.name in PACKAGES
        for path in sorted(root.rglob("*.py"))
    }


def _installed_files() -> dict[str, Path]:
    return {name: path for library in LIBRARIES for name, path in _files_of(importlib.metadata.distribution(library))}


def _files_of(distribution: Distribution) -> Iterator[tuple[str, Path]]:
    if distribution.files is None:
        what = f"the installed files of {distribution.name} are not known"
        fix = f"install it with pip: pip install --force-reinstall {distribution.name}"
        raise ArchiveError(what, str(distribution.locate_file("")), fix)
    for each in distribution.files:
        path = Path(str(each.locate()))
        if not _UNUSED.search(each.as_posix()) and path.is_file():
            yield each.as_posix(), path


def _downloaded_files(folder: Path, python: str) -> dict[str, Path]:
    """The libraries for another version of Python, unpacked into ``folder``."""
    if not re.fullmatch(r"3\.\d{1,2}", python):
        raise ArchiveError(f"{python!r} is no version of Python", "--python", "write a version such as 3.12")
    pinned = [f"{each}=={importlib.metadata.version(each)}" for each in LIBRARIES]
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    words += ["--only-binary=:all:", f"--dest={folder}", f"--python-version={python}", "--implementation=cp"]
    abis = [f"--abi={each}" for each in (f"cp{python.replace('.', '')}", "abi3", "none")]
    platforms = [f"--platform={each}_{platform.machine()}" for each in ("manylinux_2_28", "manylinux_2_17")]
    _run_pip([*words, *abis, *platforms, *pinned], python)
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(folder / "libraries")
    root = folder / "libraries"
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    return {name: path for name, path in found.items() if not _UNUSED.search(name)}


def _run_pip(words: list[str], python: str) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_DOWNLOAD_S, check=False)
        said = done.stderr.strip().rpartition("\n")[2] if done.returncode else ""
    except (OSError, subprocess.SubprocessError) as error:
        said = str(error)
    if said:
        what = f"the libraries for Python {python} cannot be had: {said}"
        fix = f"let this machine reach a package index, or use executors with Python {HERE}"
        raise ArchiveError(what, "pip download", fix)
