"""The software of a host that takes part, as wheels: the project, and the libraries that a worker or a broker node
imports.

A host of the same kind as this machine (Python, processor, C library) gets the libraries of this machine, packed from
their installed files: no package index is asked. For another kind of host pip downloads the same versions, once.

A wheel that is packed here has the same octets whenever it is packed from the same files. So a host that has them
already is sent nothing.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import Distribution
from pathlib import Path, PurePosixPath
from typing import Final

from packaging.requirements import Requirement

import infra
from infra.remote.host import RemoteError
from infra.remote.transfer import file_digest

PROJECT: Final = "quorum-perftest"
PACKAGES: Final = ("hdr_buckets", "perftest", "reference_broker", "infra", "workloads")
"""The packages of the project that a host needs: all except the packages that make reports."""
LIBRARIES: Final = (
    "aiohttp",
    "google-re2",
    "hdrhistogram",
    "numpy",
    "pamqp",
    "prometheus-client",
    "psutil",
    "pydantic",
    "PyYAML",
    "uvloop",
)
"""The libraries that a worker, an observer or a broker node imports."""
FASTER: Final = ("isal",)
"""The libraries that they import if they are there."""

_NOT_FOR_MUSL: Final = ("google-re2",)
"""Libraries without wheels for musl. Only nodes of the bundled broker import them, and these need glibc."""
_ONLY_TO_INSTALL: Final = ("pbr", "setuptools")
"""Packages that libraries name as needed, and nothing imports."""
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_LIBC_OF_PLATFORM: Final = {"glibc": ("manylinux_2_28", "manylinux_2_17", "manylinux2014"), "musl": ("musllinux_1_2",)}
_FAST: Final = 1
"""Compression at a third of the time, for wheels a tenth larger."""
_DOWNLOAD_S: Final = 600.0
_MANYLINUX: Final = {"1": 5, "2010": 12, "2014": 17}
"""The minor version of glibc 2 that the old names of platforms stand for."""
_PACKING: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class HostKind:
    """The facts that decide which wheels a host can use: the version of Python ("3.11"), the processor ("x86_64") and
    the C library ("glibc" or "musl")."""

    python: str
    machine: str
    libc: str

    @classmethod
    def here(cls) -> HostKind:
        """That of this machine."""
        libc = "glibc" if platform.libc_ver()[0] == "glibc" else "musl"
        return cls(f"{sys.version_info.major}.{sys.version_info.minor}", platform.machine(), libc)

    def __str__(self) -> str:
        return f"Python {self.python} on {self.machine} with {self.libc}"


@dataclass(frozen=True)
class Wheel:
    """A wheel in a file of this machine."""

    path: Path

    @cached_property
    def digest(self) -> str:
        """Its SHA-256, in hex."""
        return file_digest(self.path)

    @property
    def oldest_libc(self) -> tuple[int, ...]:
        """The oldest glibc that the wheel runs with; empty if its name tells none."""
        platforms = self.path.stem.rpartition("-")[2]
        old = ((2, _MANYLINUX[year]) for year in re.findall(r"manylinux(2014|2010|1)_", platforms))
        new = ((int(major), int(minor)) for major, minor in re.findall(r"manylinux_(\d+)_(\d+)_", platforms))
        return min((*old, *new), default=())

    @property
    def stored_as(self) -> str:
        """The name under which a host keeps it."""
        return f"{self.digest}-{self.path.name}"


@dataclass(frozen=True)
class Bundle:
    """All wheels for one kind of host."""

    kind: HostKind
    wheels: tuple[Wheel, ...]

    @cached_property
    def digest(self) -> str:
        """The same for two bundles if and only if they have the same wheels."""
        return hashlib.sha256("\n".join(sorted(wheel.stored_as for wheel in self.wheels)).encode()).hexdigest()[:24]

    @property
    def octets(self) -> int:
        """The size of all wheels."""
        return sum(wheel.path.stat().st_size for wheel in self.wheels)

    @property
    def oldest_libc(self) -> tuple[int, ...]:
        """The oldest glibc that all wheels run with, as their names say; empty if no wheel names one."""
        return max((wheel.oldest_libc for wheel in self.wheels), default=())

    def pack(self, wheels: Sequence[Wheel]) -> Path:
        """Some of the wheels as one file, under the names that hosts keep them by. It is made once."""
        names = "\n".join(wheel.stored_as for wheel in wheels)
        target = self.wheels[0].path.parent / f"{hashlib.sha256(names.encode()).hexdigest()[:24]}.tar"
        with _PACKING:  # many hosts ask at the same moment
            if not target.exists():
                beside = target.with_name(f"{target.name}.{os.getpid()}")
                with tarfile.open(beside, "w", format=tarfile.GNU_FORMAT) as pack:
                    for wheel in wheels:
                        _add_file(pack, wheel)
                beside.replace(target)
        return target


def bundle_for(kind: HostKind, cache: Path | None = None) -> Bundle:
    """The wheels for a kind of host, packed or downloaded into ``cache``. Raises RemoteError."""
    place = (cache or default_cache()) / f"cp{kind.python}-{kind.machine}-{kind.libc}"
    place.mkdir(parents=True, exist_ok=True)
    ours = _pack_project(place)
    if kind == HostKind.here():
        return Bundle(kind, (ours, *(_pack_installed(each, place) for each in libraries())))
    return Bundle(kind, (ours, *_download(kind, place)))


class Bundles:
    """Makes the bundle of each kind of host once, at the first request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[HostKind, Bundle] = {}

    def of(self, kind: HostKind) -> Bundle:
        """The bundle for a kind of host. Raises RemoteError."""
        with self._lock:
            if kind not in self._found:
                self._found[kind] = bundle_for(kind)
                _ = self._found[kind].digest
            return self._found[kind]


def _add_file(pack: tarfile.TarFile, wheel: Wheel) -> None:
    """The same octets whenever it is done: no time, no owner."""
    entry = tarfile.TarInfo(wheel.stored_as)
    entry.size = wheel.path.stat().st_size
    with wheel.path.open("rb") as file:
        pack.addfile(entry, file)


def default_cache() -> Path:
    """The directory of bundles between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "perftest" / "wheels"


def libraries() -> list[Distribution]:
    """The installed libraries of :data:`LIBRARIES` and :data:`FASTER`, with all their requirements, in order of their
    names."""
    found: dict[str, Distribution] = {}
    waiting = [*LIBRARIES, *(name for name in FASTER if _is_installed(name))]
    while waiting:
        name = _normal(waiting.pop())
        if name not in found and name not in _ONLY_TO_INSTALL:
            found[name] = importlib.metadata.distribution(name)
            waiting += _needed(found[name])
    return [found[name] for name in sorted(found)]


def _is_installed(name: str) -> bool:
    return any(True for _ in importlib.metadata.distributions(name=name))


def _needed(distribution: Distribution) -> Iterator[str]:
    """The requirements of a distribution here, without any extra."""
    for text in distribution.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# Packing


def project_version() -> str:
    """The version of the project here, with a digest of its content: two commits may have one version."""
    content = hashlib.sha256()
    for name, path in _project_files().items():
        content.update(f"{name}\0{file_digest(path)}\n".encode())
    return f"{importlib.metadata.version(PROJECT)}+{content.hexdigest()[:12]}"


def _project_files() -> dict[str, Path]:
    root = Path(infra.__file__).parent.parent
    return {
        path.relative_to(root).as_posix(): path
        for package in PACKAGES
        for path in sorted((root / package).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def _pack_project(place: Path) -> Wheel:
    """The project's own code."""
    files, version, stem = _project_files(), importlib.metadata.version(PROJECT), PROJECT.replace("-", "_")
    target = place / f"{stem}-{project_version()}-py3-none-any.whl"
    if not target.exists():
        info = f"{stem}-{version}.dist-info"
        about_us = importlib.metadata.distribution(PROJECT)
        # In a checkout, the folder that setuptools leaves there may be found first.
        metadata = about_us.read_text("METADATA") or about_us.read_text("PKG-INFO") or ""
        about = {f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": _wheel_file("py3-none-any")}
        _write_wheel(target, info, files, about)
    return Wheel(target)


def _pack_installed(distribution: Distribution, place: Path) -> Wheel:
    """An installed distribution as a wheel again, without scripts and compiled files."""
    named = distribution.files
    if named is None:
        what = f"the installed files of {distribution.name} are not known"
        raise RemoteError(
            what, str(distribution.locate_file("")), f"install it with pip: pip install {distribution.name}"
        )
    files = {
        path.as_posix(): Path(str(path.locate()))
        for path in named
        if path.suffix != ".pyc" and ".." not in path.parts and path.name not in ("RECORD", "INSTALLER", "REQUESTED")
    }
    info = next(PurePosixPath(name).parts[0] for name in files if name.endswith(".dist-info/METADATA"))
    tags = re.findall(r"^Tag: (\S+)$", distribution.read_text("WHEEL") or "", re.MULTILINE)
    stem = info.removesuffix(".dist-info")
    target = place / f"{_state_of(files)}" / f"{stem}-{_compressed(tags)}.whl"
    if not target.exists():
        _write_wheel(target, info, files, {})
    return Wheel(target)


def _state_of(files: dict[str, Path]) -> str:
    """Another name as soon as a file was changed by hand, or by another installation of one version."""
    seen = hashlib.sha256()
    for name, path in sorted(files.items()):
        found = path.stat()
        seen.update(f"{name}\0{path}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return seen.hexdigest()[:12]


def _compressed(tags: Sequence[str]) -> str:
    """The tags of a wheel as the end of its name: each part with all its values."""
    parts = zip(*(tag.split("-") for tag in tags or ["py3-none-any"]), strict=True)
    return "-".join(".".join(dict.fromkeys(part)) for part in parts)


def _wheel_file(tag: str) -> bytes:
    return f"Wheel-Version: 1.0\nGenerator: perftest\nRoot-Is-Purelib: true\nTag: {tag}\n".encode()


def _write_wheel(target: Path, info: str, files: dict[str, Path], about: dict[str, bytes]) -> None:
    """Write a wheel beside its place, then give it its name. The same files make the same octets."""
    target.parent.mkdir(exist_ok=True)
    beside = target.with_name(f"{target.name}.{os.getpid()}")
    record = []
    with zipfile.ZipFile(beside, "w") as wheel:
        for name in sorted([*files, *about]):
            octets = about[name] if name in about else files[name].read_bytes()
            _add(wheel, name, octets)
            digest = base64.urlsafe_b64encode(hashlib.sha256(octets).digest()).decode().rstrip("=")
            record.append(f"{name},sha256={digest},{len(octets)}")
        _add(wheel, f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]).encode())
    beside.replace(target)


def _add(wheel: zipfile.ZipFile, name: str, octets: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.external_attr = 0o644 << 16
    wheel.writestr(entry, octets, zipfile.ZIP_DEFLATED, _FAST)


# Downloading


def _download(kind: HostKind, place: Path) -> list[Wheel]:
    """The libraries in the versions of this machine, for another kind of host."""
    wanted_for = [each for each in libraries() if kind.libc != "musl" or _normal(each.name) not in _NOT_FOR_MUSL]
    pinned = [f"{each.name}=={each.version}" for each in wanted_for]
    wanted = place / f"{hashlib.sha256(' '.join(pinned).encode()).hexdigest()[:12]}"
    if not (wanted / "complete").exists():
        platforms = [f"--platform={libc}_{kind.machine}" for libc in _LIBC_OF_PLATFORM[kind.libc]]
        abi = f"cp{kind.python.replace('.', '')}"
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        words += ["--only-binary=:all:", f"--dest={wanted}", "--implementation=cp", f"--python-version={kind.python}"]
        words += [f"--abi={abi}", "--abi=abi3", "--abi=none", *platforms, *pinned]
        _run_pip(words, kind)
        (wanted / "complete").touch()
    return [Wheel(path) for path in sorted(wanted.glob("*.whl"))]


def _run_pip(words: Iterable[str], kind: HostKind) -> None:
    try:
        done = subprocess.run([*words], capture_output=True, text=True, timeout=_DOWNLOAD_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise _no_wheels(kind, str(error)) from error
    if done.returncode:
        reached = "Retrying (" not in done.stderr
        raise _no_wheels(kind, done.stderr.strip().rpartition("\n")[2], reached=reached)


def _no_wheels(kind: HostKind, why: str, *, reached: bool = False) -> RemoteError:
    """pip says the same of a wheel that there is not and of an index that it did not reach; only ``reached`` tells."""
    here = HostKind.here()
    missing = re.search(r"No matching distribution found for (\S+)", why)
    if missing and reached:
        what = f"there is no wheel of {missing[1]} for {kind}"
        return RemoteError(what, "package index", f"use hosts with {here}, or install another version of it here")
    fix = f"let this machine reach a package index, or use hosts with {here}, for which none is needed"
    return RemoteError(f"the libraries for {kind} cannot be had: {why}", "pip download", fix)
