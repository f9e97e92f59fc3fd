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
