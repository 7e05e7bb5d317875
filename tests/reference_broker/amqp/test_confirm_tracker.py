"""Publisher confirms: each publish is told exactly once, and in few frames."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from reference_broker.amqp.confirms import ConfirmTracker
from tests.reference_broker.amqp.testing import parse

ACK, NACK = "ack", "nack"


def told(octets: bytes) -> list[tuple[str, int, bool]]:
    """What the frames say: kind, sequence number, multiple."""
    said = []
    for _, each in parse(octets):
        assert isinstance(each, commands.Basic.Ack | commands.Basic.Nack)
        said.append((ACK if isinstance(each, commands.Basic.Ack) else NACK, each.delivery_tag, each.multiple))
    return said


class Client:
    """A publisher that keeps one number per outstanding message, and believes what it is told."""

    def __init__(self) -> None:
        self.outstanding: set[int] = set()
        self.outcome: dict[int, str] = {}

    def hear(self, kind: str, tag: int, multiple: bool) -> None:
        told_of = {seq for seq in self.outstanding if seq <= tag} if multiple else {tag}
        assert told_of <= self.outstanding, "told twice, or of a message never published"
        assert told_of
        self.outstanding -= told_of
        self.outcome.update(dict.fromkeys(told_of, kind))


class Oracle:
    """One entry per message and no ranges: slow, and plainly right."""

    def __init__(self) -> None:
        self.published = 0
        self.resolved: dict[int, str] = {}
        self.untold: dict[int, str] = {}

    def resolve(self, first: int, last: int, kind: str) -> None:
        for seq in range(first, last + 1):
            if seq <= self.published and seq not in self.resolved:
                self.resolved[seq] = self.untold[seq] = kind

    def frames(self) -> list[tuple[str, int, bool]]:
        """RabbitMQ's rule, message by message."""
        unresolved = min((s for s in range(1, self.published + 1) if s not in self.resolved), default=1 << 60)
        said = []
        for kind in (ACK, NACK):
            mine = sorted(seq for seq, outcome in self.untold.items() if outcome == kind)
            others = min((seq for seq, outcome in self.untold.items() if outcome != kind), default=1 << 60)
            below = [seq for seq in mine if seq < min(unresolved, others)]
            if below:
                said.append((kind, below[-1], len(below) > 1))
            said += [(kind, seq, False) for seq in mine[len(below) :]]
        self.untold.clear()
        return said


SPAN = st.tuples(st.integers(1, 90), st.integers(0, 70))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 40)),
        st.tuples(st.sampled_from([ACK, NACK]), SPAN),
        st.tuples(st.just("flush"), st.none()),
    ),
    max_size=30,
)


@given(STEPS)
def test_confirms_equal_the_rule_applied_message_by_message(steps: list[tuple[str, object]]) -> None:
    """A confirm too many tells a publisher that a lost message is safe; one too few blocks it for ever."""
    tracker, oracle, client = ConfirmTracker(), Oracle(), Client()
    for what, argument in [*steps, (ACK, (1, 5000)), ("flush", None)]:
        if what == "publish":
            assert isinstance(argument, int)
            assert tracker.published(argument) == oracle.published + 1
            client.outstanding |= set(range(oracle.published + 1, oracle.published + argument + 1))
            oracle.published += argument
        elif what == "flush":
            said = told(tracker.flush(3))
            assert said == oracle.frames()
            for frame in said:
                client.hear(*frame)
            assert not tracker.flush(3)
        else:
            assert isinstance(argument, tuple)
            first, more = argument
            (tracker.confirm if what == ACK else tracker.reject)(first, first + more)
            oracle.resolve(first, first + more, what)
        assert tracker.unresolved == oracle.published - len(oracle.resolved)
    assert client.outcome == oracle.resolved
    assert not client.outstanding


def test_a_batch_in_order_is_one_frame() -> None:
    """The cost of confirms at a large in-flight limit: one frame per batch, not one per message."""
    tracker = ConfirmTracker()
    tracker.published(1000)
    tracker.confirm(1, 400)
    tracker.confirm(401, 900)
    assert told(tracker.flush(1)) == [(ACK, 900, True)]
    tracker.confirm(901, 901)
    assert told(tracker.flush(1)) == [(ACK, 901, False)]


def test_a_rejected_message_bounds_the_confirms_of_its_batch() -> None:
    """An ack with multiple past a nacked message would hide its loss."""
    tracker = ConfirmTracker()
    tracker.published(6)
    tracker.confirm(1, 2)
    tracker.reject(3, 3)
    tracker.confirm(4, 6)
    assert told(tracker.flush(1)) == [
        (ACK, 2, True),
        (ACK, 4, False),
        (ACK, 5, False),
        (ACK, 6, False),
        (NACK, 3, False),
    ]


def test_resolved_twice_is_told_once() -> None:
    """After an election the new leader's members confirm again what the old one's did."""
    tracker = ConfirmTracker()
    tracker.published(3)
    tracker.confirm(1, 3)
    tracker.confirm(2, 3)
    tracker.reject(1, 3)
    assert told(tracker.flush(1)) == [(ACK, 3, True)]
    tracker.confirm(1, 3)
    assert tracker.flush(1) == b""
