"""A request that was preempted loads before the answers of its steps in flight are known.

Goal: it takes them, and nothing that it has yet to load is cached with them. Method: the numbers by hand.
"""

from __future__ import annotations

from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Dispatch, Operation, Preempt, Run, Sample, Schedule, Transferred
from kvreference.population import Status
from kvreference.settings import Settings


def loading() -> Manager:
    """Seven tokens in blocks of four, and two steps in flight; then it is preempted, and six of seven are loaded."""
    settings = Settings(
        Geometry((Group(Kind.FULL, 4),)), blocks=16, tokens_max=64, steps_in_flight_max=2, loads_out_of_turn=True
    )
    manager = Manager(settings)
    perform(manager, Arrive(0, (Run(0, 7),), reads_cache=False), Admit(0, 64), Dispatch(), Schedule(0, 64), Dispatch())
    return perform(manager, Preempt(0), Admit(0, 64, external_tokens=6, loads=True), Dispatch())


def perform(manager: Manager, *operations: Operation) -> Manager:
    """Perform operations, each of which must be legal."""
    for operation in operations:
        assert operation == manager.population.resolve(operation)
        manager.apply(operation)
    return manager


def cached(manager: Manager) -> set[int]:
    """The blocks of the request that are cached."""
    (table,) = manager.tables[0]
    return {block for block in table.blocks if manager.pool.cached.content_of(block) is not None}


def answered(manager: Manager, token: int) -> Manager:
    """The oldest step is over, and answers."""
    manager.returned([0])
    return perform(manager, Sample(0, 0, token, 0))


def test_a_loading_request_takes_its_answers() -> None:
    """It keeps its state: of nine tokens six are loaded."""
    request = answered(answered(loading(), 100), 101).population[0]
    assert (Status.LOADING, [*range(7), 100, 101], 6) == (request.status, request.tokens, request.tokens_computed)


def test_what_is_loaded_is_cached_when_it_is_there() -> None:
    """Not with an answer: the transfer may fail."""
    manager = answered(loading(), 100)
    assert set() == cached(manager)
    (block, _) = manager.tables[0][0].blocks
    assert {block} == cached(perform(manager, Transferred(0)))
    failed = perform(answered(loading(), 100), Transferred(0, succeeded=False))
    assert failed.pool.cached.content_of(block) is None
