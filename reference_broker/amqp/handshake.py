"""From the protocol header to an open connection: what is offered, who may come in, and what is agreed.

Pure questions and answers; :mod:`~reference_broker.amqp.connection` owns the phases. Violations here end in one of two
ways, as in RabbitMQ: a refused login is told at once to clients that announced ``authentication_failure_close``, and
everything else is a :class:`~reference_broker.amqp.errors.RefusedError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest
from typing import Final

from pamqp import commands, decode

from reference_broker.amqp.errors import HardError, RefusedError, ReplyCode
from reference_broker.amqp.events import FieldValue
from reference_broker.amqp.fields import check_table
from reference_broker.amqp.frames import FRAME_MIN_SIZE, LONG
from reference_broker.amqp.link import ConnectionConfig

MECHANISMS: Final = "PLAIN AMQPLAIN"
_START_OK: Final = (10, 11)
_OPEN: Final = (10, 40)
_UPDATE_SECRET: Final = (10, 70)

CAPABILITIES: Final = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": False,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": False,
}


def start(config: ConnectionConfig) -> commands.Connection.Start:
    """connection.start: who we are and what we can do."""
    properties: dict[str, object] = {
        "capabilities": dict(CAPABILITIES),
        "product": config.product,
        "version": config.version,
        "platform": config.platform,
        "cluster_name": config.cluster_name,
        **config.node_properties,
    }
    return commands.Connection.Start(0, 9, properties, MECHANISMS, "en_US")  # type: ignore[arg-type]


def capabilities(client_properties: Mapping[str, FieldValue]) -> frozenset[str]:
    """What the client said it can do, in its connection.start-ok."""
    announced = client_properties.get("capabilities")
    if not isinstance(announced, dict):
        return frozenset()
    return frozenset(name for name, able in announced.items() if able is True)


def authenticate(config: ConnectionConfig, method: commands.Connection.StartOk, able: frozenset[str]) -> str:
    """The user who logs in with connection.start-ok.

    Raises RefusedError for a mechanism that is not offered, for a malformed response and for wrong credentials; for the
    latter HardError 403 where the client understands that.
    """
    response = _octets(method.response)
    if method.mechanism == "PLAIN":
        login, password = _plain(response)
    elif method.mechanism == "AMQPLAIN":
        login, password = _amqplain(response)
    else:
        raise RefusedError(f"client asked for the unknown authentication mechanism {method.mechanism!r}")
    user = login.decode("utf-8", "backslashreplace")
    if _is_password(config.users, login, password):
        return user
    if "authentication_failure_close" not in able:
        raise RefusedError(f"login of user {user!r} was refused")
    # One text for an unknown user and for a wrong password: it must not tell which names exist.
    text = f"Login was refused using authentication mechanism {method.mechanism}. For details see the broker's logfile."
    raise HardError(ReplyCode.ACCESS_REFUSED, text, _START_OK)


def check_secret(config: ConnectionConfig, user: str, method: commands.Connection.UpdateSecret) -> None:
    """HardError 530 unless the new secret of ``user`` is the password that would log in now."""
    if not _is_password(config.users, user.encode(), _octets(method.new_secret)):
        raise HardError(ReplyCode.NOT_ALLOWED, f"the new secret of user {user!r} is not its password", _UPDATE_SECRET)


def _octets(long_string: object) -> bytes:
    """A long string as it was sent. pamqp declares it as ``str``, and gives ``bytes`` where it is not UTF-8."""
    if isinstance(long_string, bytes):
        return long_string
    return long_string.encode() if isinstance(long_string, str) else b""


def _is_password(users: Mapping[str, str], user: bytes, password: bytes) -> bool:
    """In the same time whether the user exists or not. A name that is not UTF-8 is one that does not exist."""
    expected = users.get(user.decode("utf-8", "surrogateescape"))
    equal = compare_digest((expected or "").encode(), password)
    return equal and expected is not None


def _plain(response: bytes) -> tuple[bytes, bytes]:
    """RFC 4616 without an authorization identity: NUL user NUL password."""
    parts = response.split(b"\x00")
    if len(parts) != 3 or parts[0]:
        raise RefusedError("malformed PLAIN response")
    return parts[1], parts[2]


def _amqplain(response: bytes) -> tuple[bytes, bytes]:
    """A field table without its length, with LOGIN and PASSWORD."""
    table = LONG.pack(len(response)) + response
    if not check_table(table):
        raise RefusedError("malformed AMQPLAIN response")
    fields = decode.field_table(table)[1]
    user, password = fields.get("LOGIN"), fields.get("PASSWORD")
    if not isinstance(user, str | bytes) or not isinstance(password, str | bytes):
        raise RefusedError("AMQPLAIN response without LOGIN and PASSWORD")
    return _octets(user), _octets(password)


def tune(config: ConnectionConfig) -> commands.Connection.Tune:
    """connection.tune: our limits."""
    return commands.Connection.Tune(config.channel_max, config.frame_max, config.heartbeat_s)


def check_tune(config: ConnectionConfig, method: commands.Connection.TuneOk) -> None:
    """RefusedError unless connection.tune-ok stays within our limits. 0 means "no limit", and we have limits."""
    if not 1 <= method.channel_max <= config.channel_max:
        raise RefusedError(f"negotiated channel_max {method.channel_max} is not within 1 to {config.channel_max}")
    if not FRAME_MIN_SIZE <= method.frame_max <= config.frame_max:
        raise RefusedError(f"negotiated frame_max {method.frame_max} is not within 4096 to {config.frame_max}")


def check_vhost(config: ConnectionConfig, method: commands.Connection.Open) -> None:
    """HardError 530 unless the virtual host exists."""
    if method.virtual_host not in config.vhosts:
        raise HardError(ReplyCode.NOT_ALLOWED, f"vhost {method.virtual_host} not found", _OPEN)
