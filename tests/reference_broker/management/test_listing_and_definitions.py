"""Lists as asked for, and definitions of which nothing is half imported."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reference_broker.machines.cluster.metadata import MetadataMachine
from reference_broker.management import listing
from reference_broker.management.definitions import export, problems
from reference_broker.management.errors import ApiError, of_amqp

ROWS = [{"name": f"q{number}", "messages": number % 3, "at": {"node": f"n{number % 2}"}} for number in range(7)]


def listed(rows: list[dict[str, Any]], query: dict[str, str]) -> Any:
    return asyncio.run(listing.listed(rows, query))


def names(found: Any) -> list[str]:
    return [row["name"] for row in (found["items"] if isinstance(found, dict) else found)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["q0", "q1", "q2", "q3", "q4", "q5", "q6"]),
        ({"sort": "messages"}, ["q0", "q3", "q6", "q1", "q4", "q2", "q5"]),
        ({"sort": "at.node", "sort_reverse": "true"}, ["q1", "q3", "q5", "q0", "q2", "q4", "q6"]),
        ({"sort": "none"}, ["q0", "q1", "q2", "q3", "q4", "q5", "q6"]),
        ({"name": "Q1"}, ["q1"]),
        ({"name": "[12]", "use_regex": "true"}, ["q1", "q2"]),
        ({"name": "[12]"}, []),
        ({"page": "2", "page_size": "3"}, ["q3", "q4", "q5"]),
        ({"page": "1", "page_size": "3", "name": "q", "sort": "name", "sort_reverse": "true"}, ["q6", "q5", "q4"]),
    ],
)
def test_lists(query: dict[str, str], expected: list[str]) -> None:
    assert names(listed(ROWS, query)) == expected


def test_a_page_tells_where_it_is() -> None:
    page = listed(ROWS, {"page": "3", "page_size": "2", "name": "q"})
    del page["items"]
    assert page == {
        "total_count": 7, "filtered_count": 7, "item_count": 2, "page": 3, "page_count": 4, "page_size": 2,
    }  # fmt: skip


def test_columns_reach_into_rows() -> None:
    assert listed(ROWS[:1], {"columns": "name,at.node,none"}) == [{"name": "q0", "at.node": "n0"}]


@pytest.mark.parametrize(
    "query",
    [
        {"page": "0"}, {"page": "x"}, {"page": "99"}, {"page": "1", "page_size": "501"}, {"page": "1" * 30},
        {"name": "(", "use_regex": "true"}, {"name": "q(?=1)", "use_regex": "true"},
    ],
)  # fmt: skip
def test_wrong_queries_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(ApiError) as refused:
        listed(ROWS, query)
    assert refused.value.code == 400


def test_the_definitions_of_a_new_cluster_have_no_problem() -> None:
    assert problems(export(MetadataMachine()), {"/"}) == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (5, ["the definitions are no JSON object"]),
        ({"users": 5}, ["users: must be a list"]),
        ({"users": [5]}, ["users[0]: must be an object"]),
        ({"users": [{"name": "", "password_hash": "x", "tags": 5}]}, [
            "users[0].name: '': must be a text of 1 to 255 octets",
            "users[0].tags: 5: must be words, as a list or with commas",
            "users[0].password_hash: 'x': must be a hash of rabbit_password_hashing_sha256",
        ]),
        ({"permissions": [{"user": "u", "vhost": "v", "configure": "(", "write": 1, "read": ""}]}, [
            "permissions[0].vhost: 'v': must be a virtual host that exists or stands here",
            "permissions[0].configure: '(': must be a regular expression: missing ): (",
            "permissions[0].write: 1: must be a regular expression",
        ]),
        ({"parameters": [{"component": "operator_policy", "vhost": "/", "name": "p", "value": {"pattern": "["}}],
          "policies": [{"vhost": "/", "name": "p", "pattern": "(a)\\1", "definition": {}}]}, [
            "parameters[0].value.pattern: '[': must be a regular expression: missing ]: [",
            "policies[0].pattern: '(a)\\\\1': must be a regular expression: invalid escape sequence: \\1 (the syntax "
            "is RE2's, without lookaheads, lookbehinds, backreferences and possessive repetitions)",
        ]),
        ({"bindings": [{"source": "x", "vhost": [], "destination": "q", "destination_type": "x", "routing_key": "",
                        "arguments": {}}]}, [
            "bindings[0].vhost: []: must be a virtual host that exists or stands here",
            "bindings[0].destination_type: 'x': must be queue or exchange",
        ]),
    ],
)  # fmt: skip
def test_everything_that_is_wrong_is_told(given: Any, expected: list[str]) -> None:
    assert problems(given, {"/"}) == expected


def test_the_same_row_twice_is_no_contradiction() -> None:
    queue = {"name": "q", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    assert problems({"queues": [queue, queue]}, {"/"}) == []
    assert problems({"queues": [queue, queue | {"durable": False}]}, {"/"}) == [
        "queues[1]: 'q' stands here twice, and differs"
    ]


def test_codes_of_amqp_become_codes_of_http() -> None:
    assert [of_amqp(code, "NAME - text").code for code in (403, 404, 406, 530)] == [401, 404, 400, 401]
    assert of_amqp(406, "PRECONDITION_FAILED - no").reason == "no"
