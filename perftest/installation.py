"""How this project was installed, and the command that adds an extra to the same installation.

pip notes in ``direct_url.json`` where a distribution came from: a clone, a wheel, a repository, or an index if the file
is missing (PEP 610). A name alone helps only if an index knows it, so the command names that place again.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

PROJECT: Final = "quorum-perftest"
_ROOT: Final = Path(__file__).resolve().parent.parent


def command_for(extra: str) -> str:
    """The command that adds an extra to this installation, to be typed in a shell."""
    return f"{_installer()} {target(_origin(), extra, Path.cwd())}"


def target(origin: Mapping[str, Any] | None, extra: str, here: Path) -> str:
    """The words that name this project with an extra to pip.

    :param origin: the content of ``direct_url.json``; None: the project came from an index
    :param here: the working directory; a path below it is written as a relative path
    """
    url = str((origin or {}).get("url", ""))
    if not url:
        return shlex.quote(f"{PROJECT}[{extra}]")
    if "vcs_info" in (origin or {}):
        facts = (origin or {})["vcs_info"]
        place = f"{facts['vcs']}+{url}@{facts.get('commit_id', '')}".rstrip("@")
        return shlex.quote(f"{PROJECT}[{extra}] @ {place}")
    if not url.startswith("file:"):
        return shlex.quote(f"{PROJECT}[{extra}] @ {url}")
    path = _short(Path(unquote(urlsplit(url).path)), here)
    editable = "-e " if (origin or {}).get("dir_info", {}).get("editable") else ""
    return editable + shlex.quote(f"{path}[{extra}]")


def _short(path: Path, here: Path) -> str:
    """The path as pip takes it for a path: ``.``, ``./dist/x.whl``, or absolute."""
    if path == here:
        return "."
    return f"./{path.relative_to(here)}" if here in path.parents else str(path)


def _origin() -> Mapping[str, Any] | None:
    """The origin as pip noted it. A clone that runs without an installation is its own origin."""
    if (_ROOT / "pyproject.toml").is_file():
        return {"url": _ROOT.as_uri(), "dir_info": {"editable": True}}
    try:
        text = metadata.distribution(PROJECT).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    found: Mapping[str, Any] | None = json.loads(text) if text else None
    return found


def _installer() -> str:
    """The command that installs into the environment of this process: that of pipx, the pip on the PATH if it belongs
    to this environment, or else the pip of this Python."""
    if (Path(sys.prefix) / "pipx_metadata.json").exists():
        return "pipx install --force"
    found = shutil.which("pip")
    if found is not None and Path(found).parent == Path(sys.executable).parent:
        return "pip install"
    return f"{shlex.quote(_readable(sys.executable))} -m pip install"


def _readable(path: str) -> str:
    """The path of a program, relative to the working directory if it lies below."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
