"""Every state that a small scheduler can reach, with any submissions and of any length.

Breadth first, so that violations are found on a shortest path. States that differ only in the names of requests and
blocks are one state.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence

from attrs import evolve, field, frozen

from kvreference.block_pool import NULL
from kvreference.operations import Abort, Transferred
from kvreference.scheduler.observation import Observation
from kvreference.scheduler.operations import Operation, Reply, Step, Submit
from kvreference.scheduler.scheduler import Scheduler, step
from kvreference.tables import Table

from .stage import Outlook, outlook, wrongs

STATES_MAX = 20_000
"""No search of these tests comes near it: one that does has lost a limit."""

Checker = Callable[[Scheduler, Outlook, Operation, Observation], Sequence[str]]


@frozen
class Explored:
    """The result of a search."""

    states: int
    seen: Counter[str]
    """How often what happened."""
    way: tuple[Operation, ...] = ()
    """A shortest way to what is wrong, if anything is."""
    wrong: Sequence[str] = field(default=())


def explore(
    scheduler: Scheduler, menu: Sequence[Submit], replies: Sequence[Reply], check: Checker = wrongs, aborts: bool = True
) -> Explored:
    """Try everything in every state: all operations on the menu, a step with each of the replies, ends of transfers."""
    ways: dict[Hashable, tuple[Hashable, Operation] | None] = {key_of(scheduler): None}
    queue = deque([scheduler])
    seen: Counter[str] = Counter()
    while queue:
        before = queue.popleft()
        promised = outlook(before)
        for operation in _moves(before, menu, replies, aborts):
            after, observation = step(before, operation)
            seen.update(_happened(observation))
            key = key_of(after)
            wrong = check(after, promised, operation, observation)
            if wrong:
                return Explored(len(ways), seen, (*_way_to(ways, key_of(before)), operation), wrong)
            if key not in ways:
                ways[key] = key_of(before), operation
                assert len(ways) <= STATES_MAX, "the search does not end"
                queue.append(after)
    return Explored(len(ways), seen)


def _moves(scheduler: Scheduler, menu: Sequence[Submit], replies: Sequence[Reply], aborts: bool) -> Iterator[Operation]:
    alive = scheduler.manager.population.alive
    yield from (Step((reply,)) for reply in replies)
    if len(alive) < scheduler.settings.requests_max:
        number = scheduler.manager.population.arrived
        yield from (evolve(submit, arrival=evolve(submit.arrival, request=number)) for submit in menu)
    for number in scheduler.transfers():
        yield Transferred(number, True)
        yield Transferred(number, False)
    if aborts:
        yield from (Abort(number) for number in scheduler.queues.terms)


def _way_to(ways: dict[Hashable, tuple[Hashable, Operation] | None], key: Hashable) -> list[Operation]:
    before = ways[key]
    return [] if before is None else [*_way_to(ways, before[0]), before[1]]


def _happened(observation: Observation) -> Iterator[str]:
    for operation, answer in observation.performed:
        yield f"{type(operation).__name__} {type(answer).__name__}"
    if observation.reason is not None:
        yield observation.reason.name


def key_of(scheduler: Scheduler) -> Hashable:
    """All that decides what happens from here on, without the names of requests and blocks."""
    manager, queues = scheduler.manager, scheduler.queues
    line = [*queues.running, *queues.waiting]
    ended = [number for number in manager.population.alive if number not in queues.terms]
    requests = tuple(
        (queues.terms.get(number), _request_of(scheduler, number), *map(_table_of, manager.tables.get(number, ())))
        for number in (*line, *ended)
    )
    return len(queues.running), requests, _pool_of(scheduler, [*line, *ended])


def _request_of(scheduler: Scheduler, number: int) -> Hashable:
    request = scheduler.manager.population[number]
    counts = request.status, request.tokens_computed, request.drafts_in_flight
    if scheduler.settings.caches:
        return *counts, tuple(request.tokens), tuple(request.drafts)
    return *counts, len(request.tokens), len(request.drafts)


def _table_of(table: Table) -> Hashable:
    return table.registered, tuple(block != NULL for block in table.blocks)


def _pool_of(scheduler: Scheduler, numbers: Sequence[int]) -> Hashable:
    """Which blocks hold what, in an order that does not depend on their ids."""
    snapshot = scheduler.manager.snapshot()
    if not scheduler.settings.caches:
        return len(snapshot.free)
    named = [block for number in numbers for table in snapshot.tables.get(number, ()) for block in table]
    order = {block: place for place, block in enumerate(dict.fromkeys([*named, *snapshot.free]))}
    entries = frozenset((content, tuple(order[b] for b in blocks)) for content, blocks in snapshot.entries.items())
    return tuple(order[block] for block in named), tuple(order[block] for block in snapshot.free), entries
