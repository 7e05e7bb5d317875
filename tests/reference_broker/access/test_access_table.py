"""Who may do what: a wrong yes opens the broker, a wrong no stops an application."""

from __future__ import annotations

import pytest

from reference_broker.access import passwords
from reference_broker.access.records import Access, Permission, TopicPermission, User, Vhost
from reference_broker.access.table import AccessTable


def table() -> AccessTable:
    made = AccessTable.of_a_new_cluster()
    made.put_user(User(name="ann", password_hash=passwords.hashed(b"secret", b"salt")))
    made.put_user(User(name="no-password"))
    made.put_permission(Permission(user="ann", vhost="/", configure="^ann-", write="^(ann-|amq[.]default$)", read=""))
    return made


def test_a_hash_as_in_rabbitmqs_documentation() -> None:
    """The example of its page on passwords: the password test12, the salt 908DC60A."""
    expected = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
    assert passwords.hashed(b"test12", bytes.fromhex("908DC60A")) == expected
    assert passwords.is_hash(expected) and not passwords.is_hash(expected[:-4]) and not passwords.is_hash("é")


@pytest.mark.parametrize(
    ("user", "password", "is_right"),
    [
        ("guest", b"guest", True), ("guest", b"Guest", False), ("guest", b"", False), ("ann", b"secret", True),
        ("nobody", b"", False), ("no-password", b"", False), ("no-password", b"x", False),
    ],
)  # fmt: skip
def test_passwords(user: str, password: bytes, is_right: bool) -> None:
    assert table().is_password(user, password) is is_right


def test_an_empty_password_is_nobodys() -> None:
    made = table()
    made.put_user(User(name="empty", password_hash=passwords.hashed(b"", b"salt")))
    assert not made.is_password("empty", b"")


@pytest.mark.parametrize(
    ("access", "name", "may"),
    [
        (Access.CONFIGURE, "ann-orders", True), (Access.CONFIGURE, "joann-orders", False),
        (Access.CONFIGURE, "", False), (Access.WRITE, "", True), (Access.WRITE, "amq.default", True),
        (Access.READ, "ann-orders", False), (Access.READ, "", False),
    ],
)  # fmt: skip
def test_permissions_are_searched_for_in_names(access: Access, name: str, may: bool) -> None:
    """The default exchange is called amq.default; the empty expression finds no name."""
    assert table().may("ann", "/", access, name) is may


def test_without_a_permission_record_nothing_is_allowed() -> None:
    made = table()
    assert made.may_open("ann", "/") and not made.may_open("ann", "other") and not made.may_open("no-password", "/")
    assert not made.may("no-password", "/", Access.READ, "q")


def test_topic_permissions_bind_only_whom_they_name() -> None:
    made = table()
    assert made.may_use_key("ann", "/", Access.WRITE, "x", "any.key")
    made.put_topic_permission(
        TopicPermission(user="ann", vhost="/", exchange="x", write="^{username}[.]", read="^{vhost}$")
    )
    assert made.may_use_key("ann", "/", Access.WRITE, "x", "ann.key")
    assert not made.may_use_key("ann", "/", Access.WRITE, "x", "bob.key")
    assert made.may_use_key("ann", "/", Access.READ, "x", "/") and made.may_use_key("ann", "/", Access.READ, "y", "k")
    made.delete_topic_permissions("ann", "/", None)
    assert made.may_use_key("ann", "/", Access.WRITE, "x", "bob.key")


@pytest.mark.parametrize("name", ["a.b", "{vhost}", "(a+)+$", "a b#c", "x" * 255, "\u00fc"])
def test_names_in_place_of_variables_are_no_expressions(name: str) -> None:
    made = table()
    made.put_user(User(name=name))
    made.put_topic_permission(TopicPermission(user=name, vhost="/", exchange="x", write="^{username}$", read=""))
    assert made.may_use_key(name, "/", Access.WRITE, "x", name)
    assert not made.may_use_key(name, "/", Access.WRITE, "x", name.replace(".", "_") + "a")
    assert not made.may_use_key(name, "/", Access.READ, "x", name), "the empty expression finds no key"


def test_a_permission_that_cannot_be_used_allows_nothing() -> None:
    made = table()
    made.put_permission(Permission(user="ann", vhost="/", configure="(?=a)", write=r"(a)\1", read="["))
    made.put_topic_permission(TopicPermission(user="ann", vhost="/", exchange="x", write="a++", read="{username}(?!x)"))
    assert not any(made.may("ann", "/", access, name) for access in Access for name in ("a", "aa", ""))
    assert not made.may_use_key("ann", "/", Access.WRITE, "x", "a")
    assert not made.may_use_key("ann", "/", Access.READ, "x", "ann")


def test_only_guest_is_asked_nothing() -> None:
    made = table()
    assert made.may_do_everything("guest", "/") and not made.may_do_everything("ann", "/")
    assert not made.may_do_everything("guest", "other")
    made.put_topic_permission(TopicPermission(user="guest", vhost="/", exchange="x", write="", read=""))
    assert not made.may_do_everything("guest", "/")


def test_permissions_go_with_their_user_and_their_virtual_host() -> None:
    made = table()
    made.put_vhost(Vhost(name="v"))
    made.put_permission(Permission(user="guest", vhost="v", configure="", write="", read=""))
    made.put_topic_permission(TopicPermission(user="ann", vhost="/", exchange="x", write="", read=""))
    made.delete_vhost("v")
    made.delete_user("ann")
    assert {*made.permissions} == {("guest", "/")} and not made.topic_permissions
