"""Coming in: what is offered, who is let in, what is agreed, and how long anybody may take."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from reference_broker.amqp.config import ConnectionConfig
from reference_broker.amqp.events import ChannelClosed, ConnectionClosed, ConnectionOpened
from reference_broker.amqp.gate import FixedUsers
from reference_broker.amqp.handshake import STEPS
from reference_broker.amqp.product import PRODUCTS
from reference_broker.amqp.state import Phase
from tests.reference_broker.amqp.testing import PROTOCOL_HEADER, ScriptedClient, method, raw_frame

Connection = commands.Connection
AMQPLAIN = b"\x05LOGINS\x00\x00\x00\x05guest\x08PASSWORDS\x00\x00\x00\x05guest"


def greeted() -> ScriptedClient:
    client = ScriptedClient(ConnectionConfig(gate=FixedUsers({"guest": "guest", "émile": "pässword"})))
    client.raw(PROTOCOL_HEADER)
    client.output()
    return client


def start_ok(mechanism: str, response: bytes, capabilities: tuple[str, ...] = ()) -> bytes:
    """By hand, because pamqp does not encode responses that are no text."""
    table = method(0, Connection.StartOk({"capabilities": dict.fromkeys(capabilities, True)}, "M", "R", "L"))
    before, _, _ = table[7:].partition(b"\x01M")
    named = bytes([len(mechanism)]) + mechanism.encode()
    return raw_frame(1, 0, before + named + len(response).to_bytes(4, "big") + response + b"\x05en_US")


def test_a_client_comes_in() -> None:
    """The handshake every client library does."""
    client = ScriptedClient(ConnectionConfig(cluster_name="three", product=PRODUCTS["RabbitMQ"]))
    client.raw(PROTOCOL_HEADER)
    ((_, start),) = client.heard()
    assert isinstance(start, Connection.Start)
    assert (start.version_major, start.version_minor, start.mechanisms) == (0, 9, "PLAIN AMQPLAIN")
    assert start.server_properties["cluster_name"] == "three"
    assert (start.server_properties["product"], start.server_properties["version"]) == ("RabbitMQ", "3.10.8")
    assert str(start.server_properties["platform"]).startswith("reference_broker ")
    assert start.server_properties["capabilities"]["publisher_confirms"] is True  # type: ignore[index,call-overload]
    client.raw(client.start_ok(["basic.nack"]))
    ((_, tune),) = client.heard()
    assert isinstance(tune, Connection.Tune)
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131_072, 60)
    client.send(0, Connection.TuneOk(100, 8192, 7))
    assert client.heard() == []
    (opened,) = client.send(0, Connection.Open("/"))
    assert opened == ConnectionOpened("guest", "/", client.server.state.client_properties)
    assert client.server.state.client_properties["product"] == "test"
    assert [type(each) for _, each in client.heard()] == [Connection.OpenOk]
    assert (client.server.is_open, client.server.state.frame_max, client.server.state.heartbeat_s) == (True, 8192, 7)
    assert (client.server.state.user, client.server.state.vhost) == ("guest", "/")


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b"\0guest\0guest"),
        ("PLAIN", "\0émile\0pässword".encode()),
        ("AMQPLAIN", AMQPLAIN),
    ],
)
def test_right_credentials(mechanism: str, response: bytes) -> None:
    """Both mechanisms that clients of this protocol use, and names that are not ASCII."""
    client = greeted()
    client.raw(start_ok(mechanism, response))
    assert [type(each) for _, each in client.heard()] == [Connection.Tune]


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b"\0guest\0wrong"),
        ("PLAIN", b"\0nobody\0guest"),
        ("PLAIN", b"\0nobody\0"),
        ("PLAIN", b"\0guest\0"),
        ("PLAIN", b"\0\xff\0\xfe"),
        ("PLAIN", b"\0guest\0\xfe"),
        ("PLAIN", b"\0\xed\xb3\xbf\0guest"),
        ("AMQPLAIN", AMQPLAIN.replace(b"S\x00\x00\x00\x05guest", b"S\x00\x00\x00\x05\xff\xfe\xfd\xfc\xfb")),
    ],
)
def test_wrong_credentials_are_told_at_once_to_who_understands_it(mechanism: str, response: bytes) -> None:
    """403 in one round trip instead of a socket that dies; one text, so that it does not tell which users exist. Octets
    that are not UTF-8 are wrong credentials like any other, as in RabbitMQ."""
    client = greeted()
    client.raw(start_ok(mechanism, response, ("authentication_failure_close",)))
    ((_, close),) = client.heard()
    assert isinstance(close, Connection.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (403, 10, 11)
    assert f"Login was refused using authentication mechanism {mechanism}." in close.reply_text
    (closed,) = client.send(0, Connection.CloseOk())
    assert isinstance(closed, ConnectionClosed)


SILENT = {
    "wrong_password_old_client": start_ok("PLAIN", b"\0guest\0wrong"),
    "unknown_mechanism": start_ok("EXTERNAL", b"", ("authentication_failure_close",)),
    "plain_with_authorization_identity": start_ok("PLAIN", b"root\0guest\0guest"),
    "plain_malformed": start_ok("PLAIN", b"guest:guest"),
    "plain_malformed_not_utf8": start_ok("PLAIN", b"\xff\xfe"),
    "plain_not_utf8_old_client": start_ok("PLAIN", b"\0\xff\0\xfe"),
    "amqplain_malformed_not_utf8": start_ok("AMQPLAIN", b"\xff\xfe\xfd"),
    "amqplain_malformed": start_ok("AMQPLAIN", AMQPLAIN[:-3]),
    "amqplain_without_password": start_ok("AMQPLAIN", AMQPLAIN[:16]),
    "amqplain_login_is_no_string": start_ok("AMQPLAIN", b"\x05LOGINt\x01\x08PASSWORDt\x01"),
}
TUNE = {
    "frame_max_too_high": (2047, 131_073),
    "frame_max_too_low": (2047, 4095),
    "frame_max_zero": (2047, 0),
    "channel_max_too_high": (2048, 131_072),
    "channel_max_zero": (0, 131_072),
}
SILENT |= {
    name: start_ok("PLAIN", b"\0guest\0guest") + method(0, Connection.TuneOk(channels, frames, 60))
    for name, (channels, frames) in TUNE.items()
}


@pytest.mark.parametrize("name", SILENT)
def test_other_violations_are_silence_and_a_closed_socket_after_three_seconds(name: str) -> None:
    """As RabbitMQ does: no delay-free guessing of passwords."""
    client = greeted()
    client.raw(SILENT[name])
    assert [type(each) for _, each in client.heard()] in ([], [Connection.Tune])
    assert client.server.phase is Phase.REFUSING
    client.raw(start_ok("PLAIN", b"\0guest\0guest"))
    assert (client.tick(2.9), client.output()) == ([], b"")
    (closed,) = client.tick(3.0)
    assert isinstance(closed, ConnectionClosed)
    assert client.output() == b""


def update_secret(secret: bytes) -> bytes:
    """connection.update-secret with any octets for the secret, as pamqp alone would not send them."""
    return raw_frame(1, 0, b"\x00\x0a\x00\x46" + len(secret).to_bytes(4, "big") + secret + b"\x03old")


@pytest.mark.parametrize("secret", [b"guest", b"wrong", b"", b"\xff\xfe"])
def test_a_new_secret_is_taken(secret: bytes) -> None:
    """Whatever it is, as often as the client likes: RabbitMQ asks nobody about users with a password."""
    client = ScriptedClient()
    client.open()
    client.raw(update_secret(secret) * 2 + method(1, commands.Channel.Open()))
    heard = client.heard()
    assert [type(each) for _, each in heard[:2]] == [Connection.UpdateSecretOk] * 2


def test_a_log_in_is_short() -> None:
    """Nobody holds more than 4,096 octets of a stranger. RabbitMQ refuses the same log-ins."""
    for names, answer in ((30, Connection.Tune), (35, Connection.Close)):
        client = greeted()
        client.raw(client.start_ok([f"{number:0120}" for number in range(names)]))
        ((_, heard),) = client.heard()
        assert isinstance(heard, answer)


def test_unknown_vhost() -> None:
    """530, which is what client libraries translate into "no such virtual host"."""
    client = greeted()
    client.raw(client.start_ok() + method(0, Connection.TuneOk(10, 4096, 0), Connection.Open("no-such-vhost")))
    close = client.heard()[-1][1]
    assert isinstance(close, Connection.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (530, 10, 40)
    assert close.reply_text == "NOT_ALLOWED - vhost no-such-vhost not found"


@pytest.mark.parametrize(
    ("octets", "code"),
    [
        (method(1, commands.Channel.Open()), 505),
        (raw_frame(3, 1, b"x"), 505),
        (method(0, Connection.TuneOk(10, 4096, 0)), 504),
        (method(0, Connection.Open("/")), 504),
        (method(0, Connection.Tune(1, 1, 1)), 504),
        (method(0, Connection.UpdateSecret("guest", "too early")), 504),
        (raw_frame(9, 0, b""), 501),
    ],
)
def test_out_of_turn_before_open(octets: bytes, code: int) -> None:
    """A client that skips steps learns which rule it broke."""
    client = greeted()
    client.raw(octets)
    ((_, close),) = client.heard()
    assert isinstance(close, Connection.Close)
    assert close.reply_code == code


@pytest.mark.parametrize("octets", [b"", PROTOCOL_HEADER[:5], PROTOCOL_HEADER])
def test_handshake_time_out(octets: bytes) -> None:
    """Unauthenticated connections cost descriptors; ten seconds are enough for anybody."""
    client = ScriptedClient(now_s=100.0)
    if octets:
        client.raw(octets)
    client.output()
    assert client.tick(109.9) == []
    (closed,) = client.tick(110.0)
    assert closed == ConnectionClosed("handshake timeout")
    assert client.output() == b""


def test_heartbeats_are_sent_when_there_is_nothing_else_to_send() -> None:
    """A client that hears nothing for two intervals drops the connection."""
    client = ScriptedClient()
    client.open(heartbeat=10)
    assert (client.tick(4.9), client.output()) == ([], b"")
    assert client.tick(5.0) == []
    assert client.output() == raw_frame(8, 0, b"")
    client.now_s = 8.0
    client.send(1, commands.Basic.Qos(0, 1, False))
    client.output()
    assert (client.tick(12.9), client.output()) == ([], b"")


def test_what_waits_to_be_written_does_for_a_heartbeat() -> None:
    """A client that reads slowly must not find a heap of heartbeats, nor keep the broker awake over them."""
    client = ScriptedClient()
    client.open(heartbeat=10)
    client.send(1, commands.Basic.Qos(0, 1, False))
    assert client.tick(6.0) == []
    assert [type(each) for _, each in client.heard()] == [commands.Basic.QosOk]


def test_a_silent_client_is_dropped_after_three_intervals() -> None:
    """Its unacknowledged messages must go to somebody who works. RabbitMQ waits as long."""
    client = ScriptedClient()
    client.open(heartbeat=10)
    client.now_s = 15.0
    client.raw(raw_frame(8, 0, b""))
    assert client.tick(44.9) == []
    client.output()
    events = client.tick(45.0)
    assert [type(event) for event in events] == [ChannelClosed, ConnectionClosed]
    ((_, close),) = client.heard()
    assert isinstance(close, Connection.Close)
    assert close.reply_code == 320
    assert client.tick(1000.0) == []


def test_no_heartbeat_means_none() -> None:
    """A client may switch heartbeats off, and is then never dropped for silence."""
    client = ScriptedClient()
    client.open(heartbeat=0)
    assert (client.tick(1e9), client.output()) == ([], b"")


def test_client_closes() -> None:
    """A client that says goodbye gets its answer, and its channels are gone."""
    client = ScriptedClient()
    client.open(channels=2)
    events = client.send(0, Connection.Close(200, "done\n", 0, 0))
    assert events[:2] == [ChannelClosed(1), ChannelClosed(2)]
    assert events[2] == ConnectionClosed("closed by the client: 200 done\\x0a")
    assert [type(each) for _, each in client.heard()] == [Connection.CloseOk]
    assert client.raw(b"anything") == []


def test_lost_socket() -> None:
    """Consumers of a vanished client must be found and ended, once."""
    client = ScriptedClient()
    client.open(channels=1)
    assert client.server.connection_lost("reset by peer") == [ChannelClosed(1), ConnectionClosed("reset by peer")]
    assert client.server.connection_lost("again") == []


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=5), st.booleans())
def test_no_handshake_makes_it_raise(changes: list[tuple[int, int]], amqplain: bool) -> None:
    """Strangers speak before anybody knows who they are."""
    client = ScriptedClient()
    login = start_ok("AMQPLAIN", AMQPLAIN) if amqplain else start_ok("PLAIN", b"\0guest\0guest")
    good = PROTOCOL_HEADER + login + method(0, Connection.TuneOk(10, 4096, 0), Connection.Open("/"))
    octets = bytearray(good)
    for at, value in changes:
        octets[at % len(octets)] = value
    single = ScriptedClient()
    client.raw(bytes(octets))
    for at in range(len(octets)):
        single.raw(bytes(octets[at : at + 1]))
    assert client.output() == single.output()
    assert client.server.phase is single.server.phase
    client.tick(1000.0)
    assert client.server.is_open or client.server.phase is Phase.CLOSED


@pytest.mark.parametrize("bad", [{"frame_max": 100}, {"channel_max": 0}, {"heartbeat_s": -1}])
def test_impossible_settings_are_refused_with_their_name(bad: dict[str, int]) -> None:
    """A broker that starts with them would refuse every client."""
    with pytest.raises(ValueError, match=next(iter(bad))):
        ConnectionConfig(**bad)  # type: ignore[arg-type]


def test_the_page_shows_the_table_of_steps() -> None:
    """Somebody who writes a client reads the page: it must name the very methods that the table lets through."""
    page = (Path(__file__).parents[3] / "docs" / "internals" / "amqp.md").read_text()
    for phase, steps in STEPS.items():
        (row,) = re.findall(rf"^\| {phase.name} \| (.*) \|$", page, re.MULTILINE)
        named = {name.lower().replace("-", "") for name in re.findall(r"`(connection\.[a-z-]+)`", row)}
        assert named == {"connection.close", *(kind.name.lower() for kind in steps)}


@pytest.mark.parametrize("phase", STEPS)
@pytest.mark.parametrize(
    "kind", [kind for kind in commands.INDEX_MAPPING.values() if kind.name.startswith("Connection")]
)
def test_each_phase_takes_the_methods_of_its_step_only(phase: Phase, kind: type[commands.Connection.Close]) -> None:
    """A method that comes too early or too late would skip the login."""
    client = greeted()
    ways = [
        start_ok("PLAIN", b"\0guest\0guest"),
        method(0, Connection.TuneOk(100, 8192, 0)),
        method(0, Connection.Open("/")),
    ]
    for octets in ways[: list(STEPS).index(phase)]:
        client.raw(octets)
    assert client.server.phase is phase
    arguments: dict[object, tuple[object, ...]] = {
        Connection.StartOk: ({}, "PLAIN", "", "en_US"),
        Connection.Secure: ("challenge",),
        Connection.SecureOk: ("response",),
        Connection.Close: (200, "bye", 0, 0),
        Connection.UpdateSecret: ("guest", "reason"),
    }
    client.raw(method(0, kind(*arguments.get(kind, ()))))  # type: ignore[arg-type]
    over = {Phase.CLOSING, Phase.CLOSED}  # closed at once if the method itself looks like the client's last word
    assert (client.server.phase not in over) == (kind in STEPS[phase])
