"""The stage of these tests: small managers, and operations that must be legal as they are written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvreference.answers import Answer, Copies, Copy, Done
from kvreference.compressed import Tokens, with_partial_hits
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Dispatch, Finish, Operation, Run, Schedule
from kvreference.settings import Settings
from kvreference.snapshot import check

FULL = Group("full", 16)
WINDOW = Group("sliding_window", 16, 64)

UNIT, SHORT = with_partial_hits(
    Geometry((Group("full", 64, compress_ratio=16), Group("sliding_window", 16, 32))), Tokens(16)
).groups
"""A compressed group in whose blocks of 64 tokens a hit may end at every 16, and a window of two blocks of 16."""

BUDGET = 1024
"""A token budget that no request of these tests exceeds."""


def manager_of(*groups: Group, blocks: int = 64, **limits: Any) -> Manager:
    """A manager that computes any request in one step, unless ``limits`` say otherwise."""
    return Manager(Settings(Geometry(groups), blocks, **{"chunk_tokens": BUDGET, **limits}))


def perform(manager: Manager, *operations: Operation) -> Answer:
    """Apply each operation, which must be legal and leave a sound state; the last answer."""
    answer: Answer = Done()
    for operation in operations:
        assert operation == manager.population.resolve(operation)
        answer = manager.apply(operation)
        assert [] == check(manager.snapshot())
    return answer


def arrive(number: int, tokens: int, first: int = 0, **rest: Any) -> Arrive:
    """A request with a prompt of one run."""
    return Arrive(number, (Run(first, tokens),), **rest)


def enter(manager: Manager, number: int, tokens: int, first: int = 0, **rest: Any) -> Answer:
    """A request arrives and is admitted for as much as one step can compute."""
    return perform(manager, arrive(number, tokens, first, **rest), Admit(number, BUDGET))


def compute_prompt(manager: Manager, number: int) -> Iterator[Answer]:
    """Schedule an admitted request until its prompt is computed, in no more steps than it has tokens; the answers."""
    request = manager.population[number]
    for _ in request.tokens:
        if request.answers_next:
            return
        yield perform(manager, Schedule(number, BUDGET))
    assert request.answers_next, "a step computes a token at least"


def pass_through(manager: Manager, number: int, tokens: int, first: int = 0, **rest: Any) -> None:
    """A request arrives, is admitted and finishes; what it computed stays cached."""
    enter(manager, number, tokens, first, **rest)
    perform(manager, Finish(number))


def dispatched(manager: Manager) -> tuple[Copy, ...]:
    """The step goes to the worker; the copies that it makes first."""
    answer = perform(manager, Dispatch())
    assert isinstance(answer, Copies)
    return answer.copies


def serve(manager: Manager, number: int, tokens: int, first: int = 0, **rest: Any) -> Answer:
    """A request arrives and is admitted, and the step with it goes to the worker."""
    answer = enter(manager, number, tokens, first, **rest)
    dispatched(manager)
    return answer


def seen(manager: Manager) -> tuple[object, ...]:
    """All that a snapshot shows, read now: a snapshot itself reads its entries when it is asked for them."""
    now = manager.snapshot()
    return (
        *(now.tables, now.references, now.free, now.blocks_free, now.contents, now.entries),
        *(now.pinned, now.copies, now.begun),
    )


def free(manager: Manager) -> list[int]:
    """The free queue, front first."""
    return list(manager.snapshot().free)


def table(manager: Manager, number: int, group: int = 0) -> list[int]:
    """The block table of a request in one group."""
    return list(manager.snapshot().tables[number][group])


def cached(manager: Manager) -> list[int]:
    """The blocks whose content is cached, by id."""
    return [block for block, content in enumerate(manager.snapshot().contents) if content is not None]


def pinned(manager: Manager) -> tuple[list[int], list[int]]:
    """The pinned blocks, held or not, by id; and those that no request holds, the oldest first."""
    now = manager.snapshot().pinned
    return sorted(now.blocks), list(now.queue)


def references(manager: Manager, *blocks: int) -> list[int]:
    """The reference counts of ``blocks``."""
    return [manager.snapshot().references[block] for block in blocks]
