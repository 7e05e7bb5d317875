"""The kinds of queues that the broker has, by the value of ``x-queue-type``.

A new kind is one more entry here: nothing in the client code, in the proxies or in the metadata names a kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reference_broker.queues.port import QueueKind
from reference_broker.queues.quorum import QUORUM

KINDS: Final[Mapping[str, QueueKind]] = {kind.name: kind for kind in (QUORUM,)}
