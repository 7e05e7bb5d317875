"""Shared by the tests of the reports: synthetic run directories, hand-made tables, an object storage."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest


def _load(name: str) -> ModuleType:
    """Import a module of tests/reports/testing: test folders are not packages and not on the path."""
    full = f"reports_testing_{name}"
    if full in sys.modules:
        return sys.modules[full]
    spec = importlib.util.spec_from_file_location(full, Path(__file__).parent / "testing" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def synthetic_runs() -> ModuleType:
    """The module with ``make_run``, ``Shape`` and the histogram helpers."""
    return _load("synthetic_runs")


@pytest.fixture(scope="session")
def make_run(synthetic_runs: ModuleType) -> Callable[..., Path]:
    """``make_run(path, **fields of Shape)`` writes a run directory and returns its path."""
    result: Callable[..., Path] = synthetic_runs.make_run
    return result


@pytest.fixture(scope="session")
def sample_tables() -> ModuleType:
    """The module with ``Sample``, ``tables`` and the ready samples."""
    return _load("sample_tables")


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    """The endpoint of an S3 server of the tests."""
    moto = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of a new bucket; the environment leads to its server."""
    import boto3

    for name, value in {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "of-the-tests",
        "AWS_SECRET_ACCESS_KEY": "of-the-tests",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_SESSION_TOKEN", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    made = f"b{abs(hash(request.node.nodeid)):x}"
    boto3.client("s3", endpoint_url=s3_server, region_name="us-east-1").create_bucket(Bucket=made)
    return made


@pytest.fixture(scope="session")
def sample_comparisons() -> ModuleType:
    """The module with ``judged`` and ``page``: a comparison with a row for each verdict."""
    return _load("sample_comparisons")
