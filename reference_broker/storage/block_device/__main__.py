"""``python -m reference_broker.storage.block_device MOUNT --size-mb N --control SOCKET``: a disk in memory as a file.

The file ``MOUNT/disk`` is for ``losetup --direct-io=on``. The command returns when the mount is there; a process in the
background serves the disk until MOUNT is unmounted. Exit codes: 0 mounted, 2 bad arguments, 3 the mount is refused.

One thread waits in ``select`` for three things: requests of the kernel, requests on the control socket, and the time of
the next answer. Answers leave at the time that the drive model gives. What the kernel asks after a late answer begins
late, too: how late each answer was is counted (``punctuality`` of the control socket's ``status``).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import heapq
import json
import mmap
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from random import Random
from typing import Any, Final

from reference_broker.storage.block_device import protocol
from reference_broker.storage.block_device.disk import FAULTS, Disk, Faults, RequestOutcome
from reference_broker.storage.block_device.protocol import Op, Request
from reference_broker.storage.block_device.shared_bandwidth import SharedBandwidth
from reference_broker.storage.drives.model import DriveModel
from reference_broker.storage.drives.profiles import PROFILES, DriveProfile, profile_problems
from reference_broker.storage.drives.punctuality import BusyTime, Punctuality, weighty_ns

EXIT_REFUSED: Final = 3
_EARLY_NS: Final = 25_000
"""Time by which ``select`` wakes before an answer is due: waking takes about as long."""
FACTORS: Final = (0.01, 1e6)
"""Smallest and largest factor by which a drive can be slowed."""
_TIMER_SLACK: Final = 29  # PR_SET_TIMERSLACK
_DETACH: Final = 2  # MNT_DETACH
_MESSAGE_BYTES_MAX: Final = 4096
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class BlockServer:
    """Answers the kernel on ``fuse`` and people on the ``control`` socket, for one disk. ``shared`` is the bandwidth of
    all drives of a machine together."""

    def __init__(self, fuse: int, control: socket.socket, disk: Disk, shared: SharedBandwidth | None = None) -> None:
        self._fuse = fuse
        self._shared = shared
        self._control = control
        self._disk = disk
        self._callers: list[socket.socket] = []
        self._waiting: list[tuple[int, int, int, bytes]] = []
        """Until when, number of the request, how long it should last, and the answer."""
        self._punctuality = Punctuality(weighty_ns)
        self._busy = BusyTime()
        self._configured: DriveProfile | None = None
        """The first profile that was set."""
        self._bought: DriveProfile | None = None
        """The profile that a slowness changes."""
        self._model: DriveModel | None = None
        self._mounted = True

    def serve(self) -> None:
        """Until the mount is gone."""
        while self._mounted:
            waited: list[int | socket.socket] = [self._fuse, self._control, *self._callers]
            ready, _, _ = select.select(waited, [], [], self._answer_due())
            if self._fuse in ready:
                self._serve_kernel()
            if self._control in ready:
                self._callers.append(self._control.accept()[0])
            for caller in [each for each in self._callers if each in ready]:
                self._serve_caller(caller)

    def _answer_due(self) -> float | None:
        """Send the answers whose time has come. Gives the seconds until the next answer; None if there is none."""
        while self._waiting:
            now_ns = time.monotonic_ns()
            ahead_ns = self._waiting[0][0] - now_ns
            if ahead_ns > _EARLY_NS:
                return (ahead_ns - _EARLY_NS) / 1e9
            _due_ns, _unique, length_ns, octets = heapq.heappop(self._waiting)
            self._send(octets)
            self._punctuality.add(length_ns, max(0, -ahead_ns))
        return None

    def _serve_kernel(self) -> None:
        try:
            octets = os.read(self._fuse, protocol.REQUEST_BYTES_MAX)
        except OSError as error:
            if error.errno not in (errno.EINTR, errno.EAGAIN, errno.ENOENT):  # ENOENT: the request was withdrawn
                self._mounted = False  # ENODEV: unmounted
            return
        request = protocol.read_request(octets)
        if request.op in (Op.READ, Op.WRITE, Op.FSYNC):
            self._transfer(request)
        elif request.op not in protocol.UNANSWERED:
            self._send(self._answer(request))
            self._mounted = request.op != Op.DESTROY

    def _transfer(self, request: Request) -> None:
        now_ns = time.monotonic_ns()
        outcome, body = self._carry_out(request, now_ns)
        self._busy.add(now_ns, outcome.done_ns)
        octets = protocol.answer(request.unique, b"" if outcome.errno else body, outcome.errno)
        if outcome.done_ns <= now_ns:
            self._send(octets)
        else:
            heapq.heappush(self._waiting, (outcome.done_ns, request.unique, outcome.done_ns - now_ns, octets))

    def _carry_out(self, request: Request, now_ns: int) -> tuple[RequestOutcome, bytes]:
        if request.op == Op.FSYNC:
            return self._disk.flush(now_ns), b""
        offset, octets = protocol.read_span(request.body)
        if request.op == Op.WRITE:
            outcome = self._disk.write(now_ns, offset, protocol.write_data(request.body, octets))
            return outcome, protocol.written(octets)
        outcome = self._disk.read(now_ns, offset, octets)
        return outcome, outcome.data

    def _answer(self, request: Request) -> bytes:
        size_bytes = self._disk.size_bytes
        match request.op:
            case Op.INIT:
                body = protocol.initialised(request.body)
            case Op.LOOKUP:
                if request.body.rstrip(b"\0") != protocol.FILE_NAME.encode():
                    return protocol.answer(request.unique, errno=errno.ENOENT)
                body = protocol.found(size_bytes)
            case Op.GETATTR | Op.SETATTR:
                body = protocol.attributes(request.node, size_bytes)
            case Op.OPEN | Op.OPENDIR:
                body = protocol.opened(request.op)
            case Op.STATFS:
                body = protocol.space(size_bytes)
            case Op.RELEASE | Op.RELEASEDIR | Op.FLUSH | Op.ACCESS | Op.DESTROY:
                body = b""
            case _:
                return protocol.answer(request.unique, errno=errno.ENOSYS)
        return protocol.answer(request.unique, body)

    def _send(self, octets: bytes) -> None:
        try:
            os.write(self._fuse, octets)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV):  # the asker was killed, or the mount is gone
                raise

    def _serve_caller(self, caller: socket.socket) -> None:
        try:
            octets = caller.recv(_MESSAGE_BYTES_MAX)
            if octets:
                caller.send(json.dumps(self._control_answer(octets)).encode())
                return
        except OSError:
            pass  # the caller went away; its request is done
        self._callers.remove(caller)
        caller.close()

    def _control_answer(self, octets: bytes) -> dict[str, object]:
        try:
            return self._control_request(json.loads(octets))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            return {"error": f"{type(error).__name__}: {error}"}

    def _control_request(self, asked: dict[str, object]) -> dict[str, object]:
        match asked["op"]:
            case "status":
                return self._status()
            case "fault":
                return self._set_fault(str(asked["fault"]), asked["value"])
            case "cut_power":
                unflushed, lost = self._disk.cut_power(float(str(asked["keep"])), Random(int(str(asked["seed"]))))
                self._fail_waiting()
                return {"unflushed_blocks": unflushed, "lost_blocks": lost}
            case "revive":
                self._disk.revive()
                return {}
            case "profile":
                return self._set_profile(asked["profile"])
            case "slow":
                return self._slow(float(str(asked["factor"])))
            case "restore":
                return self._restore()
        known = "status, fault, profile, slow, restore, cut_power or revive"
        raise ValueError(f"no request {asked['op']!r}: ask for {known}")

    def _set_profile(self, asked: object) -> dict[str, object]:
        """Answer as late as a drive of this profile, or with these figures, from now on."""
        self._bought = _profile_of(asked)
        self._configured = self._configured or self._bought
        return self._use(self._bought)

    def _slow(self, factor: float) -> dict[str, object]:
        """Everything takes ``factor`` times as long as on the drive of the profile; 1 ends that."""
        least, most = FACTORS
        if self._bought is None or not least <= factor <= most:
            raise ValueError(f"a drive of a profile can be {least:g} to {most:,.0f} times as slow, not {factor:g}")
        return self._use(self._bought if factor == 1 else self._bought.slowed(factor))

    def _restore(self) -> dict[str, object]:
        """The drive has no faults, and its first profile."""
        self._disk.faults = Faults()
        self._bought = self._configured
        return self._use(self._bought)

    def _use(self, profile: DriveProfile | None) -> dict[str, object]:
        if profile is None or self._model is None:
            self._disk.drive = self._model = DriveModel(profile, self._shared) if profile is not None else None
        else:
            self._model.change(profile)
        self._punctuality = Punctuality(weighty_ns)
        return {}

    def _set_fault(self, fault: str, value: object) -> dict[str, object]:
        if fault not in FAULTS or not isinstance(value, int) or value < 0:
            raise ValueError(f"a fault is one of {', '.join(FAULTS)}, with a whole number from 0 on")
        setattr(self._disk.faults, fault, value)
        return {}

    def _fail_waiting(self) -> None:
        """No request succeeds after the power is gone."""
        for _, unique, _, _ in self._waiting:
            self._send(protocol.answer(unique, errno=errno.EIO))
        self._waiting.clear()

    def _status(self) -> dict[str, object]:
        return {
            "pid": os.getpid(),
            "size_bytes": self._disk.size_bytes,
            "dead": self._disk.dead,
            "unflushed_blocks": self._disk.unflushed_blocks,
            "counts": asdict(self._disk.counts),
            "faults": asdict(self._disk.faults),
            "profile": self._model.profile.name if self._model is not None else None,
            "busy_ns": self._busy.ns,
            "punctuality": self._punctuality.figures(),
        }


def _profile_of(asked: object) -> DriveProfile:
    """The profile of a name, or of figures of one's own. Raises ValueError."""
    if isinstance(asked, Mapping):
        figures: dict[str, Any] = {"name": "own", **asked}
        if problems := profile_problems(figures):
            raise ValueError("; ".join(problems))
        return DriveProfile(**figures)
    if str(asked) not in PROFILES:
        raise ValueError(f"no profile {asked!r}: name one of {', '.join(PROFILES)}")
    return PROFILES[str(asked)]


def run(mount: str, control_path: str, disk: Disk, shared: SharedBandwidth | None = None) -> None:
    """Mount the disk, and serve it in the background until it is unmounted. Raises OSError; then nothing is left."""
    with contextlib.ExitStack() as stack:
        control = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        directory, name = os.path.split(os.path.abspath(control_path))  # noqa: PTH100 - of octets, as the kernel has it
        near = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        control.bind(f"/proc/self/fd/{near}/{name}")  # an address has room for 107 octets, and a path may have more
        os.close(near)
        stack.callback(os.unlink, control_path)
        control.listen()
        fuse = os.open("/dev/fuse", os.O_RDWR)
        stack.callback(os.close, fuse)
        options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other"
        if _LIBC.mount(b"modelled-drive", os.fsencode(mount), b"fuse.modelled", 0, options.encode()):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), mount)
        stack.callback(_LIBC.umount2, os.fsencode(mount), _DETACH)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the manager unmounts in order
        if os.fork():
            os._exit(0)  # the child has the mount, the socket and the disk: nothing here is to be undone
        _LIBC.prctl(_TIMER_SLACK, 1, 0, 0, 0)
        with contextlib.suppress(OSError):  # a container may forbid this: then answers are later, and counted so
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        BlockServer(fuse, control, disk, shared).serve()


def main(arguments: list[str]) -> int:
    """Parse, mount, serve. Gives the exit code."""
    parser = argparse.ArgumentParser(prog="reference_broker.storage.block_device", description=__doc__)
    parser.add_argument("mount", help="an empty directory for the mount")
    parser.add_argument("--size-mb", type=int, required=True, help="the size of the disk in MiB (1-4096)")
    parser.add_argument("--control", required=True, help="the path of the control socket, which must not exist")
    parser.add_argument(
        "--shared-octets-per-second", type=int, default=0, metavar="N", help="the bandwidth of all drives"
    )
    parser.add_argument("--shared-fd", type=int, default=-1, metavar="FD", help="the file that these drives share")
    given = parser.parse_args(arguments)
    if not 1 <= given.size_mb <= 4096:
        parser.error(f"--size-mb {given.size_mb}: the disk is held in memory; give 1 to 4096")
    limit = given.shared_octets_per_second
    try:
        shared = SharedBandwidth(limit, given.shared_fd) if limit else None
        run(given.mount, given.control, Disk(mmap.mmap(-1, given.size_mb << 20), Random(0)), shared)
    except OSError as error:
        fix = "run as root on Linux with FUSE (/dev/fuse), and give an empty directory"
        where = f"  at   {given.mount}\n  fix  {fix}\n"
        sys.stderr.write(f"error: the drive cannot be mounted: {error.strerror}\n{where}")
        return EXIT_REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
