"""Names of queues among those of all virtual hosts.

Within its virtual host a queue has a *short name*, and the cluster needs one name for each queue. In the virtual host
``/`` that is the short name itself, and in any other ``vhost NUL short``. So no queue and no virtual host may have a
NUL in its name: :func:`can_be_name` is asked before either is created.
"""

from __future__ import annotations

from typing import Final

from reference_broker.access.records import DEFAULT_VHOST

_BETWEEN: Final = "\0"


def can_be_name(name: str) -> bool:
    """Whether a queue or a virtual host may have this name."""
    return _BETWEEN not in name


def qualified(vhost: str, short_name: str) -> str:
    """The name of a queue in the cluster."""
    return short_name if vhost == DEFAULT_VHOST else f"{vhost}{_BETWEEN}{short_name}"


def vhost_of(name: str) -> str:
    """The virtual host of a queue by its name in the cluster."""
    vhost, between, _short_name = name.partition(_BETWEEN)
    return vhost if between else DEFAULT_VHOST


def short(name: str) -> str:
    """The name of a queue within its virtual host."""
    return name.rpartition(_BETWEEN)[2]


def queue_in_vhost(name: str) -> str:
    """RabbitMQ's words for a queue: ``queue 'q' in vhost '/'``."""
    return f"queue '{short(name)}' in vhost '{vhost_of(name)}'"


def shown(name: str) -> str:
    """A queue's name for sentences to operators: ``'q'``, or ``'q' in virtual host 'v'``."""
    return repr(short(name)) + _where(name)


def listed(name: str) -> str:
    """A queue's name in a list for operators: ``q``, or ``q in virtual host 'v'``."""
    return short(name) + _where(name)


def _where(name: str) -> str:
    vhost = vhost_of(name)
    return "" if vhost == DEFAULT_VHOST else f" in virtual host {vhost!r}"
