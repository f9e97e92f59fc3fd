"""The parts of the canonical form.

Goal: nothing that a state consists of is forgotten, now or when something is added to it. Method: list its attributes,
which must be in the form or be left out for a reason; and change one thing after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve, fields

from kvgate.explore.canonical import LEFT_OUT, Prompt
from kvgate.explore.manager_world import Moment
from kvgate.explore.steps_in_flight import AheadMemory
from kvreference.content import Keys
from kvreference.geometry import Group
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Dispatch, Finish, Operation, Preempt, Sample
from kvreference.pinned_tier import PinnedPool
from kvreference.population import Request, Status
from kvreference.prefix_cache import PrefixCache
from kvreference.tables import Table

from .stage import WINDOW, world_of

IN_THE_FORM = {
    "Manager": {"population", "holdings", "cache"},
    "Population": {"alive", "dispatched", "over"},
    "Request": {
        *("tokens", "keys", "reads_cache", "prompt_tokens", "status", "tokens_computed"),
        *("drafts", "drafts_in_flight", "undispatched", "junction_tokens", "awaited", "in_flight"),
    },
    "Holdings": {"pool", "tables", "copies", "deferred"},
    "Table": {"blocks", "registered", "boundary_tokens", "dead", "fresh"},
    "PinnedPool": {"references", "free", "cached", "partial", "is_pinned", "pinned"},
    "FreeQueue": {"_order"},
    "CachedMap": {"_blocks", "_content"},
    "PartialMap": {"_blocks", "_contents"},
    "PrefixCache": {"fenced"},
    "AheadMemory": {"in_flight"},
    "GhostMemory": {"_physical", "_pending", "_transfers"},
    "PhysicalSlots": {"_slots"},
}
"""The parts of a state: a new part must be added to the form."""
CONSTANT = {
    "settings",
    "choices",
    "geometry",
    "groups",
    "retention",
    "drop_blocks_min",
    "partial_hit_tokens_min",
    "junction_of",
    "states",
}
"""The parts that no operation changes, and those that only ever grow."""


def test_everything_is_in_the_form_or_left_out_for_a_reason() -> None:
    """Goal: a new part of a manager or of ghost memory is not forgotten here. Method: list their attributes."""
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
    found["AheadMemory"] = set(vars(AheadMemory(world.scope.settings))) - set(vars(state.ghost))
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


def _first(state: Moment) -> Request:
    return state.manager.population[1]


ALTERATIONS: dict[str, Callable[[Moment], object]] = {
    "tokens": lambda state: _first(state).tokens.append(4),
    "drafts": lambda state: _first(state).drafts.append(4),
    "tokens computed": lambda state: setattr(_first(state), "tokens_computed", 1),
    "drafts in flight": lambda state: setattr(_first(state), "drafts_in_flight", 1),
    "status": lambda state: setattr(_first(state), "status", Status.ENDING),
    "undispatched": lambda state: setattr(_first(state), "undispatched", False),
    "answers awaited": lambda state: _first(state).awaited.append(0),
    "steps in flight with it": lambda state: _first(state).in_flight.append(1),
    "steps that were dispatched": lambda state: setattr(state.manager.population, "dispatched", 9),
    "steps that are over": lambda state: setattr(state.manager.population, "over", 9),
    "what is freed late": lambda state: state.manager.holdings.deferred.append((9, [])),
    "keys": lambda state: setattr(_first(state), "keys", Keys(salt="salt")),
    "reads cache": lambda state: setattr(_first(state), "reads_cache", False),
    "prompt tokens": lambda state: setattr(_first(state), "prompt_tokens", 1),
    "who is alive": lambda state: state.manager.population.alive.pop(1),
    "who holds blocks": lambda state: state.manager.tables.pop(1),
    "a table": lambda state: state.manager.tables[1][0].blocks.pop(),
    "what was offered": lambda state: setattr(state.manager.tables[1][0], "registered", 9),
    "boundaries that were offered": lambda state: setattr(state.manager.tables[1][0], "boundary_tokens", 9),
    "a junction": lambda state: setattr(state.manager.population[1], "junction_tokens", 2),
    "what is dead": lambda state: setattr(state.manager.tables[1][0], "dead", 1),
    "a fresh table": lambda state: setattr(state.manager.tables[1][0], "fresh", True),
    "a count": lambda state: state.manager.pool.references.__setitem__(2, 5),
    "the free queue": lambda state: state.manager.pool.free.pop(),
    "the pinned queue": lambda state: _pinned(state).pinned.append(0),
    "a pin": lambda state: _pinned(state).is_pinned.__setitem__(1, not _pinned(state).is_pinned[1]),
    "a cached block": lambda state: state.manager.pool.cached.forget(1),
    "one side of the cached map": lambda state: state.manager.pool.cached._content.__setitem__(1, None),
    "the other side": lambda state: state.manager.pool.cached._blocks.clear(),
    "a boundary": lambda state: state.manager.pool.partial.forget(2),
    "one side of the boundaries": lambda state: state.manager.pool.partial._contents.clear(),
    "a copy": lambda state: state.manager.copies.pop(),
    "a fence": lambda state: _cache(state).fenced.clear(),
    "memory": lambda state: state.ghost.forget([1]),
    "what is under way": lambda state: state.ghost._pending.pop(),
}
"""How to change one thing in a state."""


def _pinned(state: Moment) -> PinnedPool:
    assert isinstance(state.manager.pool, PinnedPool)
    return state.manager.pool


def _cache(state: Moment) -> PrefixCache:
    assert isinstance(state.manager.cache, PrefixCache)
    return state.manager.cache


@pytest.mark.parametrize("alteration", ALTERATIONS)
def test_any_change_changes_the_form(alteration: str) -> None:
    """Alone, though most of it follows from the rest in every state that can be reached."""
    copied = Group("full", 4, compress_ratio=2, unit_tokens=2)
    settings: dict[str, Any] = {
        "blocks": 12,
        "tokens_max": 12,
        "retention_interval_tokens": 2,
        "pin_drop_blocks_min": 1,
    }
    world = world_of(copied, Group("sliding_window", 2, 2), **settings)
    state = world.initial()
    for move in (
        *(Arrive(0, Prompt(7).runs(0)), Admit(0, 64), Dispatch(), Finish(0)),
        *(Arrive(1, Prompt(9).runs(0)), Admit(1, 64)),
    ):
        assert move == state.manager.population.resolve(move)
        state = world.step(state, move).state
    assert world.key(state) == world._canonical.key(state.manager, state.ghost)
    ALTERATIONS[alteration](state)
    assert world.key(state) != world._canonical.key(state.manager, state.ghost)
