"""Following: what is recorded, how a state is seen, and what the transitions of an operation are.

Goal: following a manager does not change what it does, and each operation is reported as the transitions that a reader
of the chapters would expect. Method: small managers step by step, and the same operations with and without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from attrs import evolve

from kvgate.explore.refinement_run import DriftError, Followed, Tally
from kvgate.gate.case_runner import Lane
from kvgate.gate.generator import PRESETS, Generator
from kvgate.kernel.models import load
from kvgate.levels.manager import draw_case
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.manager import Manager
from kvreference.operations import (
    Admit,
    Arrive,
    Dispatch,
    Evict,
    Finish,
    LookUp,
    Operation,
    Preempt,
    Reset,
    Rewind,
    Run,
    Schedule,
    Transferred,
)
from kvreference.settings import Settings
from kvspec.maps import entries_of
from kvspec.pool.state import FREE, HELD, MAPS, WAITING, initial
from kvspec.refinement.follower import everywhere, wrong
from kvspec.refinement.picture import FOLLOWED, IN_BOTH, picture

FULL = Geometry((Group(Kind.FULL, 4),))


def manager_of(geometry: Geometry = FULL, **settings: Any) -> Followed:
    """A small manager that is followed."""
    return Followed(Settings(geometry, **{"blocks": 8, "tokens_max": 32, **settings}))


WRITES = Counter(dict.fromkeys(("compute", "computed"), 1_000))


def seen(manager: Followed, *operations: Operation, writes: bool = False) -> list[Tally]:
    """The transitions that each of the operations consists of; those that write into slots if ``writes``."""
    tallies = []
    for operation in operations:
        before = Counter(manager.follower.tally)
        manager.apply(operation)
        tallies.append(manager.follower.tally - before - (Counter() if writes else WRITES))
    return tallies


@pytest.mark.parametrize("blocks", [2, 3, 8, 65])
@pytest.mark.parametrize("settings", [{}, {"scratch_first": True}, {"pin_drop_blocks_min": 1}])
def test_a_new_manager_is_in_the_initial_state(blocks: int, settings: Mapping[str, Any]) -> None:
    """With each kind of pool: all blocks but the null block are free, and nothing is held, pinned or cached."""
    manager = Manager(Settings(FULL, blocks, tokens_max=32, **settings))
    state = picture(manager).state
    first = initial(state)
    for name in set(MAPS) - set(FOLLOWED):
        assert getattr(first, name) == getattr(state, name), name
    assert blocks == state.blocks == len(manager.pool.references)


def test_what_becomes_known_is_written() -> None:
    """Two blocks are computed with the step in which they become known, and are in the slots from then on."""
    manager = manager_of()
    assert [Counter(), Counter(take=3, register=2, compute=2, computed=2), Counter(drop=3)] == seen(
        manager, Arrive(0, (Run(0, 9),)), Admit(0, 9), Finish(0), writes=True
    )
    state = manager.follower.now.state
    assert {block: content for content, block in entries_of(state.listed)} == entries_of(state.written)
    assert {} == entries_of(state.owed)


def test_blocks_are_taken_registered_held_and_dropped() -> None:
    """Two requests with one prompt of two blocks and a bit, the second of which hits; an eviction and a reset."""
    prompt = (Run(0, 9),)
    manager = manager_of()
    assert [Counter(), Counter(take=3, register=2), Counter(), Counter(), Counter(take=1, hold=2)] == seen(
        manager, Arrive(0, prompt), Admit(0, 9), Arrive(1, prompt), LookUp(1), Admit(1, 9)
    )
    assert [Counter(drop=3), Counter(forget=1), Counter(), Counter(drop=3), Counter(reset=1)] == seen(
        manager, Finish(0), Evict(1), Reset(), Preempt(1), Reset()
    )


def test_a_failed_load_forgets_or_frees_too() -> None:
    """Token 16 reads from token 12 on, which is held; token 15 reads from 11 on, which was released: all is freed then.
    What is loaded later is freed when the load is over.
    """
    manager = manager_of(Geometry((Group(Kind.SLIDING_WINDOW, 4, 5),)))
    assert [Counter(), Counter(take=2, register=2)] == seen(
        manager, Arrive(0, (Run(0, 20),)), Admit(0, 32, external_tokens=16)
    )
    assert [Counter(forget=1, takeback=1), Counter(forget=2, drop=2)] == seen(manager, Rewind(0, 16), Rewind(0, 15))
    assert [Counter(fill=1), Counter(forget=1), Counter(provide=1, filled=1, drop=1)] == seen(
        manager, Admit(0, 32, external_tokens=16, loads=True), Rewind(0, 15), Transferred(0)
    )


def test_pins_and_demotions() -> None:
    """A request that ends pins what is cached of it, and demotion makes room for the next one."""
    manager = manager_of(pin_drop_blocks_min=1)
    # The third block is not full: it is checked, and not pinned.
    assert [Counter(), Counter(take=3, register=2), Counter(pin=3, drop=3)] == seen(
        manager, Arrive(0, (Run(0, 9),)), Admit(0, 9), Finish(0)
    )
    assert Counter({WAITING: 2, FREE: 5}) == Counter(entries_of(manager.follower.now.state.where).values())
    assert [Counter(), Counter(demote=1, take=6, register=6)] == seen(manager, Arrive(1, (Run(100, 24),)), Admit(1, 24))


def test_copies_hold_their_source_until_they_are_dispatched() -> None:
    """A hit that ends inside a block: its source is read, and its destination is a block of the request's own."""
    group = Group(Kind.FULL, 8, compress_ratio=2, unit_tokens=4)
    manager = manager_of(Geometry((group,)), tokens_max=16)
    first, second = (Run(0, 5),), (Run(0, 5), Run(90, 2))
    assert [Counter(), Counter(take=1, begin=1), Counter(), Counter()] == seen(
        manager, Arrive(0, first), Admit(0, 5), Dispatch(), Arrive(1, second)
    )
    assert [Counter(read=1, take=1, aim=1), Counter(readdone=1)] == seen(manager, Admit(1, 7), Dispatch())


def test_a_running_state_moves() -> None:
    """Where states are kept at block ends alone, the block of a draft is used again after the running one."""
    group = Group(Kind.MAMBA, 4, states=StateMode.ALIGN, draft_states=1)
    manager = manager_of(Geometry((group,)), drafts_max=1)
    assert [Counter(), Counter(take=2, register=1), Counter()] == seen(
        manager, Arrive(0, (Run(0, 13),)), Admit(0, 4), Dispatch()
    )
    # The block of the possible draft comes after the first state, and then two places farther on.
    assert [Counter(move=1, take=1, register=1)] == seen(manager, Schedule(0, 8))


def test_a_state_is_seen_as_it_is() -> None:
    """Every map, on a state of two tables."""
    manager = manager_of()
    for operation in (Arrive(0, (Run(0, 5),)), Admit(0, 5), Arrive(1, (Run(0, 5),)), Admit(1, 5)):
        manager.apply(operation)
    state = picture(manager).state
    (content,) = manager.pool.cached.entries()
    assert {1: 2, 2: 1, 3: 1} == entries_of(state.refs)
    assert {(0, 0, 0): 1, (0, 0, 1): 2, (1, 0, 0): 1, (1, 0, 1): 3} == entries_of(state.named)
    assert {1: HELD, 2: HELD, 3: HELD, 4: FREE, 5: FREE, 6: FREE, 7: FREE} == entries_of(state.where)
    assert {1: content} == entries_of(state.content)
    assert {(content, 1): 1} == entries_of(state.listed)
    for nothing in (state.reads, state.writes, state.pinned, state.begun, state.begins):
        assert {} == entries_of(nothing)


def test_what_no_state_can_say_is_seen_as_that() -> None:
    """A block in two queues, or listed twice, is seen as such."""
    manager = manager_of(pin_drop_blocks_min=1)
    for operation in (Arrive(0, (Run(0, 5),)), Admit(0, 5), Finish(0)):
        manager.apply(operation)
    (waiting,) = manager.pool.pinned_blocks().queue
    manager.pool.free.append(waiting)
    ((content, blocks),) = manager.pool.cached.entries().items()
    manager.pool.cached._blocks[content] = blocks * 2
    state = picture(manager).state
    assert IN_BOTH == state.where[waiting]
    assert -waiting == state.listed[content, waiting]
    reported = {drift.where.partition(" ")[0] for drift in wrong(None, state, everywhere(state))}
    assert {"KV-INV-02", "KV-INV-03", "KV-INV-05"} <= reported


def test_a_picture_is_made_anew_where_something_changed() -> None:
    """With the picture before at hand, it is the same as without."""
    for _, manager, _ in _driven("compressed+partial", "hostile"):
        assert isinstance(manager, Followed)
        followed = {name: getattr(manager.follower.now.state, name) for name in FOLLOWED}
        assert evolve(picture(manager).state, **followed) == manager.follower.now.state


def _driven(model: str, preset: str) -> Sequence[tuple[Manager, Manager, Operation]]:
    """A plain and a followed manager side by side, and the operation that both performed last."""
    loaded = load(model)
    generator = Generator(PRESETS[preset], loaded.geometry, loaded.features)
    case = draw_case(generator, Lane(loaded, preset), "0", 0)
    plain, followed = Manager(case.settings), Followed(case.settings)
    # So that the same content is the same object in both.
    followed._interned = plain._interned
    steps = []
    for operation in case.operations:
        resolved = plain.population.resolve(operation)
        if resolved is not None:
            assert plain.apply(resolved) == followed.apply(resolved)
            steps.append((plain.copy(), followed.copy(), resolved))
    return steps


@pytest.mark.parametrize("model", ["gemma-hybrid+pinned=2", "compressed+partial"])
def test_to_be_followed_changes_nothing(model: str) -> None:
    """The same answers to the same operations, and the same states."""
    steps = _driven(model, "hostile")
    assert len(steps) > 100
    for plain, followed, _ in steps[::10]:
        assert plain.snapshot().references == followed.snapshot().references
        assert plain.snapshot().free == followed.snapshot().free
        assert plain.snapshot().pinned == followed.snapshot().pinned


def test_a_copy_is_followed_by_itself() -> None:
    """Changes of one are not taken for changes of the other."""
    manager = manager_of()
    manager.apply(Arrive(0, (Run(0, 9),)))
    other = manager.copy()
    other.apply(Admit(0, 9))
    manager.apply(Admit(0, 4))
    manager.apply(Finish(0))
    other.apply(Finish(0))
    assert {} == entries_of(manager.follower.now.state.refs) == entries_of(other.follower.now.state.refs)


def test_a_drift_says_what_was_expected() -> None:
    """The operation, where the two part, and both sides."""
    manager = manager_of()
    manager.apply(Arrive(0, (Run(0, 9),)))
    manager.pool.references[7] = 3
    with pytest.raises(DriftError, match=r"Admit\(.*\): refs at 7: expected 0, got 3"):
        manager.apply(Admit(0, 9))
