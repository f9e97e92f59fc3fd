"""The comparison of KV events.

Goal: an outside router learns exactly what the reference would report. Method: pairs of event lists with one injected
difference, which is KV-OP-12, and equal pairs with other identities.
"""

from __future__ import annotations

import pytest
from attrs import evolve

from kvgate.kernel.comparison import Comparison
from kvgate.kernel.difference import Difference
from kvreference.answers import Happened
from kvreference.content import UNTAGGED, ExtraKey
from kvreference.events import Cleared, Event, Removed, Stored
from kvreference.operations import TakeEvents

STORED = Stored(1, ("a", "b"), None, (1, 2, 3, 4), 2, "adapter", ((ExtraKey("salt", "x"),), ()))
THEIRS = evolve(STORED, contents=(11, 12), extra_keys=((ExtraKey(UNTAGGED, "x"),), ()))
CHILD = evolve(STORED, contents=("c",), parent="b", tokens=(5, 6), extra_keys=((),))
THEIR_CHILD = evolve(CHILD, contents=(13,), parent=12)

OURS: tuple[Event, ...] = (STORED, CHILD, Removed("a"), Cleared())
SAME: tuple[Event, ...] = (THEIRS, THEIR_CHILD, Removed(11), Cleared())


def compare(ours: tuple[Event, ...], theirs: tuple[Event, ...]) -> Difference | None:
    return Comparison().of_answers(TakeEvents(), Happened(ours), Happened(theirs))


def test_events_that_say_the_same_are_no_difference() -> None:
    """Identities are the system's own, and a system need not report the domains of extra keys."""
    assert compare(OURS, SAME) is None
    assert compare((), ()) is None


INJECTED: dict[str, tuple[int, Event]] = {
    "another group": (0, evolve(THEIRS, group=0)),
    "other tokens": (0, evolve(THEIRS, tokens=(1, 2, 3, 9))),
    "another block size": (0, evolve(THEIRS, block_size_tokens=4)),
    "no adapter": (0, evolve(THEIRS, lora=None)),
    "no extra keys": (0, evolve(THEIRS, extra_keys=((), ()))),
    "fewer blocks": (0, evolve(THEIRS, contents=(11,))),
    "one identity for two contents": (0, evolve(THEIRS, contents=(11, 11))),
    "a parent out of nowhere": (0, evolve(THEIRS, parent=10)),
    "another parent": (1, evolve(THEIR_CHILD, parent=11)),
    "no parent": (1, evolve(THEIR_CHILD, parent=None)),
    "another content removed": (2, Removed(12)),
    "stored, not removed": (2, THEIRS),
    "removed, not stored": (1, Removed(13)),
    "cleared, not removed": (2, Cleared()),
    "removed, not cleared": (3, Removed(12)),
}


@pytest.mark.parametrize(("position", "event"), INJECTED.values(), ids=INJECTED)
def test_an_event_that_differs_is_named(position: int, event: Event) -> None:
    """By its position, with both events."""
    expected = Difference("KV-OP-12", f"event {position}", str(OURS[position]), str(event))
    assert expected == compare(OURS, (*SAME[:position], event, *SAME[position + 1 :]))


def test_a_missing_event_is_named() -> None:
    """The first that has no partner."""
    expected = Difference("KV-OP-12", "number of events", "4", f"3; the first that has no partner: {Cleared()}")
    assert expected == compare(OURS, SAME[:3])


def test_one_event_too_many_is_named() -> None:
    """The first that has no partner, on the other side."""
    expected = Difference("KV-OP-12", "number of events", "3", f"4; the first that has no partner: {Cleared()}")
    assert expected == compare(OURS[:3], SAME)


def test_identities_are_remembered_from_one_answer_to_the_next() -> None:
    """Content stored under one identity may not be removed under another."""
    comparison = Comparison()
    assert comparison.of_answers(TakeEvents(), Happened(OURS[:2]), Happened(SAME[:2])) is None
    assert comparison.of_answers(TakeEvents(), Happened((Removed("b"),)), Happened((Removed(12),))) is None
    assert comparison.of_answers(TakeEvents(), Happened((Removed("b"),)), Happened((Removed(13),))) is not None
