"""The queues that a node owns, and the store that opens with the first of them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from reference_broker.classic.store import StoreConfig
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.node.owned.owned_queues import OwnedQueues
from reference_broker.queues.kinds import KINDS
from reference_broker.storage.errors import StorageError
from reference_broker.storage.executor import OwnersThread
from reference_broker.storage.memory_files import MemoryFiles
from reference_broker.types import GroupId, NodeId

RECORD = QueueRecord(name="q", group=GroupId(7), members=(NodeId(1),), leader=NodeId(1), kind="classic")


def test_a_store_that_cannot_be_opened_says_where_and_what_to_do() -> None:
    """The first classic queue of a node opens the store, in the middle of its work."""
    files = MemoryFiles()
    files.make_dir("data")
    owned = OwnedQueues(StoreConfig(directory="data/classic"), files, OwnersThread, lambda call: call(), pytest.fail)
    files.fail_at(1)
    with pytest.raises(StorageError, match=r"store of classic queues cannot be written: Input/output error\n  data"):
        owned.begin(RECORD, KINDS["classic"], *cast("Any", (None, None, None, None)))
    assert owned.store is None


def opened(files: MemoryFiles) -> OwnedQueues:
    return OwnedQueues(StoreConfig(directory="data/classic"), files, OwnersThread, lambda call: call(), pytest.fail)


def test_a_store_that_is_gone_as_a_whole_is_found() -> None:
    """It would look as if the node never had a classic queue, and every confirmed message would go without a word."""
    files = MemoryFiles()
    files.make_dir("data")
    never_used = opened(files)
    assert not never_used.findings
    never_used._opened()
    used = opened(files)
    assert used.store is not None
    assert not used.findings
    del files._directory("data").seen["classic"]
    [finding] = opened(files).findings
    assert "store of classic queues is gone" in finding.what
    assert finding.where == "data/classic"
