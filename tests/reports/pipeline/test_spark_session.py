"""What a session is given, without starting one."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from reports.errors import SettingError, SparkError
from reports.pipeline import executors, masters, session


@pytest.mark.parametrize(
    ("master", "inside"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[2]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://h:1", False),
    ],
)
def test_only_a_real_cluster_leaves_the_loopback(tmp_path: Path, master: str, inside: bool) -> None:
    """A report on a laptop must not listen on its network; executors elsewhere must reach the driver."""
    settings = session._settings(master, tmp_path, small=True)
    assert (settings.get("spark.driver.bindAddress") == session.LOOPBACK) is inside
    assert ("SPARK_LOCAL_IP" in session._variables(master, tmp_path, {})) is inside
    assert ("-XX:TieredStopAtLevel=1" in settings["spark.driver.extraJavaOptions"]) is inside


def test_a_large_job_keeps_sparks_own_defaults(tmp_path: Path) -> None:
    """The first compiler tier alone and a fixed plan cost a long job far more than they save at its start."""
    small, large = (session._settings("local[*]", tmp_path, small=small) for small in (True, False))
    assert small["spark.sql.adaptive.enabled"] == "false"
    assert "spark.sql.adaptive.enabled" not in large and "spark.sql.shuffle.partitions" not in large
    assert "TieredStopAtLevel" not in large["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[2,3]", "local-cluster[2,1,1024]", "yarn", "k8s://https://h:6443"]
)
def test_masters_that_need_no_look(master: str) -> None:
    masters.check_master(master)


@pytest.mark.parametrize(
    "master", ["", "localhost", "spark://", "spark://h", "http://h:1", "local[x]", "spark://h:1 x"]
)
def test_what_is_no_master_is_named(master: str) -> None:
    with pytest.raises(SettingError, match="is no Spark master"):
        masters.check_master(master)


def test_a_master_that_does_not_answer_is_told_before_java_is_started() -> None:
    """Spark itself waits a minute, and then says that all masters are unresponsive."""
    with socket.socket() as unheard:
        unheard.bind((session.LOOPBACK, 0))
        port = unheard.getsockname()[1]
        with pytest.raises(SparkError, match="does not answer"):
            masters.check_master(f"spark://{session.LOOPBACK}:{port}")
        unheard.listen()
        masters.check_master(f"spark://{session.LOOPBACK}:{port}")


def test_executors_elsewhere_run_the_python_that_their_owner_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python3")
    assert session._variables("spark://h:1", tmp_path, {})["PYSPARK_PYTHON"] == "/opt/python3"
    assert session._variables("local[*]", tmp_path, {})["PYSPARK_PYTHON"] == sys.executable


def test_executors_are_told_what_the_environment_says() -> None:
    """Nobody has to name a service twice; and only who asks for an object storage hands credentials around."""
    environ = {"AWS_ENDPOINT_URL": "http://s3", "AWS_REGION": "eu-1", "AWS_SECRET_ACCESS_KEY": "", "HOME": "/x"}
    assert executors.environment(["s3://b/x", "/x"], environ) == {
        "spark.executorEnv.AWS_ENDPOINT_URL": "http://s3",
        "spark.executorEnv.AWS_REGION": "eu-1",
    }
    assert executors.environment(["runs", "hdfs://n/x", "file:/x"], environ) == {}


def test_settings_of_the_command_line() -> None:
    """Values may hold '=' themselves, as Java options do."""
    given = ["spark.executor.memory=2g", "spark.driver.extraJavaOptions=-Da=b"]
    assert session.parse_conf(given) == {"spark.executor.memory": "2g", "spark.driver.extraJavaOptions": "-Da=b"}


@pytest.mark.parametrize("setting", ["spark.executor.memory", "executor.memory=2g", ""])
def test_a_malformed_setting_is_named(setting: str) -> None:
    """Spark itself ignores a setting it does not know."""
    with pytest.raises(SettingError, match="no Spark setting"):
        session.parse_conf([setting])


def test_a_cluster_gets_our_archive_unless_it_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 MB are neither made nor sent for those who put the archive on their own file system."""
    archive = tmp_path / "made.zip"
    monkeypatch.setattr(session, "archive_for_executors", lambda cache: archive)
    assert session.shipped(tmp_path, {})["spark.archives"] == f"{archive.as_uri()}#perftest-env"
    own = session.shipped(tmp_path, {"spark.archives": "hdfs:///env.zip#perftest-env"})
    assert own == {"spark.executorEnv.PYTHONPATH": "perftest-env"}


@pytest.mark.parametrize(
    ("said", "what"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark",
            "an executor has Python 3.12",
        ),
        ('java.io.IOException: Cannot run program "python3": error=2', "an executor has no Python named python3"),
        ("ModuleNotFoundError: No module named 'numpy'", "an executor cannot import numpy"),
        ("\n\nsomething else\nat line 5", "the first task failed: something else"),
    ],
)
def test_what_executors_lack_is_told_in_a_sentence(said: str, what: str) -> None:
    """Spark's own words are stack traces of two machines and two languages."""
    error = executors._reason(said, "spark://h:1")
    assert error.what.startswith(what) and "spark://h:1" in error.where and error.fix and error.code == 1
