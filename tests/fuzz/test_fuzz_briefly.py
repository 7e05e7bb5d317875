"""A short search with a fixed seed: ``make fuzz`` plays more."""

from __future__ import annotations

import pytest

from tests.fuzz.search import Search

pytestmark = pytest.mark.filterwarnings("ignore:This command is deprecated:DeprecationWarning")  # a client may send it
INPUTS = 6_000


@pytest.mark.slow
def test_nothing_hostile_is_more_than_the_broker_bears() -> None:
    search = Search(seed=20_261_127)
    assert [finding.what for finding in search.run(INPUTS)] == []
    assert len(search.corpus) > 40, "the search came to little that is new"


def test_the_same_seed_plays_the_same() -> None:
    one, two = Search(seed=5), Search(seed=5)
    assert not [*one.run(300), *two.run(300)]
    assert one.corpus == two.corpus and one.reached == two.reached
