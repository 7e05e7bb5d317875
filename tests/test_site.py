"""The documentation as a site: every page is in its navigation, anchors are those of a clone, and nothing is loaded.

Only the last test needs the tool that builds the site.
"""

from __future__ import annotations

import html
import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from reference_broker.sim.scenes import __main__ as scenes
from reference_broker.worldpage import __main__ as worldpage

ROOT = Path(__file__).resolve().parent.parent
SITE: dict[str, Any] = tomllib.loads(ROOT.joinpath("zensical.toml").read_text(encoding="utf-8"))["project"]
COPIED = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "docs", "workloads/README.md")
"""What `make docs` copies to where the site is built from."""
TASKS = (
    *("Start", "Measure RabbitMQ", "Read a report", "Compare", "Many hosts", "Drives"),
    *("Learn how a quorum queue works", "Reference", "Internals", "Decisions"),
)

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def sections() -> dict[str, list[str]]:
    """The pages of each section of the navigation, in order."""
    return {
        title: [path for entry in entries for path in entry.values()]
        for section in SITE["nav"]
        for title, entries in section.items()
    }


def pages() -> list[Path]:
    """Every page of the site, in the clone."""
    places = [ROOT / name for name in COPIED if name != "LICENSE"]
    return sorted(path for place in places for path in (place.rglob("*.md") if place.is_dir() else [place]))


def test_every_page_is_in_the_navigation_once() -> None:
    """A page that the navigation leaves out is found by nobody who reads the site."""
    listed = [path for section in sections().values() for path in section]
    assert sorted(listed) == sorted(str(path.relative_to(ROOT)) for path in pages())
    assert tuple(sections()) == TASKS


def test_the_page_of_tasks_has_the_sections_of_the_navigation() -> None:
    """Readers of a clone have no navigation: they have docs/README.md."""
    text = ROOT.joinpath("docs", "README.md").read_text(encoding="utf-8")
    told = {}
    for part in text.split("\n## ")[1:]:
        links = re.findall(r"^- \[[^\]]+\]\(([^)#]+)\)", part, re.MULTILINE)
        told[part.partition("\n")[0]] = [str(ROOT.joinpath("docs", link).resolve().relative_to(ROOT)) for link in links]
    numbered = re.compile(r"docs/decisions/\d+")
    assert told == {
        title: [path for path in paths if path != "docs/README.md" and not numbered.match(path)]
        for title, paths in sections().items()
    }


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_anchors_are_the_same_on_the_site_and_in_a_clone(path: Path) -> None:
    """Links are checked against a clone's anchors: a heading with another anchor on the site would be dead there."""
    headings = _HEADING.findall(_FENCE.sub("", path.read_text(encoding="utf-8")))
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "") for heading in headings]
    in_clone = [re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in plain]
    on_site = [
        re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.encode("ascii", "ignore").decode()).strip().lower())
        for heading in plain
    ]
    assert in_clone == on_site


def references(page: str) -> list[str]:
    """Where a page of the site points to, and what it loads."""
    return [html.unescape(found) for found in re.findall(r'<[a-z]+ [^>]*?\b(?:href|src)="?([^"\s>]+)', page)]


@pytest.mark.skipif(
    importlib.util.find_spec("zensical") is None, reason="zensical is not installed: pip install '.[docs]'"
)
def test_the_site_has_no_dead_link_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """The site is read without a network, from a file or a server in a closed place."""
    for name in COPIED:
        target = tmp_path / "build" / "pages" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if ROOT.joinpath(name).is_dir() else shutil.copy)(ROOT / name, target)
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    worlds = str(tmp_path / "build" / "pages" / "docs" / "worlds")
    walks = str(ROOT / "docs" / "local-delivery.md")
    assert scenes.main([worlds]) == worldpage.main([walks, worlds]) == 0
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stdout + built.stderr
    site = tmp_path / "build" / "docs"
    made = [path for path in site.rglob("*.html") if path.name != "404.html" and path.parent.name != "worlds"]
    texts = {path: path.read_text(encoding="utf-8") for path in made}
    assert len(texts) == len(pages())
    ids = {path: set(re.findall(r'\bid="?([^"\s>]+)', text)) for path, text in texts.items()}
    dead = []
    for path, text in texts.items():
        assert not re.search(r'<(?:script|img|link)[^>]+(?:src|href)="?https?:', text), path
        for reference in references(text):
            place, _, anchor = unquote(reference).partition("#")
            if re.match(r"[a-z]+:", place):
                continue
            found = (path.parent / place).resolve() if place else path
            found = found / "index.html" if found.is_dir() else found
            if not found.exists() or (anchor and found in ids and anchor not in ids[found]):
                dead.append(f"{path.relative_to(site)}: {reference}")
    assert not dead
    assert site.joinpath("search.js").stat().st_size > 100_000
