"""The canonical form.

Goal: two states have the same form if and only if they differ in names alone. Method: one history under other names,
and an independent check that tries all names for blocks and families.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

import pytest

from kvgate.explore.canonical import Prompt, family_of, token_at, within_family
from kvgate.explore.manager_world import ManagerWorld, Moment
from kvgate.explore.scope import Menu
from kvgate.monitors.slot_memory import JUNK, GhostMemory
from kvreference.block_pool import NULL
from kvreference.content import Prefix
from kvreference.free_queue import FreeQueue
from kvreference.geometry import Group
from kvreference.operations import Admit, Arrive, Finish, Operation, Preempt, Sample, Schedule

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
    """The form of every state of a history; blocks are allocated in the order ``free``."""
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


def test_any_other_difference_matters() -> None:
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
    """The content of a block's slots, state by state."""
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
