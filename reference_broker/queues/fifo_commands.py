"""The work of every host of the FIFO machine with its commands: read a forwarded batch, answer late. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, TypeGuard

from reference_broker import message_run
from reference_broker.machines.batch import decode_batch
from reference_broker.machines.commands import Cancel, Checkout, Command, Enqueue, Get, GetCheckedOut, Purge
from reference_broker.machines.effects import Deliver, Effect, Reply
from reference_broker.machines.fifo import FifoMachine
from reference_broker.queues.port import Channels
from reference_broker.types import ChannelId

SMALL_COMMAND_BYTES: Final = 64
Asking = Checkout | Cancel | Purge | Get | GetCheckedOut
"""Commands whose reply a channel waits for."""


def decode_forwarded(sealed: bytes, end: int, sent_ns: int) -> list[tuple[Any, int]]:
    """The commands of a batch forwarded at ``sent_ns``, each with its size. Their runs are views into the batch."""
    commands = [_sent(command, sent_ns) for _offset, command in decode_batch(sealed, end)[1]]
    return [(command, command_size(command)) for command in commands]


def _sent(command: Command, sent_ns: int) -> Command:
    """The command; a stamped run gets the time at which it was forwarded."""
    if type(command) is not Enqueue or not command.run.stamp[0] or not sent_ns:
        return command
    clock, read_ns, parsed_ns, _waited_ns = command.run.stamp
    return replace(command, run=message_run.stamped(command.run, clock, read_ns, read_ns + parsed_ns, sent_ns))


def command_size(command: object) -> int:
    """Approximate octets of a command in a batch."""
    return len(command.run.data) + SMALL_COMMAND_BYTES if isinstance(command, Enqueue) else SMALL_COMMAND_BYTES


def expects_reply(command: object) -> TypeGuard[Asking]:
    """Whether a channel waits for the reply to the command."""
    return isinstance(command, Asking)


def question(command: object) -> tuple[ChannelId, int] | None:
    """The channel that waits for the reply to the command, and the reply's correlation; None if none does."""
    return _asked_by(command) if expects_reply(command) else None


def missed_effects(machine: FifoMachine, channels: Channels, asked: Sequence[Any]) -> list[Effect]:
    """The effects that channels may have missed: confirms and refusals, replies to their commands ``asked``, and
    deliveries of their held messages."""
    node, boot_id = channels.node, channels.boot_id
    held = machine.redeliver_local(node, boot_id)
    replies = [Reply(*_asked_by(each), _late_answer(machine, each, held)) for each in asked if expects_reply(each)]
    return [*machine.reconfirm_local(node, boot_id), *replies, *held]


def _asked_by(command: Asking) -> tuple[ChannelId, int]:
    channel = command.channel if isinstance(command, Purge) else command.consumer.channel
    return channel, command.correlation


def _late_answer(machine: FifoMachine, command: Asking, held: Sequence[Deliver]) -> int:
    """The value of a late reply. A purge's count of messages is lost. A consumer goes on with the first message that it
    holds, because this member does not know which of its deliveries arrived."""
    if not isinstance(command, Checkout):
        return 0
    first = [delivery.first_message_id for delivery in held if delivery.consumer == command.consumer]
    return min([*first, machine.next_message_id(command.consumer)])
