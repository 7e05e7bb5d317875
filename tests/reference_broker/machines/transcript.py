"""Transcripts: files of steps, each with what came of it below a line of dashes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def transcript(path: Path, step: Callable[[str], list[str]]) -> str:
    """Run the steps of a file; gives the file as it should be, with comments and steps kept."""
    text, is_output = list[str](), False
    for line in path.read_text().splitlines():
        is_output = line == "----" or (is_output and line != "")
        if is_output:
            continue
        text.append(line)
        if line and not line.startswith("#"):
            output = step(line)
            text += ["----", *output] if output else []
    return "\n".join(text) + "\n"
