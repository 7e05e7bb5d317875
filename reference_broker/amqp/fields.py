"""Strict reading of method arguments, field tables and content properties.

Theory of operation
-------------------
pamqp decodes methods, but it is lenient. A string that is cut short, octets after the last argument, and tables nested
a thousand deep pass or fail in ways of their own. So pamqp gets no octets unmeasured. :func:`decode_method` first
*walks* the octets along the argument types that pamqp declares for the method. The walk proves that every length lies
within its container and that all octets are used; only then does pamqp build the values. The walk allocates nothing,
and its recursion is bounded.

Content properties are not decoded at all, because a broker only passes them on. :func:`check_properties` walks them,
and looks at the three properties that a broker must refuse when they are wrong: delivery mode, expiration and user id.
"""

from __future__ import annotations

import re
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is an exception
from typing import Final

from pamqp import base, commands, decode
from pamqp.exceptions import PAMQPException

from reference_broker.amqp.errors import BASIC_PUBLISH, HardError, MethodId, ReplyCode, SoftError
from reference_broker.types import COPIES, NO_TTL, REPLY_TO, TTL_MS_MAX

TABLE_DEPTH_MAX: Final = 100
TABLE_FIELDS_MAX: Final = 4096
TIME_MS_MAX: Final = TTL_MS_MAX
"""The longest time that a client may name: ten years."""

_SHORT: Final = Struct(">H")
_LONG: Final = Struct(">I")
_METHOD: Final = Struct(">HH")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+")

_FIXED_ARGUMENT: Final = {"octet": 1, "short": 2, "long": 4, "longlong": 8, "timestamp": 8}
_FIXED_FIELD: Final = {
    ord(kind): size
    for kind, size in {
        "t": 1, "b": 1, "B": 1, "s": 2, "u": 2, "I": 4, "i": 4, "f": 4,
        "D": 5, "l": 8, "L": 8, "d": 8, "T": 8, "V": 0,
    }.items()
}  # fmt: skip
_STRING_FIELDS: Final = frozenset(b"Sx")


class _BadOctetsError(Exception):
    """The octets are not of the declared type. The functions below turn this error into 501."""


def method_id(payload: bytes) -> MethodId:
    """Class and method number of a method frame's payload; HardError 501 if it is too short to have them."""
    if len(payload) < 4:
        raise HardError(ReplyCode.FRAME_ERROR, f"method frame of {len(payload)} octets: it needs 4 at least")
    class_id, number = _METHOD.unpack_from(payload)
    return class_id, number


def decode_method(payload: bytes) -> base.Frame:
    """The method in a method frame's payload.

    Raises HardError: 503 for a method that does not exist, 501 for arguments that are cut short, too long, of unknown
    field type, nested or repeated beyond reason, or not UTF-8.
    """
    at_fault = method_id(payload)
    kind: type[base.Frame] | None = commands.INDEX_MAPPING.get(_LONG.unpack_from(payload)[0])
    if kind is None:
        raise HardError(ReplyCode.COMMAND_INVALID, "class {} has no method {}".format(*at_fault), at_fault)
    try:
        Walk(payload).arguments(kind)
        method = kind.__new__(kind)  # pamqp warns when a deprecated method is constructed
        method.unmarshal(payload[4:])
    except _BadOctetsError as error:
        raise HardError(ReplyCode.FRAME_ERROR, f"cannot decode {kind.name}: {error}", at_fault) from error
    except (ValueError, ArithmeticError, OSError, StructError, PAMQPException) as error:
        # A well-formed value that Python cannot hold, such as a timestamp of the year 300,000.
        raise HardError(ReplyCode.FRAME_ERROR, f"cannot decode {kind.name}: value out of range", at_fault) from error
    return method


def last_table(payload: bytes, kind: type[base.Frame]) -> list[tuple[bytes, bytes]]:
    """Name and raw value of each field of the table that is the last argument of a method. :func:`decode_method` has
    checked the octets."""
    walk = Walk(payload)
    return [(name[1:], value) for name, value in walk.fields(walk.last_argument(kind))]


class Walk:
    """A position that moves over octets and must end exactly at their end."""

    __slots__ = ("_data", "_fields", "_stop")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._stop = len(data)
        self._fields = 0

    def arguments(self, kind: type[base.Frame]) -> None:
        """Walk the arguments of ``kind`` from octet 4 on."""
        self.last_argument(kind)

    def last_argument(self, kind: type[base.Frame]) -> int:
        """Walk the arguments of ``kind`` from octet 4 on. Returns where the last argument begins."""
        at, bits, last = 4, 0, 4
        for name in kind.__slots__:
            argument = kind.amqp_type(name)
            if argument == "bit":
                at = self._skip(at, 1, name) if bits % 8 == 0 else at
                bits += 1
                continue
            bits, last = 0, at
            at = self._argument(at, argument, name)
        if at != self._stop:
            raise _BadOctetsError(f"{self._stop - at} octets after the last argument")
        return last

    def _argument(self, at: int, argument: str, name: str) -> int:
        if argument == "shortstr":
            return self._short_string(at, self._stop, name)
        if argument == "longstr":
            return self._long_string(at, self._stop, name)
        if argument == "table":
            return self.table(at, self._stop, 1)
        return self._skip(at, _FIXED_ARGUMENT[argument], name)

    def _skip(self, at: int, size: int, name: str) -> int:
        if at + size > self._stop:
            raise _BadOctetsError(f"{name} is cut short")
        return at + size

    def _short_octets(self, at: int, stop: int, name: str) -> int:
        if at >= stop:
            raise _BadOctetsError(f"{name} is cut short")
        end = at + 1 + self._data[at]
        if end > stop:
            raise _BadOctetsError(f"{name} is cut short")
        return end

    def _short_string(self, at: int, stop: int, name: str) -> int:
        end = self._short_octets(at, stop, name)
        try:
            self._data[at + 1 : end].decode()
        except UnicodeDecodeError as error:
            raise _BadOctetsError(f"{name} is not UTF-8") from error
        return end

    def _long_string(self, at: int, stop: int, name: str) -> int:
        if at + 4 > stop:
            raise _BadOctetsError(f"{name} is cut short")
        end: int = at + 4 + _LONG.unpack_from(self._data, at)[0]
        if end > stop:
            raise _BadOctetsError(f"{name} is cut short")
        return end

    def property(self, at: int, kind: str) -> int:
        """The end of a content property of a kind of :data:`PROPERTY_KINDS` that starts at ``at``. The strings are the
        clients' own affair: they may hold any octets, as in RabbitMQ."""
        if kind == "table":
            return self.table(at, self._stop, 1)
        if kind == "short string":
            return self._short_octets(at, self._stop, "property")
        return at + _FIXED_PROPERTY[kind]

    def fields(self, at: int) -> list[tuple[bytes, bytes]]:
        """Name (a short string) and value of each field of the table at ``at``, raw."""
        end = self._long_string(at, self._stop, "table")
        at += 4
        found = []
        while at < end:
            value_at = self._short_string(at, end, "field name")
            value_end = self._value(value_at, end, 1)
            found.append((self._data[at:value_at], self._data[value_at:value_end]))
            at = value_end
        return found

    def items(self, at: int) -> list[bytes]:
        """The values of the array whose length stands at ``at``, raw."""
        end = self._long_string(at, self._stop, "array")
        at += 4
        found = []
        while at < end:
            value_end = self._value(at, end, 1)
            found.append(self._data[at:value_end])
            at = value_end
        return found

    def table(self, at: int, stop: int, depth: int) -> int:
        """Walk the table at ``at``, which must end by ``stop``; returns its end."""
        end = self._long_string(at, stop, "table")
        at += 4
        while at < end:
            at = self._short_string(at, end, "field name")
            at = self._value(at, end, depth)
        return end

    def _array(self, at: int, stop: int, depth: int) -> int:
        end = self._long_string(at, stop, "array")
        at += 4
        while at < end:
            at = self._value(at, end, depth)
        return end

    def _value(self, at: int, stop: int, depth: int) -> int:
        self._fields += 1
        if depth > TABLE_DEPTH_MAX or self._fields > TABLE_FIELDS_MAX:
            raise _BadOctetsError(f"more than {TABLE_FIELDS_MAX} fields, or nested over {TABLE_DEPTH_MAX} deep")
        if at >= stop:
            raise _BadOctetsError("field without a value")
        kind = self._data[at]
        at += 1
        size = _FIXED_FIELD.get(kind)
        if size is not None:
            if at + size > stop:
                raise _BadOctetsError("field is cut short")
            return at + size
        if kind in _STRING_FIELDS:
            return self._long_string(at, stop, "field")
        if kind == 0x46:  # F
            return self.table(at, stop, depth + 1)
        if kind == 0x41:  # A
            return self._array(at, stop, depth + 1)
        raise _BadOctetsError(f"unknown field type {bytes([kind])!r}")


# Content properties, in the order of their flag bits (AMQP 0-9-1, 1.8.1: basic). s: short string, t: table.
_PROPERTIES: Final = (
    (0x8000, "s", "content-type"), (0x4000, "s", "content-encoding"), (0x2000, "t", "headers"),
    (0x1000, "mode", "delivery-mode"), (0x0800, "octet", "priority"), (0x0400, "s", "correlation-id"),
    (0x0200, "reply", "reply-to"), (0x0100, "expiration", "expiration"), (0x0080, "s", "message-id"),
    (0x0040, "long", "timestamp"), (0x0020, "s", "type"), (0x0010, "user", "user-id"),
    (0x0008, "s", "app-id"), (0x0004, "s", "cluster-id"),
)  # fmt: skip
_FIXED_PROPERTY: Final = {"octet": 1, "long": 8}
_RAW_KINDS: Final = {"t": "table", "mode": "octet", "octet": "octet", "long": "long"}
PROPERTY_KINDS: Final = tuple((bit, _RAW_KINDS.get(kind, "short string")) for bit, kind, _name in _PROPERTIES)
"""Flag bit and kind of each property, in their order: *short string*, *table*, *octet*, *long* (of eight octets)."""
_UNDEFINED_FLAGS: Final = 0x0003  # bit 0 announces a second flag word, and basic has none

_plans: dict[int, tuple[tuple[str, str], ...]] = {}  # at most 16,384: there are 14 flags


def _plan(flags: int) -> tuple[tuple[str, str], ...]:
    plan = _plans.get(flags)
    if plan is None:
        if flags & _UNDEFINED_FLAGS:
            raise _BadOctetsError(f"undefined property flags {flags:#06x}")
        plan = tuple((kind, name) for bit, kind, name in _PROPERTIES if flags & bit)
        _plans[flags] = plan
    return plan


def check_properties(data: bytes, at: int, stop: int, user: str | None) -> int:
    """Check the flags and properties in ``data[at:stop]``, the part of a content header after the body size.

    Returns the message's time to live in milliseconds, as its expiration says, or :data:`NO_TTL`; or :data:`COPIES` if
    the headers name more routing keys, or a direct reply is asked for.

    Raises HardError 501 if they are not well formed, and SoftError 406 for a delivery mode that is neither 1 nor 2,
    an expiration that is not a number of milliseconds up to ten years, and a user id that is not ``user`` (None: any).
    """
    ttl_ms, has_copies = NO_TTL, False
    try:
        flags = _SHORT.unpack_from(data, at)[0]
        at += 2
        for kind, name in _plans.get(flags) or _plan(flags):
            if kind == "s":
                at += 1 + data[at]
            elif kind == "mode":
                if data[at] not in (1, 2):
                    raise _bad_mode(data[at]) if at < stop else _BadOctetsError(f"{name} is cut short")
                at += 1
            elif kind == "long":
                at += 8
            elif kind == "octet":
                at += 1
            elif kind == "t":
                end = Walk(data).table(at, stop, 1)
                has_copies = data.find(b"CC", at, end) >= 0 and _names_copies(data, at)
                at = end
            elif kind == "reply":
                end = at + 1 + data[at]
                has_copies = has_copies or data[at + 1 : end] == REPLY_TO
                at = end
            else:
                end = at + 1 + data[at]
                if end > stop:  # what stands behind is another frame's, and tells nothing about this message
                    raise _BadOctetsError(f"{name} is cut short")
                text = data[at + 1 : end].decode("utf-8", "replace")
                if kind == "expiration":
                    ttl_ms = _time_to_live(text)
                elif user is not None and text != user:
                    raise _bad_user(text, user)
                at = end
            if at > stop:
                raise _BadOctetsError(f"{name} is cut short")
        if at != stop:
            raise _BadOctetsError(f"{stop - at} octets after the last property")
    except (_BadOctetsError, IndexError, StructError) as error:
        reason = str(error) if isinstance(error, _BadOctetsError) else "cut short"
        raise HardError(ReplyCode.FRAME_ERROR, f"content properties: {reason}", BASIC_PUBLISH) from error
    return COPIES if has_copies else ttl_ms


def _names_copies(data: bytes, at: int) -> bool:
    """Whether the table at ``at`` has a field of the name CC or BCC."""
    return any(name in (b"\x02CC", b"\x03BCC") for name, _value in Walk(data).fields(at))


def _bad_mode(mode: int) -> SoftError:
    text = f"invalid message: delivery mode {mode} is neither 1 nor 2"
    return SoftError(ReplyCode.PRECONDITION_FAILED, text, BASIC_PUBLISH)


def _bad_user(claimed: str, user: str) -> SoftError:
    text = f"user_id property set to '{claimed}' but authenticated user was '{user}'"
    return SoftError(ReplyCode.PRECONDITION_FAILED, text, BASIC_PUBLISH)


def _time_to_live(text: str) -> int:
    """An expiration as a number. The error texts give RabbitMQ's reasons, which are Erlang terms."""
    found = _NUMBER.match(text)
    if found is None:
        raise _bad_expiration(text, "no_integer")
    if rest := text[found.end() :]:
        raise _bad_expiration(text, f'{{leftover_string,"{rest}"}}')
    if (number := int(found[0])) < 0:
        raise _bad_expiration(text, f"{{value_negative,{number}}}")
    if number > TIME_MS_MAX:
        raise _bad_expiration(text, f"{{value_too_large,{number}}}")
    return number


def _bad_expiration(text: str, reason: str) -> SoftError:
    return SoftError(ReplyCode.PRECONDITION_FAILED, f"invalid expiration '{text}': {reason}", BASIC_PUBLISH)


def check_table(data: bytes) -> bool:
    """Whether ``data`` is exactly one well-formed field table that Python can hold."""
    try:
        if Walk(data).table(0, len(data), 1) != len(data):
            return False
        decode.field_table(data)
    except (_BadOctetsError, ValueError, ArithmeticError, OSError, StructError):
        return False
    return True
