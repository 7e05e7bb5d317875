"""What the work of a process costs in CPU time: counted by what passes the process's ports. Pure.

A cost model knows calls, octets and messages, and not what the code in between does. The figures come from a
calibration: short runs of a real machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

PUBLISH: Final = b"\x00\x3c\x00\x28"
"""The class and method of basic.publish, which begins each message on its way to a broker."""
DELIVER: Final = b"\x00\x3c\x00\x3c"
"""The same of basic.deliver, which begins each message on its way to a consumer."""
HICCUP_EVERY_NS: Final = 133_000_000
"""The mean time between two hiccups of a process. Of messages one by one, 1 ms from end to end, 4 % meet one, as on
the machine of the calibration that ships."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """CPU times of one process, in nanoseconds; sizes in KiB.

    ``wake_ns`` and ``hiccup_ns`` are no CPU time. The first passes between an event and the first instruction of a
    process, or thread, that slept.
    """

    wake_ns: int
    hiccup_ns: int
    """The mean of the time for which a process is held up now and then, by whatever else a machine has to do. Hiccups
    come by time and not by turns: see :data:`HICCUP_EVERY_NS`."""
    turn_ns: int
    """A turn of the event loop: the wait for events, and what is done once a turn."""
    callback_ns: int
    read_ns: int
    read_kib_ns: int
    send_ns: int
    send_kib_ns: int
    message_ns: int
    """A message that is read or sent as AMQP."""
    batch_ns: int
    """A list of operations that a thread takes over."""
    file_ns: int
    """A call to a file: a write or a sync."""
    file_kib_ns: int

    def scaled(self, *, calls: float, contents: float) -> Costs:
        """Costs in which all that is paid for a call is multiplied by ``calls``, and all that is paid for messages and
        octets by ``contents``."""
        per_call = ("turn_ns", "callback_ns", "read_ns", "send_ns", "batch_ns", "file_ns")
        per_content = ("read_kib_ns", "send_kib_ns", "message_ns", "file_kib_ns")
        changed = {name: round(getattr(self, name) * calls) for name in per_call}
        changed |= {name: round(getattr(self, name) * contents) for name in per_content}
        return replace(self, **changed)

    def read(self, data: bytes | memoryview) -> int:
        """One read of a socket."""
        return self.read_ns + (len(data) * self.read_kib_ns >> 10) + self.message_ns * messages(data)

    def send(self, data: bytes) -> int:
        """One write to a socket."""
        return self.send_ns + (len(data) * self.send_kib_ns >> 10) + self.message_ns * messages(data)

    def file(self, octets: int) -> int:
        """One call to a file."""
        return self.file_ns + (octets * self.file_kib_ns >> 10)


def messages(data: bytes | memoryview) -> int:
    """How many messages begin in octets of AMQP. A method that was cut in two is not counted."""
    octets = bytes(data)
    return octets.count(PUBLISH) + octets.count(DELIVER)
