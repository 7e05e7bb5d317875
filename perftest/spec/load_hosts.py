"""The hosts that generate the load of a run, if there are several: which publish, which consume, and how close."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadHost:
    """A host that generates load.

    ``name`` stands in all records of the host. ``workers`` is the number of its processes for each group of load; 0
    lets the engine choose, given the host's ``cores``. The host ``publishes`` for, and ``consumes`` from, the groups
    with these names (the first measured group has an empty name); None stands for all groups. Its clients connect to
    the brokers of ``near`` (indexes into the URIs of the plan) first, one after the other; an empty ``near`` stands for
    all of them. A client that loses its broker goes on with any other.
    """

    name: str
    workers: int = 0
    cores: int = 1
    publishes: tuple[str, ...] | None = None
    consumes: tuple[str, ...] | None = None
    near: tuple[int, ...] = ()

    def publishes_for(self, group: str) -> bool:
        """Whether publishers of a group may be here."""
        return self.publishes is None or group in self.publishes

    def consumes_from(self, group: str) -> bool:
        """Whether consumers of a group may be here."""
        return self.consumes is None or group in self.consumes

    def serves(self, group: str) -> bool:
        """Whether any client of a group may be here."""
        return self.publishes_for(group) or self.consumes_from(group)
