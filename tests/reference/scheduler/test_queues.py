"""The two queues, by themselves."""

from __future__ import annotations

from kvreference.scheduler.queues import Queues, Terms


def test_a_request_that_left_may_leave_again() -> None:
    """Goal: an end that is reported twice is one end. Method: of two that wait, the first leaves, and leaves again."""
    queues = Queues()
    for number in (0, 1):
        queues.submit(number, Terms(limit_tokens=4))
    for _ in range(2):
        queues.leave(0)
        assert ([1], [1]) == (queues.waiting, list(queues.terms))


def test_all_before_a_request_are_ahead_of_it() -> None:
    """Goal: a bound counts all requests ahead, also in long lines. Method: 40 that run and 40 that wait."""
    queues, line = Queues(), list(range(80, 0, -1))
    queues.running, queues.waiting = line[:40], line[40:]
    for place, number in enumerate(line):
        assert line[:place] == queues.ahead_of(number)
