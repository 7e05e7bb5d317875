"""A browser for tests: it opens a page from disk, runs a script at its end, and tells what became of the page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

MARKS = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on PATH"),
]

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--virtual-time-budget=15000",
)

ANSWER = """
const drawn = () => { for (const name of ["beforeprint", "afterprint"]) dispatchEvent(new Event(name)); };
(async () => {
  let answer;
  try { answer = await (async () => { %s })(); } catch (error) { answer = { error: String(error) }; }
  const text = JSON.stringify(answer);
  document.documentElement.dataset.answer = text;
  if (parent !== window) parent.postMessage(text, "*");
})();
"""
"""A script at the end of the page whose returned value the test reads from the dumped document.

Printing draws every figure at once: that does not depend on when the browser finds time to look what is in view.
"""


class Browser:
    """Opens a page and dumps what became of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.opened = 0

    def dump(self, html: str, *, state: str = "", size: tuple[int, int] = (1280, 6000)) -> tuple[str, list[str]]:
        """The document after its scripts ran, and what was logged to the console."""
        self.opened += 1
        file = self.directory / f"page{self.opened}.html"
        file.write_text(html, encoding="utf-8")
        profile = self.directory / f"profile{self.opened}"
        command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}"]
        done = subprocess.run(
            [*command, "--dump-dom", f"{file.as_uri()}{state}"], capture_output=True, text=True, timeout=120, check=True
        )
        return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]

    def ask(self, html: str, script: str, *, state: str = "", size: tuple[int, int] = (1280, 6000)) -> Any:
        """What ``script`` returns at the end of the page; the policy stays, with this one script added to it."""
        document, console = self.dump(with_script(html, script), state=state, size=size)
        assert console == []
        return answer_of(document)

    def ask_in_frame(self, html: str, script: str, *, width: int) -> Any:
        """The same in a frame of ``width`` pixels: a browser window has a least width, a frame has none."""
        framed = self.directory / "framed.html"
        framed.write_text(with_script(html, script), encoding="utf-8")
        outer = (
            f'<iframe src="framed.html" width="{width}" height="6000"></iframe>'
            "<script>addEventListener('message', (event) => { document.documentElement.dataset.answer = event.data; });"
            "</script>"
        )
        return answer_of(self.dump(outer)[0])


def with_script(html: str, script: str) -> str:
    text = ANSWER % script
    digest = f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
    allowed = html.replace("script-src ", f"script-src {digest} ".replace("'", "&#39;"), 1)
    return allowed.replace("</body>", f"<script>{text}</script></body>")


def answer_of(document: str) -> Any:
    found = re.search(r'data-answer="([^"]*)"', document)
    assert found is not None, "the page never answered"
    return json.loads(found[1].replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
