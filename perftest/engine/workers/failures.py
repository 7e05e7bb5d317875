"""Errors for people: what happened, where, and what to do, for each error that can end a run."""

from __future__ import annotations

from typing import Final

from perftest.amqp.errors import (
    AmqpError,
    BrokerProtocolError,
    ChannelClosedError,
    ConnectionClosedError,
    LoginRefusedError,
    MechanismError,
    NoChannelLeftError,
    TlsError,
    UnreachableError,
    VhostRefusedError,
)
from perftest.engine.api import RunError
from perftest.engine.connections.dialing import StartupTimeoutError
from perftest.engine.connections.recovery import RecoveryOffError
from perftest.engine.publishing.material import MaterialError
from perftest.engine.publishing.publisher import ConfirmTimeoutError

_OTHER_EXCHANGE: Final = (
    "an exchange of this name exists with another type or durability: choose another name (-e), or match it (-t)"
)
_CHANNEL_FIXES: Final = (
    (403, "exclusive use", "another consumer has this queue for itself: choose another queue"),
    (403, "exchange", "grant the user permission for this exchange and to bind to it, or use another user"),
    (403, "", "grant the user configure, write and read permission for this queue, or use another user"),
    (404, "exchange", "declare the exchange first, or let perftest declare it (leave out -p, or 'predeclared')"),
    (404, "", "declare the queue first, or let perftest declare it (leave out -p, or 'predeclared')"),
    (405, "", "the queue is exclusive to another connection: choose another name"),
    (406, "exclusive-owner", "quorum queues cannot be exclusive: leave out -E, or use classic queues"),
    (406, "for exchange", _OTHER_EXCHANGE),
    (
        406,
        "timed out",
        "acknowledge sooner (-A, --ack-interval-ms), or raise consumer_timeout in the broker's configuration",
    ),
    (406, "max size", "publish smaller messages (-s), or raise max_message_size in the broker's configuration"),
    (406, "unsupported queue type", "use a type that this broker has; keyed queues are of the bundled broker"),
    (406, "user_id", "leave out the property userId (-mp), or let it be the user that logs in"),
    (406, "expiration", "write the property expiration (-mp) as a whole number of milliseconds"),
    (406, "delivery tag", "see the broker's log: it does not know a message that it delivered"),
)
"""Advice by reply code and a word of the reply text. The first entry that fits counts."""
_METHOD_FIXES: Final = {
    (406, "queue.declare"): "a queue of this name exists with other properties: delete it, choose another name, or "
    "match them; a broker without classic queues needs -qq",
    (406, "exchange.declare"): _OTHER_EXCHANGE,
    (406, "basic.publish"): "change what is published (size, properties, transactions) as the broker says",
}
"""Advice by reply code and the method that the broker refuses, if the text says no more."""
_SEE_LOG: Final = "see the broker's log for the reason"

REPLY_NOT_IMPLEMENTED: Final = 540


def explain(error: AmqpError, where: str = "") -> RunError:
    """The three lines for ``error``. Without ``where`` the notes of the error say where it happened."""
    if isinstance(error, MaterialError):
        return RunError(what=str(error), where=error.where, fix=error.fix)
    return RunError(what=_what(error), where=where or _notes(error), fix=_fix(error))


def _notes(error: AmqpError) -> str:
    """The notes of the error, the most precise first, without notes that another note contains."""
    notes: list[str] = list(getattr(error, "__notes__", ()))
    return ", ".join(note for note in notes if not any(note != other and note in other for other in notes))


def _what(error: AmqpError) -> str:
    match error:
        case MechanismError():
            return str(error)
        case LoginRefusedError():
            return f"login refused: {error}"
        case VhostRefusedError():
            return f"virtual host refused: {error}"
        case ChannelClosedError():
            return f"the broker closed the channel: {error}"
        case ConnectionClosedError():
            return f"the broker closed the connection: {error}"
        case BrokerProtocolError():
            return f"the broker broke the AMQP protocol: {error}"
    return str(error)


def _fix(error: AmqpError) -> str:
    match error:
        case UnreachableError():
            return "start the broker, or check host and port of the URI"
        case LoginRefusedError():
            return "check user and password in the URI; RabbitMQ lets 'guest' in from its own host only"
        case VhostRefusedError() if "limit" in error.text:
            return "open fewer connections (more channels on each: -X, -Y), or raise the limit of the virtual host"
        case VhostRefusedError() if error.temporary:
            return "see the broker's log: the virtual host is down on that node, or the node is just starting"
        case VhostRefusedError():
            return "create the virtual host or name another one in the URI's path (the default '/' is written %2f)"
        case ChannelClosedError():
            fixes = (fix for code, word, fix in _CHANNEL_FIXES if code == error.code and word in error.text)
            return next(fixes, _METHOD_FIXES.get((error.code, error.method), _SEE_LOG))
        case ConnectionClosedError() if "exchange type" in error.text:
            return "use one of direct, fanout, topic and headers, or enable the broker's plugin for this type"
        case ConnectionClosedError() if "global qos" in error.text:
            return "quorum queues know no prefetch of a whole channel: use the one of each consumer (-q in place of -Q)"
        case ConnectionClosedError() if error.code == REPLY_NOT_IMPLEMENTED and error.method.startswith("tx."):
            return "this broker has no transactions: leave out -m and -n, or use another broker"
        case ConnectionClosedError() if error.code == REPLY_NOT_IMPLEMENTED and error.method.startswith("exchange."):
            return "this broker does not serve exchanges: publish through the default exchange (-e amq.default)"
        case ConnectionClosedError():
            return _SEE_LOG
        case TlsError():
            return (
                "check scheme and port of the URI; name the file of the certificate's authority (--tls-ca), or the "
                "name that the certificate bears (-sni)"
            )
        case StartupTimeoutError():
            return "start the broker's nodes, allow more time (-sst), or be content with fewer of them (-sul)"
        case MechanismError():
            return "enable the mechanism in the broker's configuration, or log in the other way (with or without -se)"
        case BrokerProtocolError():
            return "check that the port speaks AMQP 0-9-1; if it does, the broker or something before it is faulty"
        case NoChannelLeftError():
            return "use more connections with fewer channels each, or raise channel_max in the broker's configuration"
        case RecoveryOffError():
            return "see the broker's log for the reason, or let connections recover (leave out -dcr)"
        case ConfirmTimeoutError():
            return (
                "see the broker's log and alarms (a blocked connection, a lost quorum), or allow more time for confirms"
            )
    return "see the broker's log; with several URIs the generator goes on with another node"
