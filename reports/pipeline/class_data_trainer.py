"""``python -m reports.pipeline.class_data_trainer``: make the class-data archive for small reports, unless it is there.

Starts Spark as a small report does, lets Spark do one job of the same kind, and has the JVM write the classes that it
loaded when it ends. That takes some 20 s of CPU time, so the process and its JVM run with the lowest priority. Of
several at once one works, and the others end. Nothing is printed, and the exit code is always 0: a report without an
archive is slower, and that is all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from perftest.errors import HelpfulError
from reports.pipeline import class_data
from reports.pipeline.class_data import ClassData
from reports.pipeline.java import cache_directory, find_java
from reports.pipeline.run import computed
from reports.pipeline.session import QUICK_START, spark_session
from reports.pipeline.source import RunDirectory

NEEDED_BYTES: Final = 512 * 1024 * 1024
"""Free space without which nothing is begun: an archive takes 160 MB, Spark's own files a little."""
KEPT: Final = 4
"""Archives that are kept, those used last: of other versions, other environments."""
END_S: Final = 600.0
"""The longest time that the JVM may take for writing the archive."""
TOP, BASE = "top.jsa", "base.jsa"


def main() -> None:
    """Make the archive if it is wanted, possible, and not being made by another process."""
    _lowest_priority()
    try:
        cache = cache_directory(os.environ)
        found = class_data.find_class_data(find_java(os.environ), cache, os.environ)
        if found is not None and found.wanted():
            train(found)
    except (OSError, HelpfulError):
        return


def train(wanted: ClassData) -> bool:
    """Make the archive; whether it was made. A failure is noted, and not tried again for a day.

    :raises OSError: the folder cannot be written
    """
    wanted.folder.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(wanted.folder).free < NEEDED_BYTES:
        return False
    with _alone(wanted.folder) as alone:
        if not alone or not wanted.wanted():
            return False
        for left in wanted.folder.glob("*.part"):
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=wanted.folder, suffix=".part", ignore_cleanup_errors=True) as part:
            made = _make(wanted, Path(part))
        if made:
            _remove_old(wanted.folder)
        else:
            wanted.failed.touch()
        return made


def _make(wanted: ClassData, part: Path) -> bool:
    base = () if wanted.has_base else wanted.base() or _make_base(wanted, part)
    if not (wanted.has_base or base):
        return False
    try:
        options = (*class_data.QUIET, *wanted.with_archive(*base))
        _session_and_job(part, (*options, f"-XX:ArchiveClassesAtExit={part / TOP}"))
    except (HelpfulError, PySparkException, Py4JError, subprocess.SubprocessError):
        return False
    if not _taken(wanted, part, wanted.with_archive(*base, str(part / TOP))):
        return False
    class_data.sealed(part / TOP, wanted.key)
    return True


def _make_base(wanted: ClassData, part: Path) -> tuple[str, ...]:
    # The archive above names the path of this one, so this one has to be at its place before.
    words = ["-Xshare:dump", *QUICK_START, f"-XX:SharedArchiveFile={part / BASE}"]
    if not _java(wanted, part, words) or not (part / BASE).is_file():
        return ()
    return (str(class_data.sealed(part / BASE, f"{wanted.key}-base")),)


def _session_and_job(part: Path, options: tuple[str, ...]) -> None:
    """Run Spark like a small report, to the end of its JVM."""
    # No run: the workers say so, and for the JVM the job is the same.
    name, content = "manifest.json", b"{}"
    place = part / "run"
    place.mkdir()
    (place / name).write_bytes(content)
    nothing = RunDirectory(source=str(place), sizes={name: len(content)}, signature="")
    with spark_session(java_options=options) as spark:
        list(computed(spark, [nothing]))
        gateway: Any = SparkContext._gateway
    gateway.shutdown()
    _end(gateway.proc)


def _end(jvm: subprocess.Popen[bytes]) -> None:
    """Let the JVM write the archive and end. Raises SubprocessError when it does not."""
    if jvm.stdin is not None:
        jvm.stdin.close()
    try:
        jvm.wait(END_S)
    except subprocess.TimeoutExpired:
        jvm.kill()
        raise


def _taken(wanted: ClassData, part: Path, archive: tuple[str, ...]) -> bool:
    """Whether the JVM takes the archive: a disk may have been full meanwhile."""
    words = ["-Xshare:on", "-XX:+VerifySharedSpaces", "-XX:-CreateCoredumpOnCrash", *archive, "-version"]
    return _java(wanted, part, [*QUICK_START, *words])


def _java(wanted: ClassData, part: Path, words: list[str]) -> bool:
    command = [str(wanted.java.executable), *words]
    with suppress(OSError, subprocess.SubprocessError):
        # A JVM that crashes leaves a file in its working directory.
        return not subprocess.run(command, cwd=part, capture_output=True, timeout=END_S, check=False).returncode
    return False


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Whether this process is the only one that makes archives here. The system frees the lock of one that died."""
    with (folder / "lock").open("w") as lock:
        yield _locked(lock)


def _locked(lock: IO[str]) -> bool:
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove_old(folder: Path) -> None:
    """Keep the archives used last, and what lies below them."""
    tops = [path for path in folder.glob("*.jsa") if "-base-" not in path.name]
    tops.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    kept = {path.name.partition("-")[0] for path in tops[:KEPT]}
    for path in folder.glob("*.jsa"):
        if path.name.partition("-")[0] not in kept:
            path.unlink(missing_ok=True)


def _lowest_priority() -> None:
    """For this process and its children."""
    with suppress(OSError):
        os.nice(19)
    if sys.platform == "linux":
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


if __name__ == "__main__":
    main()
