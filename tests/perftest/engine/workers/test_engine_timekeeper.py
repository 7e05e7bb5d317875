"""The timekeeper: answers who knows the secret, nobody else; as fast as the network; gone with whoever started it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftest.engine.coordination.time_questions import TimeQuestions
from perftest.engine.workers.timekeeper import ANSWER, MARK, NONCE, answer_to, body_of, marked
from perftest.metrics.host_clock import HostClock

SECRET = bytes(range(32))


@contextmanager
def timekeeper() -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "perftest.engine.workers.timekeeper"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(f"{SECRET.hex()}\n")
            process.stdin.flush()
            yield process, int(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(timeout=30)


def test_an_answer_has_the_question_and_both_times() -> None:
    nonce = b"12345678"
    answer = answer_to(SECRET, marked(SECRET, nonce), 7, lambda: 9)
    assert answer is not None and len(answer) == ANSWER.size + MARK
    body = body_of(SECRET, answer, ANSWER.size)
    assert body is not None and ANSWER.unpack(body) == (nonce, 7, 9)


@given(st.binary(max_size=64))
def test_strangers_get_no_answer(datagram: bytes) -> None:
    assert answer_to(SECRET, datagram, 7) is None


@given(st.integers(0, NONCE + MARK - 1), st.integers(1, 255))
def test_a_question_that_was_changed_on_its_way_gets_no_answer(at: int, change: int) -> None:
    question = bytearray(marked(SECRET, b"12345678"))
    question[at] ^= change
    assert answer_to(SECRET, bytes(question), 7) is None


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost"])
def test_the_clock_of_the_same_host_differs_by_nothing(address: str) -> None:
    async def asked(questions: TimeQuestions, clock: HostClock) -> None:
        for _ in range(20):
            exchange = await questions.ask()
            assert exchange is not None and exchange.is_possible
            clock.add(exchange)

    with timekeeper() as (_, port):
        questions, clock = TimeQuestions(address, port, SECRET), HostClock()
        try:
            asyncio.run(asked(questions, clock))
        finally:
            questions.close()
    model, now = clock.model(clock.last_ns, clock.last_ns), clock.last_ns
    assert abs(model.to_reference(now) - now) <= model.bound_at(now)
    assert abs(time.monotonic_ns() - now) < 60 * 10**9


@pytest.mark.parametrize("gone", [False, True])
def test_silence_is_no_answer_and_no_wait(gone: bool) -> None:
    """Another secret is like a network that lets nothing through."""
    with timekeeper() as (process, port):
        questions = TimeQuestions("127.0.0.1", port, SECRET if gone else SECRET[::-1])
        try:
            if gone:
                process.kill()
                process.wait(timeout=30)
            assert asyncio.run(questions.ask()) is None
        finally:
            questions.close()
