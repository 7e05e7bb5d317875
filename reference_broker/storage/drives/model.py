"""When an operation on a drive would be over: no clock, no I/O, integers only, so one sequence has one answer.

Five mechanisms, in this order: tokens (a network drive's operations a second, with credits for a burst), a head (seek,
then rotation, both shorter where the drive can choose among several operations), channels in front of one link which
has the bandwidth, the bandwidth that all drives of a machine share, and a cache in which a write is over before it is
on the drive.

An operation on a drive with a head skips the rotation only if it continues where the last one ended *and* was submitted
before that one ended: a drive that has stopped waits a whole revolution for the next.
"""

from __future__ import annotations

from collections import deque
from math import isqrt, log2
from typing import Final

from reference_broker.storage.drives.profiles import DriveProfile

_SECOND: Final = 1_000_000_000
_MILLION: Final = 1_000_000
_NEVER: Final = -(1 << 62)
_GAPS_MAX: Final = 16
_SHARES: Final = (_MILLION, *(round(_MILLION / (1 + 0.3 * log2(depth))) for depth in range(1, 257)))
"""Part of seek and rotation that remains at a queue depth, in millionths. Native command queuing gives a drive of 7200
revolutions a minute about twice the operations a second at a depth of 8 (generic)."""


class InstanceCap:
    """The bandwidth that the drives of one machine share. Given to the model of each.

    An operation may be submitted for a later time: a commit follows the pages before it. Until then the bandwidth is
    free for other drives, so the cap keeps the gaps between operations.
    """

    def __init__(self, octets_per_second: int) -> None:
        self.octets_per_second = octets_per_second
        self._free_ns = 0
        self._gaps: list[tuple[int, int]] = []
        """Times without an operation, in their order."""

    def over(self, now_ns: int, octets: int) -> int:
        """When octets that are submitted for this time are through."""
        length_ns = octets * _SECOND // self.octets_per_second
        for at, (gap_ns, end_ns) in enumerate(self._gaps):
            begin_ns = max(gap_ns, now_ns)
            over_ns = begin_ns + length_ns
            if over_ns <= end_ns:
                self._gaps[at : at + 1] = [
                    part for part in ((gap_ns, begin_ns), (over_ns, end_ns)) if part[0] < part[1]
                ]
                return over_ns
        if now_ns > self._free_ns:
            self._gaps.append((self._free_ns, now_ns))
            del self._gaps[:-_GAPS_MAX]
        self._free_ns = max(now_ns, self._free_ns) + length_ns
        return self._free_ns


class DriveModel:
    """One drive. Calls should come in the order of their ``now_ns``: an operation never goes before one that was
    submitted by an earlier call."""

    def __init__(self, profile: DriveProfile, cap: InstanceCap | None = None) -> None:
        self._cap = cap
        self._end_lba = -1
        self._link_ns = 0
        self._over_ns = 0
        self._outstanding: deque[tuple[int, int]] = deque()
        self._cached = 0
        self._credit_ns = _NEVER
        self._phase_ns = 0
        self.change(profile)

    def change(self, profile: DriveProfile) -> None:
        """The drive has other figures from now on; what was submitted before keeps its time."""
        self.profile = profile
        self._free_ns = [self._link_ns] * profile.channels
        self._token_ns = -_SECOND

    def submit(self, now_ns: int, lba: int, octets: int, write: bool) -> int:
        """The time at which ``octets`` at octet address ``lba`` are read, or written as far as the caller sees."""
        most = self.profile.io_octets_max
        while octets > most:
            self._submit(now_ns, lba, most, write)
            lba += most
            octets -= most
        return self._submit(now_ns, lba, octets, write)

    def flush(self, now_ns: int) -> int:
        """The time at which all operations submitted before are durable."""
        return max(now_ns, self._over_ns) + self.profile.flush_ns

    def credits(self, now_ns: int) -> int:
        """Tokens that are left for a burst; of a drive without credits, zero."""
        profile = self.profile
        if not profile.credit_tokens:
            return 0
        saved = (now_ns - self._credit_ns) * profile.baseline_tokens_per_second // _SECOND
        return max(0, min(profile.credit_tokens, saved))

    def spend_credits(self, now_ns: int, left: int) -> None:
        """Begin with so many credits, as a drive that has worked hard before."""
        if self.profile.credit_tokens:
            self._credit_ns = now_ns - left * _SECOND // self.profile.baseline_tokens_per_second

    def _submit(self, now_ns: int, lba: int, octets: int, write: bool) -> int:
        profile, free = self.profile, self._free_ns
        channel = free.index(min(free))
        start = max(self._token(now_ns, lba, octets) if profile.tokens_per_second else now_ns, free[channel])
        if profile.revolution_ns:
            start = self._under_head(now_ns, start, lba)
        self._link_ns = max(start, self._link_ns) + octets * _SECOND // profile.octets_per_second
        if self._cap is not None:
            self._link_ns = max(self._link_ns, self._cap.over(now_ns, octets))
        self._end_lba = lba + octets
        over = self._link_ns + profile.latency_ns
        free[channel] = over if profile.channels > 1 else self._link_ns
        self._over_ns = max(self._over_ns, over)
        if not profile.cache_octets and not profile.revolution_ns:
            return over
        return self._remember(now_ns, octets if write and profile.cache_octets else 0, over)

    def _token(self, now_ns: int, lba: int, octets: int) -> int:
        """When the operation has its tokens, of both buckets."""
        profile = self.profile
        octets_paid = octets
        if profile.token_octets and not (lba == self._end_lba and octets >= profile.merge_octets_min):
            octets_paid = max(octets, profile.token_octets)
        unit = profile.token_octets or octets
        cost = octets_paid * _SECOND // (unit * profile.tokens_per_second)
        self._token_ns = max(self._token_ns, now_ns - profile.burst_ns) + cost
        if not profile.credit_tokens:
            return max(now_ns, self._token_ns)
        baseline = profile.baseline_tokens_per_second
        full_ns = now_ns - profile.credit_tokens * _SECOND // baseline
        self._credit_ns = max(self._credit_ns, full_ns) + octets_paid * _SECOND // (unit * baseline)
        return max(now_ns, self._token_ns, self._credit_ns)

    def _under_head(self, now_ns: int, start: int, lba: int) -> int:
        profile = self.profile
        distance = abs(lba - max(self._end_lba, 0))
        if not distance and now_ns < self._free_ns[0]:
            return start
        depth = 1
        if profile.queue_depth > 1:
            self._forget(now_ns)
            depth = min(len(self._outstanding) + 1, profile.queue_depth, len(_SHARES) - 1)
        share = _SHARES[depth]
        if distance:
            far = isqrt(min(distance, profile.size_octets) * _MILLION // profile.size_octets * _MILLION)
            seek = profile.seek_track_ns + (profile.seek_full_ns - profile.seek_track_ns) * far // _MILLION
            start += seek * share // _MILLION
        track = max(1, profile.octets_per_second * profile.revolution_ns // _SECOND)
        angle_ns = lba % track * profile.revolution_ns // track
        start += (angle_ns - start - self._phase_ns) % profile.revolution_ns * share // _MILLION
        if depth > 1:  # another order of the operations got the head to this angle sooner
            self._phase_ns = (angle_ns - start) % profile.revolution_ns
        return start

    def _remember(self, now_ns: int, cached: int, over: int) -> int:
        """Keep in mind that the operation is under way. Returns when the caller sees its end: with a cache, as soon as
        the cache has room for the write and has taken the write."""
        profile, outstanding = self.profile, self._outstanding
        self._forget(now_ns)
        outstanding.append((over, cached))
        if not cached:
            return over
        self._cached += cached
        room_ns, excess = now_ns, self._cached - profile.cache_octets
        for end_ns, octets in outstanding:
            if excess <= 0:
                break
            room_ns, excess = end_ns, excess - octets
        taken = room_ns + cached * _SECOND // profile.cache_octets_per_second + profile.latency_ns
        return min(over, taken)

    def _forget(self, now_ns: int) -> None:
        outstanding = self._outstanding
        while outstanding and outstanding[0][0] <= now_ns:
            self._cached -= outstanding.popleft()[1]
