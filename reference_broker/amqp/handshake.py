"""From the protocol header to an open connection: the broker's offer, the login, and the limits that are agreed on.

``STEPS`` is the table of the methods that may come on channel 0 in each phase. Each step answers its method and returns
the next phase. Violations end in one of two ways, as in RabbitMQ. A login that fails is refused with a HardError if the
client has announced ``authentication_failure_close``. Everything else is a
:class:`~reference_broker.amqp.errors.NegotiationError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pamqp import base, commands, decode

from reference_broker.amqp.config import ConnectionConfig
from reference_broker.amqp.errors import HardError, NegotiationError, ReplyCode
from reference_broker.amqp.events import ConnectionOpened, FieldValue
from reference_broker.amqp.fields import check_table
from reference_broker.amqp.frames import FRAME_MIN_SIZE, LONG
from reference_broker.amqp.gate import Gate
from reference_broker.amqp.state import ConnectionState, Phase

_MECHANISMS: Final = "PLAIN AMQPLAIN"
_START_OK: Final = (10, 11)
_OPEN: Final = (10, 40)

CAPABILITIES: Final = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}


def start(config: ConnectionConfig) -> commands.Connection.Start:
    """connection.start: the properties and capabilities of the broker."""
    properties: dict[str, object] = {
        "capabilities": dict(CAPABILITIES),
        **config.product._asdict(),
        "cluster_name": config.cluster_name,
        **config.node_properties,
    }
    mechanisms = _MECHANISMS + (" EXTERNAL" if config.gate.certificate_user else "")
    return commands.Connection.Start(0, 9, properties, mechanisms, "en_US")  # type: ignore[arg-type]


def start_ok(state: ConnectionState, method: commands.Connection.StartOk) -> Phase:
    """The client logs in. Raises NegotiationError or HardError 403 if it may not."""
    state.client_properties = dict(method.client_properties or {})
    state.capabilities = _capabilities(state.client_properties)
    state.user = _authenticate(state, method)
    config = state.config
    state.user_id = None if config.gate.may_impersonate(state.user) else state.user
    state.send(0, commands.Connection.Tune(config.channel_max, config.frame_max, config.heartbeat_s))
    return Phase.TUNING


def tune_ok(state: ConnectionState, method: commands.Connection.TuneOk) -> Phase:
    """The client chooses its limits. Raises NegotiationError for limits above the broker's; 0 means "no limit"."""
    config = state.config
    if not 1 <= method.channel_max <= config.channel_max:
        raise NegotiationError(f"negotiated channel_max {method.channel_max} is not within 1 to {config.channel_max}")
    if not FRAME_MIN_SIZE <= method.frame_max <= config.frame_max:
        raise NegotiationError(f"negotiated frame_max {method.frame_max} is not within 4096 to {config.frame_max}")
    state.channel_max = method.channel_max
    state.heartbeat_s = method.heartbeat
    state.limit_frames(method.frame_max)
    return Phase.OPENING


def open_vhost(state: ConnectionState, method: commands.Connection.Open) -> Phase:
    """The client opens a virtual host. Raises HardError 530 if the virtual host does not exist, or is not for the
    user."""
    if refusal := state.config.gate.why_not_open(state.user, method.virtual_host):
        raise HardError(ReplyCode.NOT_ALLOWED, refusal, _OPEN)
    state.vhost = method.virtual_host
    state.send(0, commands.Connection.OpenOk())
    state.events.append(ConnectionOpened(state.user, state.vhost, state.client_properties))
    return Phase.RUNNING


def update_secret(state: ConnectionState, _method: commands.Connection.UpdateSecret) -> Phase:
    """A client has a new secret. As in RabbitMQ, it is not compared: the proof of the log-in stays valid."""
    state.send(0, commands.Connection.UpdateSecretOk())
    return Phase.RUNNING


Step = Callable[[ConnectionState, Any], Phase]  # each step is called with the one method that it is listed for

STEPS: Final[dict[Phase, dict[type[base.Frame], Step]]] = {
    Phase.STARTING: {commands.Connection.StartOk: start_ok},
    Phase.TUNING: {commands.Connection.TuneOk: tune_ok},
    Phase.OPENING: {commands.Connection.Open: open_vhost},
    Phase.RUNNING: {commands.Connection.UpdateSecret: update_secret},
}
"""The methods that may come on channel 0, by phase. connection.close, too, may come in each of these phases."""


def _capabilities(client_properties: Mapping[str, FieldValue]) -> frozenset[str]:
    """The capabilities that the client has announced in connection.start-ok."""
    announced = client_properties.get("capabilities")
    if not isinstance(announced, dict):
        return frozenset()
    return frozenset(name for name, able in announced.items() if able is True)


def _authenticate(state: ConnectionState, method: commands.Connection.StartOk) -> str:
    """The user who logs in.

    Raises NegotiationError for a mechanism that is not offered, for a malformed response and for wrong credentials;
    the last is HardError 403 if the client understands it.
    """
    response, gate = _octets(method.response), state.config.gate
    if method.mechanism == "PLAIN":
        login, password = _plain(response)
    elif method.mechanism == "AMQPLAIN":
        login, password = _amqplain(response)
    elif method.mechanism == "EXTERNAL" and (name := gate.certificate_user):
        if gate.is_external(name):
            return name
        login, password = name.encode(), b""
    else:
        raise NegotiationError(f"client asked for the unknown authentication mechanism {method.mechanism!r}")
    user = login.decode("utf-8", "backslashreplace")
    if _is_password(gate, login, password):
        return user
    if "authentication_failure_close" not in state.capabilities:
        raise NegotiationError(f"login of user {user!r} was refused")
    # The text is the same for an unknown user and for a wrong password: it must not tell which names exist.
    text = f"Login was refused using authentication mechanism {method.mechanism}. For details see the broker logfile."
    raise HardError(ReplyCode.ACCESS_REFUSED, text, _START_OK)


def _octets(long_string: object) -> bytes:
    """A long string as it was sent. pamqp declares ``str``, and gives ``bytes`` if the string is not UTF-8."""
    if isinstance(long_string, bytes):
        return long_string
    return long_string.encode() if isinstance(long_string, str) else b""


def _is_password(gate: Gate, user: bytes, password: bytes) -> bool:
    """Whether the user may log in with this password. A name that is not UTF-8 does not exist."""
    return gate.is_password(user.decode("utf-8", "surrogateescape"), password)


def _plain(response: bytes) -> tuple[bytes, bytes]:
    """User and password as in RFC 4616, without an authorization identity: NUL user NUL password."""
    parts = response.split(b"\x00")
    if len(parts) != 3 or parts[0]:
        raise NegotiationError("malformed PLAIN response")
    return parts[1], parts[2]


def _amqplain(response: bytes) -> tuple[bytes, bytes]:
    """User and password in a field table without its length, with the fields LOGIN and PASSWORD."""
    table = LONG.pack(len(response)) + response
    if not check_table(table):
        raise NegotiationError("malformed AMQPLAIN response")
    fields = decode.field_table(table)[1]
    user, password = fields.get("LOGIN"), fields.get("PASSWORD")
    if not isinstance(user, str | bytes) or not isinstance(password, str | bytes):
        raise NegotiationError("AMQPLAIN response without LOGIN and PASSWORD")
    return _octets(user), _octets(password)
