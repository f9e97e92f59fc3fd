"""Finding 013 if no reference follows the engine.

Goal: a read in vain is excused only if what was read is known by the same slots. Method: what a ghost says of a read,
with what was in the slots and what that was made of, each changed in one way.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kvgate.findings import explain_engine, register
from kvgate.kernel.difference import Difference, Divergence
from kvgate.monitors.slot_memory import JUNK, States
from kvreference.geometry import Geometry, Group

FINDING = "013-compressed-block-known-by-its-slots"
GEOMETRY = Geometry((Group("full", 32, compress_ratio=4, whole_slots=True), Group("sliding_window", 16, 32)))
"""A block of the first group has 8 slots: block 1, tokens 32 to 63, is known by the first 16 tokens."""
TOKEN, BLOCK = 40, 5


def state_of(states: States, *tokens: int, salt: str | None = None) -> int:
    """The state behind some tokens."""
    state = states.number(None, (salt, None), None)
    for token in tokens:
        state = states.number(state, token, ())
    return state


def explained(
    read: Any = None,
    *,
    shared: int = 16,
    salt: str | None = None,
    longer: int = 0,
    group: int = 0,
    writer: int | None = None,
    detector: str = "ghost",
    reference: object = None,
    release: str = "ascend 0.20.2rc1",
    fixes: frozenset[str] = frozenset(),
) -> bool:
    """Whether a read of token 40 is, where the prefix that was read shares so many tokens with the right one."""
    states = States()
    ours = state_of(states, *range(TOKEN + 1))
    theirs = state_of(states, *range(shared), *range(900, 900 + TOKEN + 1 + longer - shared), salt=salt)
    size = GEOMETRY.groups[group].block_size_tokens
    slots: list[int | None] = [None] * size
    slots[TOKEN % size] = theirs if read is None else read
    held = (group if writer is None else writer, tuple(slots))
    engine = engine_with(states, {BLOCK: held}, reference, release, fixes)
    expected = f"token {TOKEN} in block {BLOCK}: {states.describe(ours)}"
    difference = Difference("KV-MEM-01", f"request 3, group {group}", expected, "another")
    return explain_engine(Divergence(7, None, detector, difference), engine) == FINDING


def engine_with(
    states: States,
    slots: dict[int, Any],
    reference: object = None,
    release: str = "ascend 0.20.2rc1",
    fixes: frozenset[str] = frozenset(),
) -> Any:
    """An engine on a stage on which every finding of the scheduler can show, with these slots."""
    return SimpleNamespace(
        settings=SimpleNamespace(geometry=GEOMETRY),
        stage=SimpleNamespace(by_priority=True, connector=True, asynchronous=True, failed_loads_end=False),
        followed=SimpleNamespace(release=release, fixes=lambda: fixes, population=SimpleNamespace(alive={})),
        lockstep=SimpleNamespace(reference=reference, system=None),
        memory=SimpleNamespace(states=states, slots=slots.get, marks={}),
        progress=SimpleNamespace(waiting=None),
    )


def test_what_shares_its_slots_is_explained() -> None:
    """As many tokens as the block and those before it have slots, or more."""
    assert explained()
    assert explained(shared=20)


def test_without_its_folder_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that it is recognised by is in its folder."""
    there = tuple(name for name in register.folders() if register.id_of(name) != FINDING)
    monkeypatch.setattr("kvgate.findings.register.folders", lambda: there)
    assert not explained()


@pytest.mark.parametrize(
    "changed",
    [
        {"shared": 15},
        {"salt": "other"},
        {"longer": 1},
        {"read": JUNK},
        {"group": 1},
        {"writer": 1},
        {"detector": "leak"},
        {"reference": object()},
        {"release": "0.20.2"},
        {"fixes": frozenset({FINDING})},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_nothing_else_is(changed: dict[str, Any]) -> None:
    """Less in common, another salt, another place; a look-ahead slot; another group, writer, judge or system."""
    assert not explained(**changed)


def test_a_block_of_which_nothing_is_known_is_not() -> None:
    """Nor a slot that was never written."""
    states = States()
    difference = Difference("KV-MEM-01", "request 3, group 0", f"token 40 in block 5: {states.describe(None)}", "x")
    assert explain_engine(Divergence(7, None, "ghost", difference), engine_with(states, {})) is None
