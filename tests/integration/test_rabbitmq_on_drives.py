"""A RabbitMQ on block drives: the same drives, profiles and power cuts as under the bundled broker.

Without these a comparison of layouts would say nothing about RabbitMQ. Needs an installed RabbitMQ, root, FUSE and loop
devices, and is skipped with the reason elsewhere.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest

from infra import cleaning, drives, rabbitmq_cluster
from infra.drives import BlockDrive
from infra.rabbitmq_cluster import RabbitMQ, RabbitMQError
from tests.integration.testing.pika_clients import connect

MISSING = drives.impossible() or ("" if rabbitmq_cluster.is_installed() else "RabbitMQ is not installed")
on_drives = pytest.mark.skipif(bool(MISSING), reason=MISSING)
pytestmark = [pytest.mark.rabbitmq, pytest.mark.drives, pytest.mark.processes]
SIZE_MB = 512
BODIES = [b"%04d" % number + b"x" * 1000 for number in range(60)]
QUORUM = {"x-queue-type": "quorum"}


@pytest.fixture
def two_drives(tmp_path: Path) -> Iterator[tuple[BlockDrive, BlockDrive]]:
    """One drive for the WAL and one for everything else."""
    try:
        yield drives.make(tmp_path / "wal", SIZE_MB), drives.make(tmp_path / "rest", SIZE_MB)
    finally:
        drives.clean(tmp_path)
        assert cleaning.clean(tmp_path, kept=True) == []


@contextmanager
def channel_to(broker: RabbitMQ) -> Iterator[Any]:
    with connect(broker.uris[0]) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True, arguments=QUORUM)
        channel.confirm_delivery()
        yield channel


def publish(broker: RabbitMQ, bodies: list[bytes]) -> None:
    """Each confirmed before the next."""
    with channel_to(broker) as channel:
        for body in bodies:
            channel.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2), mandatory=True)


def there(broker: RabbitMQ) -> list[bytes]:
    """What the queue holds, taken away."""
    taken: list[bytes] = []
    with channel_to(broker) as channel:
        while (answer := channel.basic_get("q", auto_ack=True))[0] is not None:
            taken.append(answer[2])
    return taken


def flushes(drive: BlockDrive) -> int:
    count = drives.ask(drive, op="status")["counts"]["flushes"]
    assert isinstance(count, int)
    return count


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ({"wall": "/a"}, "no role 'wall'"),
        ({"classic": "/a"}, "place classic and data on one drive"),
        ({"classic": "/a", "data": "/b"}, "place classic and data on one drive"),
    ],
)
def test_what_rabbitmq_cannot_place_is_refused(tmp_path: Path, places: dict[str, str], said: str) -> None:
    directories = {role: Path(place) for role, place in places.items()}
    with (
        pytest.raises(RabbitMQError, match=said),
        rabbitmq_cluster.running(tmp_path, nodes=1, directories=directories),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


@on_drives
def test_rabbitmq_writes_where_the_roles_lie_and_survives_a_power_cut(
    tmp_path: Path, two_drives: tuple[BlockDrive, BlockDrive]
) -> None:
    """Each confirm costs a flush of the drive of the WAL; so nothing confirmed is lost."""
    wal, rest = two_drives
    places = {"wal": wal.files} | dict.fromkeys(("data", "segment", "classic", "logs"), rest.files)
    with rabbitmq_cluster.running(tmp_path, nodes=1, directories=places) as broker:
        publish(broker, BODIES[:20])
        # RabbitMQ writes the names of new queues when it stops, or minutes later, and the kernel syncs them.
        broker.control("stop_app")
        broker.control("start_app")
        subprocess.run(["sync", "--file-system", str(rest.files)], check=True)
        before = flushes(wal)
        publish(broker, BODIES[20:])
        assert flushes(wal) - before >= 40
        broker.kill()
        for drive in two_drives:
            drives.cut_power(drive, keep=0.0, seed=3)
        broker.restart()
        assert there(broker) == BODIES
    assert [each.name for drive in two_drives for each in drive.files.iterdir()] == ["lost+found"] * 2


@on_drives
def test_rabbitmq_waits_for_a_modelled_drive(tmp_path: Path, two_drives: tuple[BlockDrive, BlockDrive]) -> None:
    """A confirm that did not wait for the drive would make every layout look alike."""
    wal, rest = two_drives
    places = {"wal": wal.files} | dict.fromkeys(("data", "segment", "classic", "logs"), rest.files)
    with rabbitmq_cluster.running(tmp_path, nodes=1, directories=places) as broker:
        publish(broker, BODIES[:1])
        drives.ask(wal, op="profile", profile="st1-1t")
        before = drives.ask(wal, op="status")
        publish(broker, BODIES[1:41])
        after = drives.ask(wal, op="status")
        assert after["profile"] == "st1-1t"
        assert after["counts"]["flushes"] - before["counts"]["flushes"] >= 40
        waited = [each["punctuality"]["operations"] for each in (before, after)]
        assert waited[1] > waited[0], "no answer waited for the model"
        assert there(broker) == BODIES[:41]
