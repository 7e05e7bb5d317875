"""One name for each queue of all virtual hosts: two queues of one name would share their messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_broker.access import names

NAMES = st.text(max_size=6, alphabet=st.sampled_from("ab/é ")) | st.just("")


@given(NAMES, NAMES, NAMES, NAMES)
def test_names_are_equal_only_if_virtual_host_and_short_name_are(vhost: str, name: str, other: str, same: str) -> None:
    first, second = names.qualified(vhost, name), names.qualified(other, same)
    assert (first == second) == ((vhost, name) == (other, same))
    assert (names.vhost_of(first), names.short(first)) == (vhost, name)


@pytest.mark.parametrize(
    ("vhost", "called", "shown", "listed"),
    [
        ("/", "queue 'q' in vhost '/'", "'q'", "q"),
        ("a/b", "queue 'q' in vhost 'a/b'", "'q' in virtual host 'a/b'", "q in virtual host 'a/b'"),
    ],
)
def test_people_read_no_nul(vhost: str, called: str, shown: str, listed: str) -> None:
    name = names.qualified(vhost, "q")
    assert (names.queue_in_vhost(name), names.shown(name), names.listed(name)) == (called, shown, listed)


def test_a_nul_is_in_no_name() -> None:
    """A queue of this name in the virtual host / would be taken for the queue b of the virtual host a."""
    assert (names.can_be_name("ab"), names.can_be_name("a\0b")) == (True, False)
