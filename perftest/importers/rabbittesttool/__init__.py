"""RabbitTestTool's topologies and playlists.

A playlist has benchmarks, each a topology with other variables; a topology has groups of exchanges, queues, publishers
and consumers, and dimensions that change step by step.
"""

from __future__ import annotations

from perftest.importers.rabbittesttool.playlist import import_playlist, is_playlist
from perftest.importers.rabbittesttool.topology import import_topology, is_topology

__all__ = ["import_playlist", "import_topology", "is_playlist", "is_topology"]
