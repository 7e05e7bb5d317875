"""Whoever connects to something gives up after a while, checked on the source itself.

A network that drops packets without a word answers nothing, and a kernel tries to connect for minutes. A connect
without a limit of its own is a command, a run or a node that hangs for as long.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = ("hdr_buckets", "perftest", "reference_broker", "reports", "infra")
SIMULATED = (Path("reference_broker/sim"), Path("reference_broker/virtual"))
"""A network without kernels. Whoever dials there is no program of ours."""
CONNECTS = {"create_connection", "open_connection", "open_unix_connection", "sock_connect", "start_tls", "urlopen"}
"""Calls that connect, whatever they are called on; and ``connect``, where a module imports one of these:"""
CONNECTING = {"socket", "paramiko"}
LIMITS = {"timeout", "timeout_s", "wait_for"}
"""Keywords and calls that set a limit."""
LIMITED_BY_OTHERS = {
    "perftest/amqp/transport.py:_open_socket": "`open`, its only caller, has the limit for the login, too",
    "infra/remote/ssh.py:_login": "what is asked for is in `asked`, its limits among that",
}
"""Connects whose limit is elsewhere, and where."""


def sources() -> list[Path]:
    found = (path.relative_to(ROOT) for package in OURS for path in sorted((ROOT / package).rglob("*.py")))
    return [path for path in found if not any(path.is_relative_to(folder) for folder in SIMULATED)]


def connects(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The calls without a limit that connect: each by the function that it stands in, and its line."""
    imported = {alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names}
    names = CONNECTS | ({"connect"} if imported & CONNECTING else set())
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            limited = {id(call) for call in _limited(function)}
            for call in ast.walk(function):
                if _called(call) in names and id(call) not in limited and not _has_limit(call, function):
                    yield function.name, call.lineno  # type: ignore[attr-defined]


def _limited(function: ast.AST) -> Iterator[ast.AST]:
    """What stands within `asyncio.timeout(...)` or `asyncio.wait_for(...)`."""
    for each in ast.walk(function):
        bounds = isinstance(each, ast.AsyncWith) and any(_called(item.context_expr) in LIMITS for item in each.items)
        if bounds or _called(each) in LIMITS:
            yield from ast.walk(each)


def _called(node: ast.AST) -> str:
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""


def _has_limit(call: ast.AST, function: ast.AST) -> bool:
    """Whether the call has a limit, or its socket got one in the same function, above it."""
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    on = ast.unparse(call.func.value)
    if any(keyword.arg in LIMITS for keyword in call.keywords):
        return True
    if on == "socket":
        return len(call.args) > 1  # socket.create_connection(address, timeout)
    return any(
        _called(each) == "settimeout" and ast.unparse(each.func.value) == on and each.lineno < call.lineno  # type: ignore[attr-defined]
        for each in ast.walk(function)
    )


def test_every_connect_has_a_limit() -> None:
    """It was one connect between nodes that kept a node out for a minute after a minute of a cut."""
    found = {
        f"{path}:{function}": line
        for path in sources()
        for function, line in connects(ast.parse((ROOT / path).read_text()))
    }
    assert found.keys() == LIMITED_BY_OTHERS.keys()


@pytest.mark.parametrize(
    ("text", "is_limited"),
    [
        ("async def f():\n await loop.create_connection(made, host, port)", False),
        ("async def f():\n async with asyncio.timeout(1):\n  await loop.create_connection(made, host, port)", True),
        ("async def f():\n async with lock:\n  await loop.create_connection(made, host, port)", False),
        ("async def f():\n await asyncio.wait_for(asyncio.open_connection(host, port), 1)", True),
        ("def f():\n return socket.create_connection(address)", False),
        ("def f():\n return socket.create_connection(address, 1)", True),
        ("def f():\n return socket.create_connection(address, timeout=1)", True),
        ("def f():\n made.connect(address)", False),
        ("def f():\n made.settimeout(1)\n made.connect(address)", True),
        ("def f():\n other.settimeout(1)\n made.connect(address)", False),
        ("def f():\n made.connect(address)\n made.settimeout(1)", False),
    ],
)
def test_a_connect_without_a_limit_is_found(text: str, is_limited: bool) -> None:
    """Each way to connect, and each way to give up."""
    assert bool(list(connects(ast.parse(f"import asyncio\nimport socket\n{text}")))) != is_limited
