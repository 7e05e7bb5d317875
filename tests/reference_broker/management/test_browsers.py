"""Which requests a page of another origin may have a browser send, and what the status page may do."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from reference_broker.management import browsers
from reference_broker.management.errors import ApiError

HERE = "broker.example:15672"


def request(method: str, headers: dict[str, str], host: str = HERE) -> web.Request:
    return make_mocked_request(method, "/api/definitions", headers={"Host": host, **headers})


def refused(method: str, headers: dict[str, str], host: str = HERE) -> bool:
    try:
        browsers.check_origin(request(method, headers, host))
    except ApiError as error:
        assert error.code == 403
        return True
    return False


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize(
    ("headers", "is_foreign"),
    [
        ({}, False),
        ({"Origin": f"http://{HERE}"}, False),
        ({"Origin": f"https://{HERE.upper()}"}, False),
        ({"Origin": f"http://{HERE}", "Sec-Fetch-Site": "same-origin"}, False),
        ({"Sec-Fetch-Site": "same-origin"}, False),
        ({"Sec-Fetch-Site": "none"}, False),
        ({"Origin": "https://evil.example"}, True),
        ({"Origin": "http://broker.example:8080"}, True),
        ({"Origin": "http://broker.example"}, True),
        ({"Origin": f"http://{HERE}.evil.example"}, True),
        ({"Origin": f"ftp://{HERE}"}, True),
        ({"Origin": "null"}, True),
        ({"Origin": ""}, True),
        ({"Origin": "http://[broken"}, True),
        ({"Origin": "http://broker.example:port"}, True),
        ({"Sec-Fetch-Site": "cross-site"}, True),
        ({"Sec-Fetch-Site": "same-site"}, True),
    ],
)
def test_only_pages_of_the_port_change_something(method: str, headers: dict[str, str], is_foreign: bool) -> None:
    assert refused(method, headers) is is_foreign


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_reading_is_left_to_the_browser(method: str) -> None:
    """A browser gives the answer to no other page."""
    assert not refused(method, {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"})


def test_the_usual_port_of_a_scheme_may_be_left_out() -> None:
    assert not refused("POST", {"Origin": "https://broker.example"}, host="broker.example")
    assert not refused("POST", {"Origin": "https://broker.example"}, host="broker.example:443")
    assert refused("POST", {"Origin": "https://broker.example"}, host="broker.example:80")


@pytest.mark.parametrize(
    ("kind", "is_taken"),
    [
        (None, True),
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/x-www-form-urlencoded", True),
        ("text/plain", False),
        ("text/plain;charset=UTF-8", False),
        ("multipart/form-data; boundary=x", False),
        ("application/octet-stream", False),
        ("", False),
    ],
)
def test_a_body_is_json_by_its_type(kind: str | None, is_taken: bool) -> None:
    headers = {"Host": HERE} if kind is None else {"Host": HERE, "Content-Type": kind}
    asked = make_mocked_request("POST", "/api/definitions", headers=headers, payload=cast(Any, object()))
    if is_taken:
        browsers.check_type(asked)
    else:
        with pytest.raises(ApiError, match="send JSON with Content-Type: application/json") as found:
            browsers.check_type(asked)
        assert found.value.code == 415


def test_the_page_may_run_its_own_script_and_nothing_else() -> None:
    """Whole elements by their hashes, and no handlers or styles in attributes, which hashes do not cover."""
    policy = dict(part.strip().split(" ", 1) for part in browsers.page_policy().split(";"))
    for element in ("script", "style"):
        (text,) = re.findall(rf"<{element}>(.*?)</{element}>", browsers.page(), re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert policy[f"{element}-src"] == f"'sha256-{digest}'"
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "unsafe" not in browsers.page_policy()
    assert not re.search(r"<[^>]+\s(style|on\w+)=", browsers.page().split("<script>", maxsplit=1)[0])
