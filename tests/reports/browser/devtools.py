"""A tab of a real browser, led over its DevTools protocol: pages of a server, keys, a narrow window, the dark theme.

A script that the protocol evaluates is no script of the page, so the page's content policy stays as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from aiohttp import ClientSession, ClientWebSocketResponse

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0"),
    "--host-resolver-rules=MAP attacker.example 127.0.0.1",
)
PATIENCE_S: Final = 120.0
"""Longest wait for a page: Spark may have to start first."""
WHEN: Final = """new Promise((done) => {
  const look = () => { try { if (%s) return done(true); } catch (error) { /* not yet */ } setTimeout(look, 20); };
  look();
})"""


class Tab:
    """The tab. ``problems``: complaints of its pages but for those ``expected``; ``requests``: the addresses asked."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self.problems: list[str] = []
        self.expected = ""
        """Word in the complaints that a test expects."""
        self.requests: list[str] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to one method of the protocol. Raises RuntimeError when the browser refuses."""
        number = len(self._answers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_str(json.dumps({"id": number, "method": method, "params": parameters}))
        found = await asyncio.wait_for(answer, PATIENCE_S)
        if "error" in found:
            raise RuntimeError(f"{method}: {found['error']['message']}")
        result: dict[str, Any] = found["result"]
        return result

    async def listen(self) -> None:
        """Take what the browser tells, until cancelled."""
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                self._answers[told["id"]].set_result(told)
            else:
                self._event(told["method"], told["params"])

    def _event(self, method: str, told: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self._complain(json.dumps(told["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self._complain(json.dumps(told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self._complain(told["entry"]["text"])

    def _complain(self, text: str) -> None:
        if not self.expected or self.expected not in text:
            self.problems.append(text)

    async def begin_anew(self) -> None:
        """Leave the page, and forget what was set and heard."""
        await self.open("about:blank")
        await self.resize(1280)
        await self.call("Emulation.setEmulatedMedia", features=[])
        self.problems.clear()
        self.expected = ""
        self.requests.clear()

    async def open(self, address: str) -> None:
        """Go to an address, and wait until the page is loaded."""
        self._loaded.clear()
        await self.call("Page.navigate", url=address)
        await asyncio.wait_for(self._loaded.wait(), PATIENCE_S)

    async def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression, or of its promise, in the page."""
        found = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(json.dumps(found["exceptionDetails"]))
        return found["result"].get("value")

    async def until(self, condition: str) -> None:
        """Wait until a JavaScript expression holds, on this page or on one that follows it."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(RuntimeError):  # the page went away: ask the one that follows
                    if await self.ask(WHEN % condition):
                        return

    async def press(self, key: str) -> None:
        """Press a key, Tab, Enter, Escape or a character, as a person does."""
        code = {"Tab": 9, "Enter": 13, "Escape": 27}.get(key) or ord(key.upper())
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        named = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **named)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    async def resize(self, width: int, height: int = 900) -> None:
        """Give the tab a size in pixels."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def prefer(self, scheme: str) -> None:
        """Be the browser of somebody who prefers ``light`` or ``dark``."""
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


@contextlib.asynccontextmanager
async def browser_tab(profile: Path) -> AsyncIterator[Tab]:
    """A tab of a browser of its own, which ends with the test."""
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stderr=pipe, stdout=asyncio.subprocess.DEVNULL)
    try:
        assert process.stderr is not None
        at = ""
        while not at:
            line = await asyncio.wait_for(process.stderr.readline(), PATIENCE_S)
            assert line, "the browser ended"
            found = re.search(rb"DevTools listening on ws://([\d.]+:\d+)/", line)
            at = found[1].decode() if found else ""
        reading = asyncio.create_task(_drain(process.stderr))
        async with ClientSession(trust_env=False) as session:
            async with session.get(f"http://{at}/json/list") as answer:
                (target, *_) = [each for each in json.loads(await answer.text()) if each["type"] == "page"]
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                tab = Tab(socket)
                listening = asyncio.create_task(tab.listen())
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await tab.call(f"{domain}.enable")
                yield tab
                listening.cancel()
        reading.cancel()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.readline():
        pass
