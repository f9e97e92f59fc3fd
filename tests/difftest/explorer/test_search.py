"""The search.

Goal: every state is visited once, every violation is found on a shortest path, and the result says whether the search
was exhaustive. Method: worlds given as graphs in which the answer is visible; a sound world is the control.
"""

from __future__ import annotations

import pytest

from kvgate.explore.exploration import INTERRUPTED, Limits, Sighting
from kvgate.explore.search import Search
from kvreference.snapshot import Violation

from .stage import AMPLE, Drawn, explore

DIAMOND = Drawn({"a": "bC", "b": "D", "c": "De", "d": "a", "e": ""})
"""Five states; `D` and `d` are the same but for the name."""


def test_every_state_is_visited_once() -> None:
    """All edges are walked, and the depth is that of the farthest state."""
    seen = explore(DIAMOND)
    assert (5, 6, 2) == (seen.states, seen.edges, seen.depth)
    assert (None, None, 0, True) == (seen.found, seen.stopped, seen.idle_steps_max, seen.exhaustive)


@pytest.mark.parametrize(
    ("wrong", "statement", "moves"),
    [
        ("a", "KV-INV-01", ""),
        ("d", "KV-INV-01", "bD"),
        ("e", "KV-INV-01", "Ce"),
        ("cd", "KV-MEM-01", "CD"),
        ("da", "KV-MEM-01", "bDa"),
    ],
)
def test_a_violation_is_found_on_a_shortest_way(wrong: str, statement: str, moves: str) -> None:
    """Of a state, the initial one among them, and of a move into a state that is known already."""
    seen = explore(Drawn(DIAMOND.edges, wrong=frozenset({wrong})))
    assert seen.found is not None
    assert (statement, wrong) == (seen.found.violations[0].statement, seen.found.violations[0].detail)
    assert tuple(moves) == seen.found.moves
    assert not seen.exhaustive
    assert (None, None) == (seen.stopped, seen.idle_steps_max)


def test_a_move_that_violates_something_and_leads_to_a_wrong_state_reports_both() -> None:
    """The violation of the move comes first."""
    seen = explore(Drawn(DIAMOND.edges, wrong=frozenset({"ac", "c"})))
    assert seen.found is not None
    assert ["KV-MEM-01", "KV-INV-01"] == [violation.statement for violation in seen.found.violations]


def test_a_move_that_raises_is_a_violation() -> None:
    """Of the statement that none does."""
    seen = explore(Drawn(DIAMOND.edges, raises=frozenset({"ce"})))
    assert seen.found is not None
    assert (Violation("KV-SYS-01", "LookupError: ce"),) == seen.found.violations
    assert ("C", "e") == seen.found.moves


def test_a_cycle_without_progress_is_found_after_all_else() -> None:
    """With the shortest path to it, and the moves around it; a cycle with progress is not one."""
    edges = {"a": "b", "b": "C", "c": "Ed", "d": "b", "e": "c"}
    seen = explore(Drawn(edges, idle=frozenset({"bc", "cd", "db", "ce"})))
    assert seen.found is not None
    assert ("KV-LIVE-03", "back in the same state after 3 steps") == (
        seen.found.violations[0].statement,
        seen.found.violations[0].detail,
    )
    assert ("b",) == seen.found.moves
    assert ("C", "d", "b") == seen.found.circle
    sound = explore(Drawn(edges, idle=frozenset({"bc", "cd", "ce"})))
    assert (True, 2) == (sound.exhaustive, sound.idle_steps_max)


def test_a_state_that_leads_to_itself_without_progress_is_a_circle() -> None:
    """Of one move."""
    seen = explore(Drawn({"a": "b", "b": "B"}, idle=frozenset({"bb"})))
    assert seen.found is not None
    assert (("b",), ("B",)) == (seen.found.moves, seen.found.circle)


ENDLESS = Drawn({chr(code): chr(code + 1) for code in range(ord("a"), ord("z"))})


def test_a_limit_on_states_stops_the_search_and_is_reported() -> None:
    """A search that saw all states although it came close to a limit is exhaustive."""
    seen = explore(ENDLESS, Limits(states_max=10, seconds_max=60))
    assert (10, "stopped at 10 states", False, None) == (
        seen.states,
        seen.stopped,
        seen.exhaustive,
        seen.idle_steps_max,
    )
    assert explore(ENDLESS, Limits(states_max=27, seconds_max=60)).exhaustive


def test_a_limit_on_time_stops_the_search_and_is_reported() -> None:
    """In seconds."""
    seen = explore(ENDLESS, Limits(states_max=100, seconds_max=0))
    assert ("stopped after 0 s", False) == (seen.stopped, seen.exhaustive)


def test_a_circle_is_found_in_what_was_seen_before_a_limit() -> None:
    """It is as real as any."""
    world = Drawn({**ENDLESS.edges, "b": "bc"}, idle=frozenset({"bb"}))
    seen = explore(world, Limits(states_max=5, seconds_max=60))
    assert seen.found is not None
    assert (None, "KV-LIVE-03") == (seen.stopped, seen.found.violations[0].statement)


def test_an_interrupt_reports_what_was_seen() -> None:
    """And that it is not all."""

    def interrupt(sighting: Sighting) -> None:
        if sighting.states == 4:
            raise KeyboardInterrupt

    seen = Search(ENDLESS, AMPLE, interrupt).run()
    assert (4, INTERRUPTED, False) == (seen.states, seen.stopped, seen.exhaustive)
