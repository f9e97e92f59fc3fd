"""The invariants.

Goal: each is proved by an obligation of its own, holds at the start, and can fail. Method: the ids; the initial state
on numbers; and for each a sound state with one thing broken that it is about.
"""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvspec.maps import FiniteMap
from kvspec.pool.invariants import INVARIANTS, Point
from kvspec.pool.state import FREE, HELD, MAPS, WAITING, State, initial
from kvspec.refinement.follower import everywhere, wrong
from kvspec.registry import obligations

NOTHING = FiniteMap()

SOUND = State(
    blocks=8,
    out_of_turn=1,
    # 1 is shared by two tables and read by a copy into 2; 3 waits as pinned, 4 is cached and free, 5 has an entry.
    refs=FiniteMap({1: 3, 2: 1, 5: 1}),
    named=FiniteMap({1: 1, 2: 1, 3: 2, 4: 5}),
    reads=FiniteMap({1: 1}),
    writes=FiniteMap({1: 2}),
    where=FiniteMap({1: HELD, 2: HELD, 3: WAITING, 4: FREE, 5: HELD, 6: FREE, 7: FREE}),
    pinned=FiniteMap({1: 1, 3: 1, 5: 1}),
    content=FiniteMap({1: 11, 3: 13, 4: 11}),
    listed=FiniteMap({(11, 1): 1, (13, 3): 3, (11, 4): 4}),
    begun=FiniteMap({5: 2}),
    begins=FiniteMap({(15, 5): 5, (16, 5): 5}),
    # A step in flight uses 1 and 5, and another node writes 2.
    uses=FiniteMap({1: 1, 2: 5}),
    filled=FiniteMap({2: 1}),
    # In the range that is looked at, 11, 13 and 15 are not the same, and 16 begins as 15 does. What is known is there,
    # but for what a step still has to write into 5. The request that names 2 computed something in a part of it.
    part=FiniteMap({11: 21, 13: 23, 15: 25, 16: 25}),
    written=FiniteMap({1: 21, 2: 21, 3: 23, 4: 21}),
    owed=FiniteMap({5: 25}),
    late=FiniteMap(),
    fixed=FiniteMap({1: 21, 3: 23, 4: 21, 5: 25}),
    has=FiniteMap({1: 21, 2: 21, 3: 21, 4: 25}),
    counts=FiniteMap({1: 1, 2: 1, 3: 2, 4: 5}),
    tentative=FiniteMap({3: 1}),
    wants=FiniteMap({1: 21}),
)
"""A state in which every invariant says something."""

BROKEN: dict[str, dict[str, Any]] = {
    "in_one_place": {"where": SOUND.where.put(6, 0)},
    "conserved": {"where": SOUND.where.put(6, 0)},
    "counts_holders": {"named": SOUND.named.put(9, 5)},
    "held_if_referenced": {"where": SOUND.where.put(5, FREE)},
    "free_if_unpinned": {"pinned": SOUND.pinned.put(4, 1)},
    "waits_if_pinned": {"pinned": SOUND.pinned.put(3, 0)},
    "pinned_is_cached": {"begun": NOTHING, "begins": NOTHING},
    "map_agrees": {"listed": SOUND.listed.put((12, 3), 3)},
    "entries_agree": {"begins": SOUND.begins.put((17, 5), 5)},
    "null_is_nothing": {"begun": SOUND.begun.put(0, 1)},
    "source_is_held": {"refs": SOUND.refs.put(1, 0)},
    "destination_is_named": {"named": SOUND.named.put(3, 0)},
    "destination_is_held": {"refs": SOUND.refs.put(2, 0)},
    "used_is_held": {"uses": SOUND.uses.put(3, 6)},
    "filled_is_held": {"filled": SOUND.filled.put(6, 1)},
    "filled_is_unused": {"filled": SOUND.filled.put(5, 1)},
    "known_is_written": {"owed": NOTHING},
    "owed_is_held": {"owed": SOUND.owed.put(6, 21)},
    "late_is_in_turn": {"late": SOUND.late.put(6, 1)},
    "counted_is_written": {"has": SOUND.has.put(3, 22)},
    "wanted_is_written": {"wants": SOUND.wants.put(1, 22)},
    "shared_is_fixed": {"fixed": SOUND.fixed.put(1, 0)},
    "computed_is_fixed": {"tentative": SOUND.tentative.put(1, 1)},
    "filled_is_not_owed": {"owed": SOUND.owed.put(2, 21)},
    "filled_is_unknown": {"filled": SOUND.filled.put(4, 1)},
}


def violations(state: State) -> set[str]:
    """The invariants that do not hold somewhere in ``state``."""
    return {drift.where.partition("(")[2].rstrip(")") for drift in wrong(None, state, everywhere(state))}


def test_each_is_proved_by_an_obligation_of_its_own() -> None:
    """So what one proof assumes, another one shows."""
    names = {name.rpartition(".")[2]: name for name in obligations()}
    for invariant, law in INVARIANTS.items():
        obligation = obligations()[names[invariant.__name__.replace("_", "-")]]
        assert law.statement in obligation.statements


def test_a_sound_state_violates_none() -> None:
    """The control of what follows."""
    assert set() == violations(SOUND)


@pytest.mark.parametrize("blocks", [1, 2, 9])
def test_they_hold_at_the_start(blocks: int) -> None:
    """In a pool of any size, a null block alone included."""
    state = initial(State(blocks, 1, **dict.fromkeys(MAPS, SOUND.refs)))
    assert set() == violations(state)
    assert blocks - 1 == state.where.count(FREE)
    assert all(getattr(state, name) == NOTHING for name in MAPS if name not in ("where", "part"))


@pytest.mark.parametrize("name", [invariant.__name__ for invariant in INVARIANTS])
def test_each_can_fail(name: str) -> None:
    """It is among the reported violations of a state in which something that it covers is broken."""
    assert name in violations(evolve(SOUND, **BROKEN[name]))


@pytest.mark.parametrize("broken", [{"late": SOUND.late.put(3, 1)}, {"written": SOUND.written.put(4, 22)}])
def test_what_is_known_is_lost_where_something_else_was_written(broken: dict[str, Any]) -> None:
    """Or still will be, by a step of a former holder."""
    assert "known_is_written" in violations(evolve(SOUND, **broken))


def test_nothing_touched_is_nothing_wrong() -> None:
    """Untouched parts are not checked, and a copy always is."""
    state = evolve(SOUND, refs=SOUND.refs.put(2, 0))
    assert [] == list(wrong(None, state, []))
    assert ["KV-INV-09 (destination_is_held)"] == [drift.where for drift in wrong(None, state, [Point(7)])]
