"""How many files, and so connections, a process may have open."""

from __future__ import annotations


def files_allowed() -> int:
    """What a process of this user can be allowed (the hard limit); very many where the system sets none."""
    try:
        import resource
    except ImportError:  # no such limit on Windows
        return 1 << 30
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if hard == resource.RLIM_INFINITY else hard


def allow_files() -> None:
    """Raise this process's own limit (the soft one) as far as it goes."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # some systems promise more than they give
            return
