"""The kinds of queues that the broker has, by the value of ``x-queue-type``.

A new kind is a new entry here: client code, proxies and metadata name no kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reference_broker.queues.classic import CLASSIC
from reference_broker.queues.keyed import KEYED
from reference_broker.queues.port import QueueKind
from reference_broker.queues.quorum import QUORUM

KINDS: Final[Mapping[str, QueueKind]] = {kind.name: kind for kind in (CLASSIC, QUORUM, KEYED)}
