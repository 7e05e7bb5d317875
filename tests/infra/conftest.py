"""Hosts on this machine for tests that need several: real sshd, addresses of their own, links that can be faulty."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.lab.lab import Lab, impossible
from infra.lab.lab import lab as new_lab

NO_LAB = impossible()
on_lab = pytest.mark.skipif(bool(NO_LAB), reason=f"no lab of hosts here: {NO_LAB}")
"""For tests that make labs of their own."""


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Three hosts without delay."""
    if NO_LAB:
        pytest.skip(f"no lab of hosts here: {NO_LAB}")
    with new_lab(tmp_path_factory.mktemp("labs"), hosts=3) as made:
        yield made
