"""What is known of each kind of drive, as data: each figure has a unit, and each profile names its source."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveProfile:
    """The figures of a drive. Times are nanoseconds, sizes octets; zero switches a mechanism off."""

    name: str
    latency_ns: int
    octets_per_second: int
    channels: int = 1
    flush_ns: int = 0
    tokens_per_second: int = 0
    token_octets: int = 0
    merge_octets_min: int = 0
    burst_ns: int = 0
    revolution_ns: int = 0
    seek_track_ns: int = 0
    seek_full_ns: int = 0
    size_octets: int = 1 << 40


# 250 operations of 1 MiB each a second in a burst: AWS, "Amazon EBS volume types" (st1). The latency is assumed.
ST1_1T = DriveProfile(
    name="st1-1t", latency_ns=1_000_000, octets_per_second=250_000_000, tokens_per_second=250, token_octets=MIB,
    merge_octets_min=32 << 10, burst_ns=100_000_000,
)  # fmt: skip
# 50 operations a second per GB: AWS, "Amazon EBS volume types" (io1). The latency is assumed.
IO1_200G = DriveProfile(
    name="io1-200g", latency_ns=700_000, octets_per_second=250_000_000, tokens_per_second=10_000, burst_ns=50_000_000
)
# A generic drive of 7200 revolutions a minute: 8.33 ms each. Seeks and bandwidth are typical of data sheets.
HDD7200 = DriveProfile(
    name="hdd7200", latency_ns=100_000, octets_per_second=180_000_000, revolution_ns=8_333_333,
    seek_track_ns=1_000_000, seek_full_ns=16_000_000,
)  # fmt: skip
# Without power-loss protection a flush waits for the flash: about 1 ms on consumer drives.
NVME = DriveProfile(name="nvme", latency_ns=20_000, octets_per_second=2_000_000_000, channels=8, flush_ns=1_000_000)
# With power-loss protection the cache is safe, and a flush is nearly free.
NVME_PLP = DriveProfile(
    name="nvme-plp", latency_ns=20_000, octets_per_second=2_000_000_000, channels=8, flush_ns=10_000
)

PROFILES = {profile.name: profile for profile in (ST1_1T, IO1_200G, HDD7200, NVME, NVME_PLP)}
