"""``python -m reference_broker.node.last_resort --config node.json`` tells what a node that does not run has on its
drives, and with ``--declare`` makes that the truth.

When so many nodes lost their drives that the others are no majority, no rule of Raft elects a leader again, and rightly
so: entries that were committed may be on the lost drives only. Somebody has to decide which copy the cluster goes on
with. ``--declare`` makes this node the only voter of each group that has anything here: it appends a configuration of a
new term to each log. The next start then elects this node, and the other nodes come back blank, as replacements.

Without ``--declare`` nothing is changed. The answer is a JSON object on standard output; a record of what was declared
goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reference_broker.access.names import listed
from reference_broker.checksum import crc32
from reference_broker.log.errors import LogError
from reference_broker.log.opening import RecoveredGroup, look
from reference_broker.log.system import LogSystem
from reference_broker.machines.cluster.metadata import QueueRecord, record_from_json
from reference_broker.node.config import ConfigError, NodeConfig, load
from reference_broker.raft.configuration import Configuration
from reference_broker.storage.executor import OwnersThread
from reference_broker.storage.files import RealFiles
from reference_broker.types import METADATA_GROUP, NOBODY, Entry, EntryKind, GroupId, LogIndex, NodeId, Term

logger = logging.getLogger(__name__)


def main() -> int:
    """0, or as a node: 1 for a log that cannot be used, 2 for a configuration that is no good."""
    parser = argparse.ArgumentParser(prog="python -m reference_broker.node.last_resort", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="node.json of this node, which must not run")
    parser.add_argument("--declare", action="store_true", help="make what this node has the truth")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        config = load(arguments.config)
        answer = declare(config) if arguments.declare else standing(config)
    except (ConfigError, LogError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2 if isinstance(error, ConfigError) else 1
    print(json.dumps(answer))  # noqa: T201
    return 0


def standing(config: NodeConfig) -> dict[str, Any]:
    """How far each log on this node goes: ``logs`` by name with ``term`` and ``index`` of the last entry, and what was
    found missing. Changes nothing. Raises :class:`~reference_broker.log.errors.LogError`."""
    recovered, findings = look(config.log_config(), RealFiles())
    return {"logs": _ends(recovered), "findings": [finding.row() for finding in findings]}


def declare(config: NodeConfig) -> dict[str, Any]:
    """Make this node the only voter of every group that has a log here; returns as :func:`standing`."""
    log, recovered = LogSystem.open(config.log_config(), RealFiles(), lambda _notices: None, policy=OwnersThread)
    try:
        for group, state in recovered.items():
            if _last(state)[1]:
                _declare(log, config.node, group, state)
        log.run_pending()
    finally:
        log.close()
    return {"logs": _ends(recovered), "findings": [finding.row() for finding in log.findings]}


def _declare(log: LogSystem, node: NodeId, group: GroupId, state: RecoveredGroup) -> None:
    last_term, last_index = _last(state)
    term = Term(max(state.term, last_term) + 1)
    payload = Configuration((node,), (), ((node, _replica_id(node, group, state)),)).encode()
    where = f"group {group:016x}: entry {last_index} of term {last_term} is the last"
    logger.warning("an operator declared this copy the truth; %s, and node %d the only voter", where, node)
    log.store_hard_state(group, term, NOBODY)
    log.append(group, [Entry(LogIndex(last_index + 1), term, EntryKind.CONFIG, crc32(payload), payload)])


def _last(state: RecoveredGroup) -> tuple[int, int]:
    """Term and index of the last entry; 0, 0 if there is none."""
    if state.terms:
        return state.terms[-1][1], state.last_index
    return (state.snapshot.term, state.snapshot.index) if state.snapshot is not None else (0, 0)


def _replica_id(node: NodeId, group: GroupId, state: RecoveredGroup) -> int:
    return int(state.meta or 0) if group == METADATA_GROUP else _record(state).membership_epoch(node)


def _record(state: RecoveredGroup) -> QueueRecord:
    return record_from_json(json.loads(state.meta))


def _ends(recovered: Mapping[GroupId, RecoveredGroup]) -> dict[str, dict[str, int]]:
    names = {
        group: "(metadata)" if group == METADATA_GROUP else listed(_record(state).name)
        for group, state in recovered.items()
    }
    ends = {group: _last(state) for group, state in recovered.items()}
    return {names[group]: {"term": term, "index": index} for group, (term, index) in sorted(ends.items())}


if __name__ == "__main__":
    sys.exit(main())
