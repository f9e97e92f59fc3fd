"""The wait-for graph as a picture.

Goal: a reader sees which request waits for which, which are stuck, and the cause. Method: graphs written by hand, and
the arrows and sentences that follow.
"""

from __future__ import annotations

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.levels.manager import Bench
from kvgate.monitors.wait_graph import Reason, Wait, WaitFor
from kvgate.report.page import wait_graph
from kvgate.report.page.pages import page
from kvgate.report.page.recording import Recording, record
from kvgate.report.page.wait_graph import _HELD_UP_BY, drawing
from kvreference.operations import Arrive, Run
from kvreference.settings import Settings

from .stage import ABOUT, ENDED, FULL, KeepsABlock, case_of, recorded
from .test_page import Document

STANDING = (
    "request 0 waits (waiting), 0 of 150 tokens computed, holds 0 blocks",
    "request 1 runs, 4 of 12 tokens computed, holds 3 blocks",
)


def hung(graph: WaitFor, tokens: int = 150) -> Recording:
    """A recording of a hang: a request of so many tokens in a pool of four blocks of four."""
    settings = Settings(FULL.geometry, blocks=5, tokens_max=400)
    recording = record(Bench(Reference, ("lockstep",)), case_of((Arrive(0, (Run(0, tokens),)),), settings))
    return evolve(recording, frames=recording.frames[:1], waiting=graph)


def test_an_arrow_leads_from_a_waiting_request_to_what_it_waits_for() -> None:
    """Rows in queue order; both requests of a cycle are stuck."""
    edges = (Wait(0, Reason.BLOCKS, 1, 3), Wait(1, Reason.LINE, 0))
    drawn = drawing(hung(WaitFor(edges, 1, STANDING)))
    assert drawn is not None
    assert [0, 1] == [row.request for row in drawn.rows]
    assert "waits (waiting), 0 of 150 tokens computed, holds 0 blocks" == drawn.rows[0].standing
    assert ("waits for blocks that others hold",) == drawn.rows[0].waits
    assert [True, True] == [row.is_stuck for row in drawn.rows]
    down, up = drawn.arrows
    assert "request 0 waits for blocks: request 1 holds 3" == down.title
    assert (True, True) == (down.in_circle, up.in_circle)
    # From the middle of one row to the middle of the other.
    assert down.path.startswith("M 92 25 ")
    assert down.path.endswith(" 90 95")
    assert (2 * wait_graph.ROW, 1, 4) == (drawn.height, drawn.blocks_free, drawn.blocks_usable)
    assert "They wait for one another in a circle: request 0 → request 1 → request 0." == drawn.conclusion


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_described(reason: Reason) -> None:
    """None of them ends the page."""
    drawn = drawing(hung(WaitFor((Wait(0, reason),), 1, STANDING)))
    assert drawn is not None
    assert drawn.rows[0].waits[0].startswith("waits ")


def test_a_request_that_can_never_fit_is_named() -> None:
    """With what it needs, what there is, and which requests wait after it."""
    edges = (Wait(0, Reason.NO_REQUEST), Wait(1, Reason.LINE, 0))
    drawn = drawing(hung(WaitFor(edges, 4, STANDING)))
    assert drawn is not None
    expected = (
        "Request 0 can never run: its 150 tokens need 38 blocks, and the pool has 4. 1 request after it waits as well."
    )
    assert expected == drawn.conclusion
    alone = drawing(hung(WaitFor((Wait(0, Reason.NO_REQUEST),), 4, STANDING), tokens=5))
    assert alone is not None
    assert "Request 0 waits for no other request: only the scheduler keeps it from making progress." == alone.conclusion


def test_a_lost_transfer_is_named() -> None:
    """A request that waits for a transfer that ends is not stuck."""
    drawn = drawing(hung(WaitFor((Wait(0, Reason.TRANSFER, lost=True), Wait(1, Reason.TRANSFER)), 4, STANDING)))
    assert drawn is not None
    assert "Request 0 waits for a transfer that never ends, and is never removed." == drawn.conclusion
    assert ([True, False], ()) == ([row.is_stuck for row in drawn.rows], drawn.arrows)
    assert ("waits for a transfer, which never ends",) == drawn.rows[0].waits


def test_the_drawing_is_bounded() -> None:
    """The page counts what is left out."""
    edges = tuple(Wait(number, Reason.PLACE, 0) for number in range(1, 100))
    drawn = drawing(hung(WaitFor(edges, 0)))
    assert drawn is not None
    assert (wait_graph.REQUESTS_MAX, 100 - wait_graph.REQUESTS_MAX) == (len(drawn.rows), drawn.requests_left_out)
    every = tuple(Wait(one, Reason.PLACE, other) for one in range(12) for other in range(12, 22))
    drawn = drawing(hung(WaitFor(every, 0)))
    assert drawn is not None
    assert (60, 60) == (len(drawn.arrows), drawn.arrows_left_out)


def test_it_is_on_the_page() -> None:
    """In place of what differs, which would say the same in text."""
    recording, found = recorded(KeepsABlock, ENDED, FULL, ("leak",))
    waiting = WaitFor((Wait(0, Reason.BLOCKS, 1, 3), Wait(1, Reason.LINE, 0)), 1, STANDING)
    document = Document(page(evolve(recording, waiting=waiting), found, ABOUT))
    assert "waiting" in document.ids()
    assert "difference" not in document.ids()
    assert 2 == sum(
        tag == "path" and "arrow circle" == each["class"] for tag, each in document.elements if "class" in each
    )
    assert drawing(recording) is None


def test_every_reason_has_a_text() -> None:
    """Control: a drawing of a wait that has none would raise."""
    assert set(Reason) == set(_HELD_UP_BY)
