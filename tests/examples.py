"""How many examples a property gets, if its examples are dear."""

from __future__ import annotations

from hypothesis import settings

_SHARES = {"few": 0.2, "many": 1, "hunt": 10}


def dear(many: int) -> settings:
    """So many examples in ``make test-rest``, a fifth of them in ``make test``, ten times as many in ``make hunt``."""
    return settings(max_examples=max(1, round(many * _SHARES[settings.get_current_profile_name()])))
