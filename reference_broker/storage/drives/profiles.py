"""The known figures of each kind of drive, as data: each figure has a unit, and each profile names its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveProfile:
    """The figures of a drive. Times are nanoseconds, sizes octets; zero switches a mechanism off."""

    name: str
    latency_ns: int
    """From the link to the caller, for each operation; operations wait for their latencies side by side."""
    octets_per_second: int
    channels: int = 1
    """Operations in progress at a time, before the link that all share."""
    flush_ns: int = 0
    io_octets_max: int = MIB
    """A larger operation goes to the drive in parts of this size."""
    tokens_per_second: int = 0
    token_octets: int = 0
    """Octets that a token pays for. A smaller operation takes a whole token, unless it continues where the last one
    ended and has at least ``merge_octets_min``. Zero: one token an operation."""
    merge_octets_min: int = 0
    burst_ns: int = 0
    """Time whose tokens an idle drive may save up."""
    baseline_tokens_per_second: int = 0
    credit_tokens: int = 0
    """Once ``credit_tokens`` are spent, the drive has only this rate. Credits come back at this rate, too."""
    revolution_ns: int = 0
    seek_track_ns: int = 0
    seek_full_ns: int = 0
    queue_depth: int = 1
    """Operations among which a drive with a head chooses the next: seek and rotation become shorter."""
    cache_octets: int = 0
    """A write is over as soon as it is in this cache; a flush waits until the cache is empty."""
    cache_octets_per_second: int = 0
    size_octets: int = 1 << 40

    def slowed(self, factor: float) -> DriveProfile:
        """The same drive, on which everything takes ``factor`` times as long."""
        longer = {name: round(getattr(self, name) * factor) for name in _TIMES}
        rarer = {name: max(1, round(getattr(self, name) / factor)) if getattr(self, name) else 0 for name in _RATES}
        return replace(self, name=f"{self.name}, {factor:g} times slower", **longer, **rarer)

    def figures(self) -> dict[str, Any]:
        """The profile as JSON."""
        return asdict(self)


_TIMES: Final = ("latency_ns", "flush_ns", "revolution_ns", "seek_track_ns", "seek_full_ns")
_RATES: Final = ("octets_per_second", "tokens_per_second", "baseline_tokens_per_second", "cache_octets_per_second")
_AT_LEAST_ONE: Final = ("octets_per_second", "channels", "io_octets_max", "queue_depth", "size_octets")
_FIGURES_MAX: Final = 1 << 62

# 250 operations of 1 MiB a second in a burst, 40 of them for ever, and credits for 1 TiB: AWS, "Amazon EBS volume
# types", throughput optimised HDD of 1 TiB. Sequential operations of 32 KiB and more are merged: the same page. The
# latency is assumed.
ST1_1T = DriveProfile(
    name="st1-1t", latency_ns=1_000_000, octets_per_second=250_000_000, tokens_per_second=250, token_octets=MIB,
    merge_octets_min=32 * KIB, burst_ns=100_000_000, baseline_tokens_per_second=40, credit_tokens=1 << 20,
)  # fmt: skip
# 50 operations a second per GB, each of 256 KiB at most: AWS, "Amazon EBS volume types" (io1) and "Amazon EBS I/O
# characteristics and monitoring". The latency is assumed.
IO1_200G = DriveProfile(
    name="io1-200g", latency_ns=700_000, octets_per_second=250_000_000, io_octets_max=256 * KIB,
    tokens_per_second=10_000, burst_ns=50_000_000,
)  # fmt: skip
# A generic drive of 7200 revolutions a minute: 8.33 ms each. Seeks, bandwidth, a queue of 32 (NCQ) and a write cache of
# 64 MiB behind a SATA link are typical of data sheets.
HDD7200 = DriveProfile(
    name="hdd7200", latency_ns=100_000, octets_per_second=180_000_000, revolution_ns=8_333_333,
    seek_track_ns=1_000_000, seek_full_ns=16_000_000, queue_depth=32, cache_octets=64 * MIB,
    cache_octets_per_second=550_000_000,
)  # fmt: skip
# Without power-loss protection a flush waits for the flash: about 1 ms on consumer drives.
NVME = DriveProfile(name="nvme", latency_ns=20_000, octets_per_second=2_000_000_000, channels=8, flush_ns=1_000_000)
# With power-loss protection the cache is safe, and a flush is nearly free.
NVME_PLP = DriveProfile(
    name="nvme-plp", latency_ns=20_000, octets_per_second=2_000_000_000, channels=8, flush_ns=10_000
)

PROFILES: Final = {profile.name: profile for profile in (ST1_1T, IO1_200G, HDD7200, NVME, NVME_PLP)}


def profile_problems(figures: Mapping[str, Any]) -> list[str]:
    """The faults in the figures of a profile, each as "key: value: rule"."""
    known = {each.name for each in fields(DriveProfile)} - {"name"}
    found = [
        f"{key}: unknown figure; known: {', '.join(sorted(known))}" for key in figures if key not in {*known, "name"}
    ]
    for key in ("latency_ns", "octets_per_second"):
        if key not in figures:
            found.append(f"{key}: is missing: must be a whole number")
    for key in sorted(known & figures.keys()):
        value, least = figures[key], int(key in _AT_LEAST_ONE)
        if type(value) is not int or not least <= value <= _FIGURES_MAX:
            found.append(f"{key}: {value!r}: must be a whole number, at least {least}")
    return found or _contradictions(DriveProfile(**{"name": "own", **figures}))


def _contradictions(profile: DriveProfile) -> list[str]:
    """Figures that are possible one by one, and not together."""
    found = []
    for key, needed in (
        ("token_octets", "tokens_per_second"), ("baseline_tokens_per_second", "tokens_per_second"),
        ("baseline_tokens_per_second", "credit_tokens"), ("credit_tokens", "baseline_tokens_per_second"),
        ("cache_octets", "cache_octets_per_second"), ("seek_full_ns", "revolution_ns"),
    ):  # fmt: skip
        if getattr(profile, key) and not getattr(profile, needed):
            found.append(f"{key}: {getattr(profile, key)}: needs {needed}, too")
    if profile.baseline_tokens_per_second > profile.tokens_per_second:
        found.append(
            f"baseline_tokens_per_second: {profile.baseline_tokens_per_second}: "
            f"must not be above tokens_per_second ({profile.tokens_per_second})"
        )
    if profile.seek_track_ns > profile.seek_full_ns:
        found.append(f"seek_track_ns: {profile.seek_track_ns}: must not be above seek_full_ns ({profile.seek_full_ns})")
    if profile.revolution_ns and profile.channels > 1:
        found.append(f"channels: {profile.channels}: must be 1 on a drive with a head (revolution_ns)")
    return found
