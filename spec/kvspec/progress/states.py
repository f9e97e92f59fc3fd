"""Any state that a scheduler over counts may be in: what is known of it, and what must be so after an operation.

Requests are numbered by their order: running ones, then waiting ones. One group keeps all its slots, in blocks of one
token. So a request holds a block for each computed token, and after a load at most one more. Blocks of requests that
have ended and are still read by another node are one number: nothing depends on whose they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import frozen

from kvreference.geometry import Geometry, Group
from kvreference.population import Request, Status
from kvreference.scheduler.limits import Limits
from kvreference.scheduler.observation import Observation
from kvreference.scheduler.progress import is_held_up, is_stuck
from kvreference.scheduler.queues import Terms
from kvreference.scheduler.room import blocks_parked, blocks_to_run, is_room
from kvreference.scheduler.scheduler import Scheduler
from kvreference.settings import Settings
from kvspec.obligation import Count
from kvspec.progress.counted import Counted, CountedTable, counted_scheduler, least, length_of
from kvspec.symbolic import Condition

FRESH, PREEMPTED, LOADED, LOADING, RUNNING = range(5)
"""The states of a live request: never admitted, preempted, back from a load, loading, running."""
GEOMETRY = Geometry((Group("full", 1),))
SENT = 99
"""The number of the one that stands for all that have ended and are still read."""
REST = 98
"""The number of the one that stands for all other live requests that were admitted and do not run."""


def unknowns(requests: int) -> dict[str, Count]:
    """The unknowns of a state with that many live requests."""
    own = {
        name: count
        for n in range(requests)
        for name, count in (
            (f"place{n}", Count(0, RUNNING)),
            (f"tokens{n}", Count(1)),
            (f"computed{n}", Count(0)),
            (f"over{n}", Count(0, 1)),
            (f"limit{n}", Count(2)),
            (f"external{n}", Count(0)),
            (f"parks{n}", Count(0, 1)),
            (f"sends{n}", Count(0, 1)),
        )
    }
    limits = {name: Count(1) for name in ("blocks", "tokens_max", "chunk", "budget", "running_max")}
    return {**own, **limits, "sent": Count(0)}


def with_others(names: dict[str, Count]) -> dict[str, Count]:
    """The unknowns ``names``, and the locked blocks of any number of other live requests."""
    return {**names, "rest": Count(0)}


def of(u: Any, name: str, number: int) -> Any:
    """The unknowns of one request."""
    return getattr(u, f"{name}{number}")


def state(u: Any, requests: int, shows_sent: bool = True) -> Scheduler:
    """The scheduler in that state; with ``shows_sent`` it is passed whether a request that has ended is still read."""
    settings = Settings(GEOMETRY, u.blocks + 1, u.tokens_max, u.chunk, requests_max=requests + 2, caches=False)
    made = counted_scheduler(settings, Limits(u.budget, u.running_max))
    for number in range(requests):
        _put_in_line(made, u, number)
    if not shows_sent or u.sent > 0:
        _hold(made, SENT, u.sent)
    if shows_sent and u.sent > 0:
        made.manager.population.alive[SENT] = _request(SENT, 1, 0, Status.ENDING)
    if hasattr(u, "rest"):
        _hold(made, REST, u.rest)
    made.manager.population.arrived = SENT + 1
    return made


def _put_in_line(made: Scheduler, u: Any, number: int) -> None:
    place, computed = int(of(u, "place", number).__index__()), of(u, "computed", number)
    status = {RUNNING: Status.RUNNING, LOADING: Status.LOADING}.get(place, Status.WAITING)
    made.manager.population.alive[number] = _request(number, of(u, "tokens", number), computed, status)
    made.manager.prefixes[number] = []
    (made.queues.running if place == RUNNING else made.queues.waiting).append(number)
    external, parks = (of(u, "external", number), of(u, "parks", number)) if place == FRESH else (0, False)
    terms = Terms(of(u, "limit", number), external, parks, of(u, "sends", number), entered=place != FRESH)
    made.queues.terms[number] = terms
    if place in (LOADED, LOADING, RUNNING):
        _hold(made, number, computed + (of(u, "over", number) if place == LOADED else 0))


def _request(number: int, tokens: Any, computed: Any, status: Status) -> Request:
    counted: Any = Counted(tokens)
    keys: Any = None
    return Request(number, counted, keys, False, status=status, tokens_computed=computed)


def _hold(made: Scheduler, number: int, blocks: Any) -> None:
    tables: Any = made.manager.tables
    tables[number] = [CountedTable(blocks, 0)]
    pool: Any = made.manager.pool
    pool.blocks_free -= blocks


def is_possible(u: Any, requests: int, answers: bool = False) -> Condition:
    """Whether the numbers are those of a state: each request as it may stand, those that run before all others.

    Of the waiting requests, those admitted before stand before those that never were. Before ``answers`` are given, any
    of those that run may have computed all their tokens.
    """
    possible: Condition = True
    for n in range(requests):
        place, tokens, computed = of(u, "place", n), of(u, "tokens", n), of(u, "computed", n)
        stands = (
            ((place == FRESH) & (computed == 0))
            | ((place == PREEMPTED) & (computed == 0))
            | ((place == LOADED) & (computed < tokens))
            | ((place == LOADING) & (computed >= 1) & (computed <= tokens))
            | ((place == RUNNING) & (computed <= tokens - (0 if answers else 1)))
        )
        possible = possible & stands & (tokens < of(u, "limit", n)) & (of(u, "limit", n) <= u.tokens_max)
        if n > 0:
            before = of(u, "place", n - 1)
            possible = possible & ((place != RUNNING) | (before == RUNNING)) & ((before != FRESH) | (place == FRESH))
    return possible


def is_sound(made: Scheduler) -> Condition:
    """The invariant: the blocks add up, each request holds what it computed, and there is room.

    Of the waiting requests, those admitted before stand before those that never were."""
    settings, terms, alive = made.settings, made.queues.terms, made.manager.population.alive
    blocks = {number: sum(table.live().number for table in tables) for number, tables in _tables(made)}
    free: Any = made.manager.pool.free
    entered = [terms[number].entered for number in made.queues.waiting]
    sound: Condition = entered == sorted(entered, reverse=True)
    sound = sound & (free.number >= 0) & (free.number + sum(blocks.values()) == settings.blocks - 1)
    for number, its in terms.items():
        sound = sound & _stands(alive[number], its, blocks.get(number)) & (its.limit_tokens <= settings.blocks)
    parked = blocks_parked(made.manager.tables, made.queues.running)
    parked = {n: held for n, held in parked.items() if n in terms or n == REST}
    for number in terms:
        if terms[number].entered:
            needed = {number: blocks_to_run(settings, terms[number].limit_tokens - 1)}
            sound = sound & is_room(settings.blocks - 1, needed, parked)
    return sound


def _tables(made: Scheduler) -> Iterator[tuple[int, Any]]:
    yield from made.manager.tables.items()


def _stands(request: Request, terms: Terms, held: Any) -> Any:
    """Whether one request holds what it should, where it stands."""
    tokens: Any = request.tokens
    computed = request.tokens_computed
    stands: Any = tokens.number < terms.limit_tokens
    if held is None:
        return stands & (computed == 0) & (request.status is Status.WAITING)
    stands = stands & (terms.entered and not terms.parks)
    if request.status is Status.WAITING:
        return stands & (computed < tokens.number) & (computed <= held) & (held <= computed + 1)
    return stands & (computed == held) & (held >= 1) & (computed <= tokens.number)


@frozen
class Before:
    """The facts about a state after a step."""

    transfers: list[int]
    running: list[int]
    ahead: dict[int, set[int]]
    """Per live request, the requests that it may have to wait for."""
    tokens: dict[int, tuple[Any, Any]]
    """Per live request, how many tokens it has, and how many are computed."""

    @classmethod
    def of(cls, made: Scheduler) -> Before:
        """The facts about ``made``."""
        alive = made.manager.population.alive
        return cls(
            made.transfers(),
            list(made.queues.running),
            {number: set(made.queues.ahead_of(number)) for number in made.queues.terms},
            {number: (length_of(alive[number].tokens), alive[number].tokens_computed) for number in made.queues.terms},
        )

    @property
    def first(self) -> int | None:
        """The first live request that waits for no transfer."""
        line = sorted(self.ahead, key=lambda number: len(self.ahead[number]))
        return next((number for number in line if number not in self.transfers), None)


def passes_no_request(before: Before, after: Scheduler) -> bool:
    """Whether no request was passed, but those that load now or did before."""
    loading = {*before.transfers, *after.transfers()}
    return all(
        set(after.queues.ahead_of(number)) <= before.ahead[number]
        for number in after.queues.terms
        if number in before.ahead and number not in loading
    )


def brings_on(before: Before, after: Scheduler, observation: Observation) -> Condition:
    """Whether a step that was not held up advanced the first request, and passed or set back no other.

    The first is the first that waits for no transfer. It is over, or was answered, or began its load, or computed as
    many tokens as it may. So the step took one off every request's bound (``kvspec.proofs.scheduler_ranking``).
    A step that is held up begins no transfer, and the first that runs loses nothing by it. No load holds up a request
    that was admitted before; only a request that has ended and is still read does.
    """
    if is_stuck(after, observation) or not passes_no_request(before, after):
        return False
    first = before.first
    if is_held_up(after, observation):
        kept = before.running[:1] == after.queues.running[:1] and set(after.transfers()) <= set(before.transfers)
        return kept and (SENT in before.transfers or first is None or not after.queues.terms[first].entered)
    if first is None or first not in after.queues.terms or first in after.transfers():
        return True
    (had, was), request = before.tokens[first], after.manager.population[first]
    has = length_of(request.tokens)
    chunk = least(after.settings.chunk_tokens, after.limits.budget_tokens, had - was)
    answered: Condition = (has > had) & (request.tokens_computed == has - 1)
    computed: Condition = (has == had) & (was + chunk <= request.tokens_computed)
    return (answered | computed) & (after.queues.running[:1] == [first])
