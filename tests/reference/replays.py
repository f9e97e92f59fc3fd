"""Replays: one prompt is computed and released, and others ask how much of it they hit."""

from __future__ import annotations

from typing import Any

from kvreference.answers import Hit
from kvreference.geometry import Geometry
from kvreference.manager import Manager
from kvreference.operations import Abort, Admit, Arrive, Dispatch, Finish, LookUp, Operation, Run, Schedule
from kvreference.settings import Settings
from kvreference.snapshot import check

ELSE = 1_000_000
"""Token ids from here on are in no prompt that was computed."""


def system(geometry: Geometry, tokens_max: int, chunk_tokens: int = 8192, **more: Any) -> Settings:
    """A system in which nothing that is cached is lost: there are two blocks for each that a request could fill."""
    blocks = 1 + 2 * sum(group.blocks_occupied(tokens_max) + 1 for group in geometry.groups)
    return Settings(geometry, blocks, tokens_max=tokens_max + 1, chunk_tokens=chunk_tokens, **more)


def computed(settings: Settings, *prompt: Run) -> Manager:
    """A manager that has computed a prompt in chunks, and has released all of it."""
    manager = Manager(settings)
    _perform(manager, Arrive(0, prompt))
    _perform(manager, Admit(0, settings.chunk_tokens))
    request = manager.population[0]
    for _ in request.tokens:
        if request.answers_next:
            break
        _perform(manager, Schedule(0, settings.chunk_tokens))
    _perform(manager, Finish(0))
    assert [] == check(manager.snapshot())
    return manager


def _perform(manager: Manager, operation: Operation) -> None:
    assert operation == manager.population.resolve(operation)
    manager.apply(operation)
    if manager.geometry.fences:
        manager.apply(Dispatch())


def hit(manager: Manager, *prompt: Run) -> int:
    """How many tokens of the cache a request with this prompt hits; the request goes away again."""
    number = manager.population.arrived
    manager.apply(Arrive(number, prompt))
    answer = manager.apply(LookUp(number))
    manager.apply(Abort(number))
    assert isinstance(answer, Hit)
    return answer.tokens


def hit_of(manager: Manager, shared: int, own: int = 0) -> int:
    """The hit of a request that shares its first tokens with the prompt ``Run(0, ...)``, and then differs."""
    return hit(manager, Run(0, shared), *((Run(ELSE, own),) if own else ()))


def replayed(geometry: Geometry, tokens: int, chunk_tokens: int = 8192, **more: Any) -> int:
    """The hit of a prompt that is sent a second time."""
    return hit_of(computed(system(geometry, tokens, chunk_tokens, **more), Run(0, tokens)), tokens)


def cached_positions(manager: Manager, group: int) -> list[int]:
    """The indices of the blocks of one prompt that are cached in a group."""
    size = manager.geometry.groups[group].block_size_tokens
    found = (content for content in manager.pool.cached.contents() if content is not None)
    return sorted(prefix.tokens // size - 1 for index, prefix in found if index == group)
