"""The masters of Spark, by their addresses. No PySpark is imported here."""

from __future__ import annotations

import re
import socket
from typing import Final

from reports.errors import SettingError, SparkError

LOCAL: Final = "local[*]"
"""The Spark of this machine, which nobody has to name."""
MASTER_S: Final = 5.0
"""Time within which a master must answer, or it counts as absent."""
_MASTER: Final = re.compile(
    r"local|local\[(\*|\d+)(,\d+)?\]|local-cluster\[\d+,\d+,\d+\]|yarn|k8s://\S+|spark://[^\s,]+:\d{1,5}(,[^\s,]+:\d{1,5})*"
)


def in_process(master: str) -> bool:
    """Whether the executor is the driver: ``local-cluster`` has executors of its own."""
    return master == "local" or master.startswith("local[")


def check_master(master: str) -> None:
    """Check the address of a Spark master before Java is started: Spark itself would wait a minute in vain.

    :raises SettingError: no address of a Spark master
    :raises SparkError: there is no answer
    """
    if not _MASTER.fullmatch(master):
        fix = "write local[*], spark://HOST:PORT, yarn or k8s://URL"
        raise SettingError(f"{master!r} is no Spark master", "--spark-master, PERFTEST_SPARK_MASTER", fix)
    if not master.startswith("spark://"):
        return
    problem: OSError | None = None
    for each in master.removeprefix("spark://").split(","):
        host, _, port = each.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), MASTER_S).close()
        except OSError as error:
            problem = error
        else:
            return
    raise SparkError(
        f"the Spark master does not answer: {problem}", master, "is it running, and reachable from here?"
    ) from problem
