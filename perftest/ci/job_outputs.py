"""What a job asks for besides the terminal: the options ``--junit`` and ``--annotations``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perftest.spec.units import UnitError

GITHUB: Final = "github"
GITLAB: Final = "gitlab"
GITLAB_FILE: Final = Path("gl-code-quality-report.json")
"""The report's name in GitLab's own examples."""


@dataclass(frozen=True, slots=True)
class Annotations:
    """The service that shows the annotations, and the file of GitLab's report."""

    service: str
    file: Path = GITLAB_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutputs:
    """The files and lines that a job asks for; None: not asked for."""

    junit: Path | None = None
    annotations: Annotations | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked for."""
        return self.junit is None and self.annotations is None


def parse_annotations(text: str) -> Annotations:
    """``github``, ``gitlab`` or ``gitlab=FILE``. Raises UnitError."""
    service, equals, file = text.partition("=")
    if service == GITLAB and (file or not equals):
        return Annotations(GITLAB, Path(file) if file else GITLAB_FILE)
    if text != GITHUB:
        raise UnitError(f"{text!r} is no service", "write github, gitlab, or gitlab=FILE")
    return Annotations(GITHUB)
