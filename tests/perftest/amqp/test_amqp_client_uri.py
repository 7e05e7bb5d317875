"""URIs: a wrong one must be refused in words, a right one understood as RabbitMQ understands it."""

from __future__ import annotations

import pytest

from perftest.amqp.uri import AmqpUri, UriError, parse_uri


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("amqp://", AmqpUri()),
        ("amqp://host", AmqpUri(host="host")),
        ("amqp://host:10000/vhost", AmqpUri(host="host", port=10000, vhost="vhost")),
        ("amqp://user:pass@host:1/v%2fh", AmqpUri(user="user", password="pass", host="host", port=1, vhost="v/h")),
        ("amqp://us%61r:p%40ss@h/%2f", AmqpUri(user="usar", password="p@ss", host="h", vhost="/")),
        ("amqp://host/", AmqpUri(host="host", vhost="")),
        ("amqp://user@host", AmqpUri(user="user", password="guest", host="host")),
        ("amqp://[::1]:5673/x", AmqpUri(host="::1", port=5673, vhost="x")),
        ("amqps://host", AmqpUri(host="host", port=5671, tls=True)),
        ("amqp://host?heartbeat=5&connection_timeout=1500", AmqpUri(host="host", heartbeat_s=5, timeout_s=1.5)),
        ("amqp://host/v?failover=x&verify=", AmqpUri(host="host", vhost="v", unused=("failover", "verify"))),
        ("amqps://[::1]:1/%25", AmqpUri(host="::1", port=1, vhost="%", tls=True)),
    ],
)
def test_uris_mean_what_they_mean_to_rabbitmq(text: str, expected: AmqpUri) -> None:
    assert parse_uri(text) == expected


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("http://host", "amqp://"),
        ("host:5672", "amqp://"),
        ("amqpss://host", "amqps://"),
        ("amqp://host:99999", "port"),
        ("amqp://host:0", "port"),
        ("amqp://[::1", "IPv6"),
        ("amqp://host:seven", "port"),
        ("amqp://host/a/b", "%2f"),
        ("amqp://host?heartbeat=soon", "heartbeat=soon must be a whole number of seconds"),
        ("amqp://host?connection_timeout=-1", "whole number of ms"),
        ("amqp://host#part", "%23"),
        ("amqp://user:pa/ss@host", "/ in a user or a password is written %2f"),
        ("amqp://user:pa?ss@host", "is written %3f"),
        ("amqp://user:pa#ss@host", "is written %23"),
    ],
)
def test_a_wrong_uri_is_refused_with_the_reason(text: str, word: str) -> None:
    with pytest.raises(UriError, match=word):
        parse_uri(text)


def test_the_password_is_in_no_printed_form() -> None:
    """Results are shared; a password in them would be shared, too."""
    uri = parse_uri("amqp://me:sesame@host/%2f")
    assert uri.redacted == "amqp://me:***@host:5672/%2F"
    assert "sesame" not in f"{uri} {uri!r}"
    assert parse_uri("amqps://me:sesame@[::1]").redacted == "amqps://me:***@[::1]:5671/%2F"


def test_an_error_does_not_show_the_password() -> None:
    with pytest.raises(UriError) as caught:
        parse_uri("amqp://me:sesame@host:seven")
    assert "sesame" not in str(caught.value)
