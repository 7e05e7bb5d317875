"""When an operation on a drive would be over: no clock, no I/O, integers only, so one sequence has one answer.

Three mechanisms, in this order: tokens (a network drive's operations a second), a head (seek, then rotation), and
channels in front of one link, which has the bandwidth. An operation on a drive with a head skips the rotation only if
it continues where the last one ended *and* was submitted before that one ended: a drive that has stopped waits a whole
revolution for the next.
"""

from __future__ import annotations

from math import isqrt

from reference_broker.storage.drives.profiles import DriveProfile

_SECOND = 1_000_000_000


class DriveModel:
    """One drive. Calls come in the order of their ``now_ns``."""

    def __init__(self, profile: DriveProfile) -> None:
        self.profile = profile
        self._free_ns = [0] * profile.channels
        self._token_ns = -_SECOND
        self._end_lba = -1
        self._link_ns = 0
        self._over_ns = 0

    def submit(self, now_ns: int, lba: int, octets: int, write: bool) -> int:
        """The time at which ``octets`` at octet address ``lba`` are written or read."""
        profile, free = self.profile, self._free_ns
        channel = free.index(min(free))
        start = max(self._token(now_ns, lba, octets), free[channel])
        if profile.revolution_ns:
            start = self._under_head(now_ns, start, lba)
        self._link_ns = max(start, self._link_ns) + octets * _SECOND // profile.octets_per_second
        self._end_lba = lba + octets
        over = self._link_ns + profile.latency_ns
        free[channel] = over if profile.channels > 1 else self._link_ns
        self._over_ns = max(self._over_ns, over)
        return over

    def flush(self, now_ns: int) -> int:
        """The time at which all that was submitted before is durable."""
        return max(now_ns, self._over_ns) + self.profile.flush_ns

    def _token(self, now_ns: int, lba: int, octets: int) -> int:
        profile = self.profile
        if not profile.tokens_per_second:
            return now_ns
        cost = _SECOND // profile.tokens_per_second
        if profile.token_octets:
            merged = lba == self._end_lba and octets >= profile.merge_octets_min
            cost = cost * (octets if merged else max(octets, profile.token_octets)) // profile.token_octets
        self._token_ns = max(self._token_ns, now_ns - profile.burst_ns) + cost
        return max(now_ns, self._token_ns)

    def _under_head(self, now_ns: int, start: int, lba: int) -> int:
        profile = self.profile
        distance = abs(lba - max(self._end_lba, 0))
        if not distance and now_ns < self._free_ns[0]:
            return start
        if distance:
            share = isqrt(distance * 1_000_000 // profile.size_octets * 1_000_000)
            start += profile.seek_track_ns + (profile.seek_full_ns - profile.seek_track_ns) * share // 1_000_000
        track = profile.octets_per_second * profile.revolution_ns // _SECOND
        angle_ns = lba % track * profile.revolution_ns // track
        return start + (angle_ns - start) % profile.revolution_ns
