"""The canonical form.

Goal: two states have the same form exactly if they differ in names alone. Method: one history under other names; a
second look that tries all names for blocks and families; and everything that the state consists of, which must be in
the form or be left out for a reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

import pytest
from attrs import evolve, fields

from kvgate.explorer.canonical import LEFT_OUT
from kvgate.explorer.families import Prompt, family_of, token_at, within_family
from kvgate.explorer.manager_world import ManagerWorld, Moment
from kvgate.explorer.menu import Menu
from kvgate.monitors.ghost import GhostMemory
from kvgate.monitors.states import JUNK
from kvreference.block_pool import NULL
from kvreference.content import Prefix
from kvreference.free_queue import FreeQueue
from kvreference.geometry import Group
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Finish, Operation, Preempt, Sample, Schedule
from kvreference.pinned_tier import PinnedPool
from kvreference.population import Request
from kvreference.prefix_cache import PrefixCache
from kvreference.tables import Table

from .stage import FULL, WINDOW, world_of

BOTH_FAMILIES = Menu((Prompt(3),), families=2, evicts=True)


def history(first: int = 0, families: Sequence[int] = (0, 1)) -> list[Operation]:
    """Two requests of two families, the first of them gone, by the numbers from ``first`` on."""
    one, other = families
    return [
        Arrive(first, Prompt(3).runs(one)),
        Admit(first, 8),
        Sample(first, 0, token_at(one, 0, 3), 0),
        Arrive(first + 1, Prompt(3, 2).runs(other)),
        Schedule(first, 8),
        Preempt(first),
        Admit(first + 1, 2),
        Finish(first + 1),
    ]


def forms(world: ManagerWorld, moves: Sequence[Operation], free: Sequence[int] = (1, 2, 3)) -> list[object]:
    """The form of every state of a history; the blocks are handed out in the order ``free``."""
    state = world.initial()
    state.manager.pool.free = FreeQueue(free)
    found: list[object] = []
    for move in moves:
        assert move == state.manager.population.resolve(move)
        state = world.step(state, move).state
        found.append(world.key(state))
    return found


@pytest.mark.parametrize("groups", [(FULL,), (WINDOW,)])
def test_names_do_not_matter(groups: Sequence[Group]) -> None:
    """Neither the numbers of requests, nor which family is which, nor which block is which."""
    world = world_of(*groups, tokens_max=5)
    expected = forms(world, history())
    assert expected == forms(world, history(first=7))
    assert expected == forms(world, history(families=(1, 0)))
    assert expected == forms(world, history(families=(5, 3)))
    for free in permutations((1, 2, 3)):
        assert expected == forms(world, history(), free)


def test_whatever_else_differs_matters() -> None:
    """Two requests of one family are not two of two, and no two states of this history are the same."""
    world = world_of(FULL, tokens_max=5)
    expected = forms(world, history())
    assert len(expected) == len(set(expected))
    assert expected[-1] != forms(world, history(families=(0, 0)))[-1]


def spelled(prefix: Prefix, families: Sequence[int]) -> list[object]:
    """A prefix, piece by piece."""
    pieces: list[Any] = []
    node: Prefix | None = prefix
    while node is not None:
        pieces.append(node.piece)
        node = node.parent
    return [[other(token, families) for token in piece[0]] for piece in pieces[-2::-1]]


def other(token: object, families: Sequence[int]) -> tuple[int, int]:
    """A token under other names of the families."""
    assert isinstance(token, int)
    return families[family_of(token)], within_family(token)


def written(ghost: GhostMemory, block: int, families: Sequence[int]) -> object:
    """What the slots of a block hold, state by state."""
    slots = ghost.slots(block)
    if slots is None:
        return None
    return slots[0], [
        number
        if number in (None, JUNK)
        else [other(token, families) for _, token, _ in ghost.states.history(number)[1:]]
        for number in slots[1]
    ]


def described(state: Moment, blocks: Sequence[int], families: Sequence[int]) -> list[object]:
    """Everything in a state, where block ``b`` is called ``blocks[b]`` and family ``f`` ``families[f]``."""
    manager, pool, cached = state.manager, state.manager.pool, state.manager.pool.cached
    contents, entries = cached.contents(), cached.entries()
    requests = [
        (
            [other(token, families) for token in request.tokens],
            [other(token, families) for token in request.drafts],
            (request.tokens_computed, request.drafts_in_flight, request.status.value, request.reads_cache),
            [
                ([blocks[block] for block in table.blocks], table.registered)
                for table in manager.tables.get(request.number, ())
            ],
            request.number in manager.tables,
        )
        for request in manager.population.alive.values()
    ]
    held = [
        (
            blocks[block],
            pool.references[block],
            content and (content[0], spelled(content[1], families), [blocks[each] for each in entries[content]]),
            written(state.ghost, block, families),
        )
        for block, content in enumerate(contents)
    ]
    return [requests, [blocks[block] for block in pool.free], sorted(held, key=lambda row: row[0])]


def smallest(state: Moment) -> str:
    """The state under those names under which it is the first in the alphabet."""
    ids = range(1, len(state.manager.pool.references))
    return min(
        repr(described(state, (NULL, *blocks), families))
        for blocks in permutations(ids)
        for families in permutations(range(2))
    )


def met(world: ManagerWorld, states_max: int) -> Iterator[Moment]:
    """States near the initial one, each as often as a move leads to it."""
    queue = [world.initial()]
    seen: set[object] = set()
    for state in queue:
        for move in world.moves(state):
            after = world.step(state, move).state
            yield after
            if after.key not in seen and len(seen) < states_max:
                seen.add(after.key)
                queue.append(after)


@pytest.mark.parametrize("groups", [(FULL,), (WINDOW,)])
def test_states_have_the_same_form_exactly_if_some_names_make_them_the_same(groups: Sequence[Group]) -> None:
    """Forms and smallest descriptions, which know nothing of walks, make the same pairs."""
    world = world_of(*groups, menu=BOTH_FAMILIES, tokens_max=5)
    pairs = {(state.key, smallest(state)) for state in met(world, states_max=300)}
    assert 300 < len(pairs)
    assert len(pairs) == len({form for form, _ in pairs}) == len({description for _, description in pairs})


IN_THE_FORM = {
    "Manager": {"population", "holdings", "cache"},
    "Population": {"alive"},
    "Request": {
        *("tokens", "keys", "reads_cache", "prompt_tokens", "status", "tokens_computed"),
        *("drafts", "drafts_in_flight", "undispatched"),
    },
    "Holdings": {"pool", "tables", "copies"},
    "Table": {"blocks", "registered", "boundary_tokens", "fresh"},
    "PinnedPool": {"references", "free", "cached", "partial", "is_pinned", "pinned"},
    "FreeQueue": {"_order"},
    "CachedMap": {"_blocks", "_content"},
    "PartialMap": {"_blocks", "_contents"},
    "PrefixCache": {"fenced"},
    "GhostMemory": {"_physical", "_pending", "_transfers"},
    "PhysicalSlots": {"_slots"},
}
"""What a state consists of: whatever is added to it must be added to the form."""
CONSTANT = {"settings", "geometry", "groups", "retention", "drop_blocks_min", "states"}
"""What no operation changes, and what only ever grows."""


def test_everything_is_in_the_form_or_left_out_for_a_reason() -> None:
    """Goal: what is added to a manager or to ghost memory is not forgotten here. Method: list their attributes."""
    world = world_of(WINDOW, retention_interval_tokens=1, pin_drop_blocks_min=1)
    state = world.initial()
    manager = state.manager
    assert isinstance(manager.pool, PinnedPool)
    assert isinstance(manager.cache, PrefixCache)
    parts: tuple[Any, ...] = (
        *(manager, manager.population, manager.holdings, manager.pool, manager.pool.free, manager.pool.cached),
        *(manager.pool.partial, manager.cache, state.ghost, state.ghost._physical),
    )
    found = {_make(part): set(vars(part)) - CONSTANT for part in parts}
    found |= {kind.__name__: {each.name for each in fields(kind)} for kind in (Request, Table)}
    left_out = {(kind, name) for kind, _, name in (reason.partition(".") for reason in LEFT_OUT)}
    assert IN_THE_FORM == {
        kind: {name for name in names if (kind, name) not in left_out} for kind, names in found.items()
    }
    assert left_out <= {(kind, name) for kind, names in found.items() for name in names}


def _make(part: object) -> str:
    """The name of a part's class; a manager of any design is a manager."""
    return "Manager" if isinstance(part, Manager) else type(part).__name__


def test_what_is_asked_for_nowhere_does_not_tell_states_apart() -> None:
    """Where a prompt ended matters with a retention interval, and nowhere else."""
    replayed: list[Operation] = [Arrive(0, Prompt(3).runs(0)), Admit(0, 8), Sample(0, 0, 3, 0), Preempt(0)]
    for interval_tokens, same in ((None, True), (2, False)):
        world = world_of(WINDOW, retention_interval_tokens=interval_tokens)
        state = world.initial()
        for move in replayed:
            state = world.step(state, move).state
        before = world.key(state)
        request = state.manager.population[0]
        state.manager.population.alive[0] = evolve(request, prompt_tokens=request.prompt_tokens + 1)
        assert same == (before == world._canonical.key(state.manager, state.ghost))
