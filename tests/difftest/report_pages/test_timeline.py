"""The timeline.

Goal: a bar lasts as long as what it says, and says the right thing. Method: short runs of sound and faulty systems, and
the bars written out.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvgate.adapters.reference import Reference
from kvgate.levels.manager import Bench
from kvgate.report.page.recording import Recording, record
from kvgate.report.page.timeline import Bar, Lane, timeline
from kvgate.report.page.views import blocks_shown
from kvreference.operations import Abort, Admit, Arrive, Operation, Preempt, Run
from kvreference.settings import Settings

from .stage import ENDED, FULL, PROMPT, TWICE, HitsNothing, KeepsABlock, case_of, recorded


def sound(operations: Sequence[Operation], settings: Settings = FULL) -> Recording:
    """A run on which nothing differs."""
    return record(Bench(Reference, ("lockstep",)), case_of(operations, settings))


def pieces_of(lane: Lane, kind: str) -> list[tuple[int, int, str]]:
    """The bars of one kind: from, up to, and what they say."""
    return [(bar.start, bar.end, bar.text) for bar in lane.bars if bar.kind == kind]


def of(recording: Recording, diverges: int | None = None) -> tuple[Lane, ...]:
    return timeline(recording, *blocks_shown(recording), diverges).blocks


def test_a_block_is_held_and_cached_as_long_as_it_is() -> None:
    """It stays cached after it is freed."""
    lanes = of(sound(ENDED))
    assert ["1", "2", "3"] == [lane.label for lane in lanes]
    first = lanes[0]
    assert ([(1, 2, "r0")], [(1, 5, "")]) == (pieces_of(first, "held"), pieces_of(first, "cached"))
    assert "block 1 is cached: the first 4 tokens of request 0, group 0, operations 1 to 4" in [
        b.title for b in first.bars
    ]


def test_a_shared_block_names_both() -> None:
    """From the hit on, until one of them ends."""
    lanes = of(sound((*TWICE[:3], Admit(1, 64), Abort(0), Abort(1))))
    assert [(3, 4, "r0+r1")] == pieces_of(lanes[0], "shared")
    assert [(1, 3, "r0"), (4, 5, "r1")] == pieces_of(lanes[0], "held")


def test_a_block_that_no_request_names_has_no_holder() -> None:
    """It counts a holder; and the sides differ in it from then on."""
    recording, _ = recorded(KeepsABlock, ENDED, FULL, ("leak",))
    lane = of(recording)[0]
    assert [(2, 5, "no holder")] == pieces_of(lane, "orphan")
    assert [(2, 5, "")] == pieces_of(lane, "differs")


def test_requests_have_a_lane_each() -> None:
    """In which they wait, run, and wait again."""
    drawn = timeline(sound((Arrive(0, PROMPT), Admit(0, 8), Preempt(0), Arrive(1, PROMPT))), [], 0, None)
    assert ["r0", "r1"] == [lane.label for lane in drawn.requests]
    statuses = [(bar.start, bar.end, bar.kind) for bar in drawn.requests[0].bars]
    assert [(0, 1, "waiting"), (1, 2, "running"), (2, 4, "waiting")] == statuses[:3]
    assert isinstance(drawn.requests[1].bars[0], Bar)


def test_columns_say_what_happens_and_where_it_diverges() -> None:
    """One for each operation, with the colour of its request; a refusal has a sign of its own."""
    recording, found = recorded(HitsNothing, TWICE)
    drawn = timeline(recording, [], 0, found.divergence.step)
    assert ["↓", "+", "↓", "?"] == [column.glyph for column in drawn.columns]
    assert [False, False, False, True] == [column.diverges for column in drawn.columns]
    assert ([0, 0, 1, 1], "3: Look up request 1") == ([c.tone for c in drawn.columns], drawn.columns[3].title)
    assert [("↓", "arrives"), ("?", "look-up"), ("+", "admitted")] == list(drawn.glyphs)
    small = Settings(FULL.geometry, blocks=4, tokens_max=64)
    refused = timeline(sound((Arrive(0, (Run(0, 40),)), Admit(0, 8)), small), [], 0, None)
    assert [False, True] == [column.refused for column in refused.columns[:2]]


def test_free_blocks_are_counted() -> None:
    """After each operation."""
    drawn = timeline(sound(ENDED), [], 0, None)
    assert ((11, 8, 11, 11, 11), 11) == (drawn.free, drawn.blocks_usable)
