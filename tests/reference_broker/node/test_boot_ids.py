"""An older copy of a directory is found out by what its peers remember, whoever of the two looks first."""

from __future__ import annotations

import pytest

from reference_broker.log.errors import DamagedLogError
from reference_broker.node.links.boot_ids import BootIds, StaleDirectoryError
from reference_broker.storage.memory_files import MemoryFiles
from reference_broker.types import NodeId

PEER = NodeId(2)


def boots(files: MemoryFiles, mine: tuple[int, int] = (5, 500)) -> BootIds:
    files.make_dir("data")
    return BootIds(files, "data", mine)


@pytest.mark.parametrize("known", [None, [4, 400], [5, 500]])
def test_a_node_that_nobody_saw_in_another_life_is_welcome(known: object) -> None:
    """At the first start, after a restart, and when a link of the same start comes back."""
    found = boots(MemoryFiles())
    found.meet(PEER, [1, 7], known)
    assert found.known(PEER) == (1, 7)


@pytest.mark.parametrize("known", [[6, 600], [5, 499], [5, 501]])
def test_an_older_copy_hears_of_it_and_remembers(known: object) -> None:
    """A copy that counted to the same number is another start all the same; starting it again does not help it."""
    files = MemoryFiles()
    with pytest.raises(StaleDirectoryError):
        boots(files).meet(PEER, [1, 7], known)
    with pytest.raises(StaleDirectoryError):
        boots(files, (99, 9900))


@pytest.mark.parametrize("theirs", [[2, 20], [3, 31]])
def test_a_peer_that_is_an_older_copy_is_refused_after_a_restart_too(theirs: object) -> None:
    """What was seen must be on disk: the cluster may have been stopped in between."""
    files = MemoryFiles()
    boots(files).meet(PEER, [3, 30], None)
    with pytest.raises(ValueError, match="another start of it, with boot id 3"):
        boots(files, (6, 600)).meet(PEER, theirs, None)
    boots(files, (7, 700)).meet(PEER, [4, 40], None)


@pytest.mark.parametrize("theirs", [None, [], "12", [1], [1, "2"], {"a": 1}])
def test_nonsense_is_no_life(theirs: object) -> None:
    """It came over a socket."""
    with pytest.raises(ValueError, match="no boot of a node"):
        boots(MemoryFiles()).meet(PEER, theirs, None)


def test_a_damaged_file_is_named() -> None:
    """Nobody may be let in because the memory is gone."""
    files = MemoryFiles()
    files.make_dir("data")
    file = files.create("data/lives")
    file.write([b"{"], 0)
    with pytest.raises(DamagedLogError, match="data/lives"):
        boots(files)
