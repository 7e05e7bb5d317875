"""Writes the verdicts of a command where its job asks for them."""

from __future__ import annotations

import os
from pathlib import Path

from perftest.ci.annotations import github, gitlab
from perftest.ci.cases import Suite
from perftest.ci.job_outputs import GITHUB, JobOutputs
from perftest.ci.junit import junit
from perftest.exits import explained
from perftest.tell import tell


def publish(outputs: JobOutputs, suite: Suite) -> None:
    """Write the files, and print GitHub's lines to stderr, which GitHub reads as well as stdout. Raises CliError."""
    if outputs.junit is not None:
        _write(outputs.junit, junit(suite))
    asked = outputs.annotations
    if asked is not None and asked.service == GITHUB:
        for line in github(suite):
            tell(line)
    elif asked is not None:
        earlier = asked.file.read_text(encoding="utf-8", errors="replace") if asked.file.is_file() else ""
        _write(asked.file, gitlab(suite, earlier))


def place_of(path: Path) -> str:
    """The path as services want it: relative to the working directory if it lies below."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _write(path: Path, text: str) -> None:
    with explained("the verdicts cannot be written", path, "name a file in a directory that can be written to"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
