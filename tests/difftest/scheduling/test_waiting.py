"""The wait-for graph, without a scheduler.

Goal: requests that nothing will ever serve are found, and no others. Method: small graphs, each with one answer.
"""

from __future__ import annotations

import pytest

from kvgate.monitors.wait_graph import Reason, Wait, WaitFor

A, B, C = range(3)


def blocks(waiter: int, holder: int) -> Wait:
    return Wait(waiter, Reason.BLOCKS, holder, 3)


def transfer(waiter: int, lost: bool = False) -> Wait:
    return Wait(waiter, Reason.TRANSFER, lost=lost)


STUCK: dict[str, tuple[tuple[Wait, ...], tuple[int, ...], tuple[int, ...]]] = {
    "no request waits": ((), (), ()),
    "for a transfer": ((transfer(A),), (), ()),
    "for a transfer that never ends": ((transfer(A, lost=True),), (A,), ()),
    "for one that waits for a transfer": ((blocks(A, B), transfer(B)), (), ()),
    "after one that waits for nothing": ((Wait(A, Reason.NO_REQUEST), Wait(B, Reason.LINE, A)), (A, B), ()),
    "for each other": ((blocks(A, B), blocks(B, A)), (A, B), (A, B)),
    "in a ring": ((blocks(A, B), blocks(B, C), blocks(C, A)), (A, B, C), (A, B, C)),
    "for each other, and for a transfer": ((blocks(A, B), blocks(A, C), blocks(B, A), transfer(C)), (), (A, B)),
    "one for a grammar, one for nothing": ((Wait(A, Reason.GRAMMAR), Wait(B, Reason.NO_REQUEST)), (B,), ()),
    "for one that is served": ((Wait(A, Reason.PLACE, B),), (A,), ()),
}


@pytest.mark.parametrize("name", STUCK)
def test_stuck_requests(name: str) -> None:
    """Any request that cannot reach something that ends by itself; and the shortest cycle."""
    edges, stuck, circle = STUCK[name]
    graph = WaitFor(edges)
    assert (stuck, circle) == (graph.stuck(), graph.circle())


def test_the_story_says_who_holds_what() -> None:
    """Free blocks, the state of each request, each edge once, and the cycle."""
    graph = WaitFor((blocks(A, B), blocks(A, B), blocks(B, A)), 1, ("request 0 waits",))
    expected = "1 blocks are free; request 0 waits; request 0 waits for blocks: request 1 holds 3; "
    expected += "request 1 waits for blocks: request 0 holds 3; in a circle: request 0 → request 1 → request 0"
    assert expected == graph.describe()
