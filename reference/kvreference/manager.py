"""The hybrid block manager: what every operation of the alphabet does, and what it answers.

``apply`` takes a legal operation and returns the answer; ``step`` does the same without touching the state it was
given. The holders of blocks are in ``kvreference.holdings``, what is cached in ``kvreference.prefix_cache``, and where
the requests stand in ``kvreference.population``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from attrs import evolve

from kvreference.admission import blocks_said_free
from kvreference.ahead import PopulationAhead, is_fenced, tokens_answered, tokens_unsure
from kvreference.answers import Answer, Copies, Copy, Done, Granted, Happened, Hit, Refused, Shared, Statistics, Success
from kvreference.block_pool import BlockPool
from kvreference.cached_map import Content
from kvreference.choices import Choices
from kvreference.content import Prefix, Prefixes
from kvreference.events import Cleared, Event, Removed
from kvreference.geometry import Group
from kvreference.holdings import Allocation, Span
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    CommonPrefix,
    Continue,
    Dispatch,
    Evict,
    Finish,
    LookUp,
    Operation,
    Pause,
    Preempt,
    ReleaseSkipped,
    Reset,
    Rewind,
    Sample,
    Schedule,
    TakeEvents,
    TakeStatistics,
    Transferred,
)
from kvreference.population import Population, Request, Status, holds_on
from kvreference.prefix_cache import no_hit
from kvreference.rules import OWN_RULES, Rules
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot
from kvreference.tables import Tables, content_up_to

OWN = Choices()
"""The reference's own choices."""


def tokens_computed(end: int, tokens: int) -> int:
    """How many of a request's ``tokens`` tokens are computed when it is admitted with the first ``end`` at hand.

    The last token is computed even if it arrives, so what it reads is not released.
    """
    return min(end, tokens - 1)


def tokens_counted(request: int, computed: int, beyond: int) -> int:
    """Of ``beyond`` drafts that hold, and come after the end of a request, how many count as computed: none.

    ``computed`` tokens come before them.
    """
    del request, computed, beyond
    return 0


class Manager:
    """The reference of the block manager, with the requests it serves.

    ``choices`` are what a release may decide otherwise by design, and ``choices.rules`` what a known finding changes:
    the reference itself has neither. So ``rules.ask(function, …)`` is to be read as ``function(…)``.
    """

    def __init__(self, settings: Settings, choices: Choices = OWN) -> None:
        self.settings = settings
        self.choices = choices
        self.geometry = settings.geometry
        self.population = population_of(settings, choices.rules)
        self.holdings = choices.holdings(settings, choices.rules)
        self.cache = choices.cache(settings, choices.rules)
        self._interned = Prefixes(self.geometry.grain_tokens, choices.rules, self.geometry.hashed_ahead_tokens)
        self.prefixes: dict[int, list[Prefix]] = {}
        """Per request alive, its prefixes at every whole grain."""
        self._events: list[Event] = []
        self.performed = 0
        """How many operations were performed."""

    def copy(self) -> Manager:
        """An independent manager in the same state. Content identities are shared: they are immutable."""
        other = type(self).__new__(type(self))
        other.settings = self.settings
        other.choices = self.choices
        other.geometry = self.geometry
        other.population = self.population.copy()
        other.holdings = self.holdings.copy()
        other.cache = self.cache.copy()
        other._interned = self._interned
        other.prefixes = {number: list(prefixes) for number, prefixes in self.prefixes.items()}
        other._events = list(self._events)
        other.performed = self.performed
        return other

    @property
    def pool(self) -> BlockPool:
        """Who holds which block, and which are free."""
        return self.holdings.pool

    @property
    def tables(self) -> dict[int, Tables]:
        """Per request that holds blocks, its table in every group."""
        return self.holdings.tables

    @property
    def copies(self) -> list[Copy]:
        """What the worker copies before it computes the next step."""
        return self.holdings.copies

    def apply(self, operation: Operation) -> Answer:
        """Perform a legal operation (see ``Population.resolve``), in place."""
        answer = self.choices.perform(self, operation)
        self.performed += 1
        return answer

    def perform(self, operation: Operation) -> Answer:
        """Only the operation, as the reference performs it."""
        if isinstance(operation, Sample) and operation.beyond:
            number, computed = operation.request, len(self.population[operation.request].tokens) + operation.accepted
            beyond = self.choices.rules.ask(tokens_counted, number, computed, operation.beyond)
            operation = evolve(operation, beyond=beyond)
        if isinstance(operation, Rewind):
            tables = self.tables[operation.request]
            if self.choices.rules.ask(lacks_blocks, self.geometry.groups, tables, operation.tokens):
                return self._start_anew(operation)
        answer = _PERFORM[type(operation)](self, operation)
        self.population.settle(operation, answer)
        if isinstance(operation, (Arrive, Sample, Continue)):
            request = self.population[operation.request]
            prefixes = self.prefixes.setdefault(request.number, [])
            if isinstance(operation, Continue):
                # Another token takes the place of the last answer: what depends on that goes, too.
                sure = request.tokens_computed - self.geometry.hashed_ahead_tokens
                del prefixes[self.choices.rules.ask(prefixes_kept, prefixes, sure) :]
            self._interned.extend(prefixes, request.tokens, request.keys)
            is_there = request.number in self.tables and request.status is not Status.LOADING
            if isinstance(operation, Sample) and self._caches_answers and is_there:
                # Blocks that were computed before their tokens were known become known now. The last token is cached
                # with its step.
                self._register(request, self.choices.rules.ask(tokens_answered, request), None)
        elif isinstance(operation, (Finish, Abort, Transferred)) and operation.request not in self.population.alive:
            del self.prefixes[operation.request]
        return answer

    @property
    def _caches_answers(self) -> bool:
        """Whether tokens are cached with an answer: always where steps are ahead of answers."""
        drafts = self.choices.caches_answers and self.settings.drafts_max > 0
        return drafts or self.settings.steps_in_flight_max > 1

    def content(self, request: int, group: int, index: int) -> Content:
        """The content of the block at ``index`` of a request's table once it is full."""
        end_tokens = (index + 1) * self.geometry.groups[group].block_size_tokens
        return content_up_to(self.geometry, group, self.prefixes[request], end_tokens)

    # Queries

    def _look_up(self, operation: LookUp) -> Hit:
        return self._hit(self.population[operation.request])

    def _hit(self, request: Request) -> Hit:
        return self.cache.look_up(self.pool, request, self.prefixes[request.number])

    def _common_prefix(self, operation: CommonPrefix) -> Shared:
        return Shared(self.cache.shared(self.holdings.leading_shared(operation.request)))

    # Allocation

    def _admit(self, operation: Admit) -> Granted | Refused:
        """Admit a waiting request after its hit and what another node provides, or after what it has loaded."""
        request = self.population[operation.request]
        if request.tokens_computed > 0:
            # A request that has computed tokens may draft in its next step; others draft nothing in their first.
            return self._admit_with_hit(
                request, operation.tokens, no_hit(self.geometry), 0, False, self.settings.lookahead_tokens
            )
        hit = self._hit(request)
        # The last token is computed here: now, or again after the load, unless its state could not be taken back.
        left = 0 if operation.loads and not self.geometry.keeps_states else 1
        provided = min(operation.external_tokens, len(request.tokens) - hit.tokens - left)
        loads = operation.loads and provided > 0
        lookahead = self.settings.lookahead_tokens if self.choices.lookahead_when_admitted and not loads else 0
        return self._admit_with_hit(request, operation.tokens, hit, provided, loads, lookahead)

    def _admit_with_hit(
        self, request: Request, budget_tokens: int, hit: Hit, provided: int, later: bool, lookahead_tokens: int
    ) -> Granted | Refused:
        end = request.tokens_computed + hit.tokens + provided
        computed = self.choices.rules.ask(tokens_computed, end, len(request.tokens))
        tokens = end - computed if later else self.population.tokens_from(request, computed, budget_tokens)
        ready = self.cache.is_ready(hit, self.prefixes[request.number])
        if self.settings.full_sequence_must_fit and not (ready and self._fits(request, hit, computed)):
            return Refused(hit.tokens, gate=True)
        reserved = self.choices.blocks_reserved.get(self.performed, 0)
        span = Span(computed, tokens, lookahead_tokens, end if provided else 0, reserved)
        allocation = self._allocate(request.number, span, hit) if ready else None
        if allocation is None:
            return Refused(hit.tokens, gate=False)
        self._lose(allocation)
        if not later:
            self._register(request, computed + tokens, computed)
        return Granted(hit.tokens, allocation.entries, provided, later)

    def _fits(self, request: Request, hit: Hit, computed: int) -> bool:
        return self.holdings.passes_gate(request.number, len(request.tokens), hit, computed)

    def _schedule(self, operation: Schedule) -> Granted | Refused:
        request = self.population[operation.request]
        tokens = self.population.tokens_to_schedule(request, operation.tokens)
        span = Span(request.tokens_computed, tokens, self.settings.lookahead_tokens, unsure=self._unsure(request))
        allocation = self._allocate(request.number, span, no_hit(self.geometry))
        if allocation is None:
            return Refused(0, gate=False)
        self._lose(allocation)
        self._register(request, request.tokens_computed + tokens, request.tokens_computed)
        return Granted(0, allocation.entries)

    def _allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
        return self.holdings.allocate(request, span, hit)

    def _lose(self, allocation: Allocation) -> None:
        self._events += [Removed(content) for content in allocation.lost]

    def _register(self, request: Request, tokens: int, begun: int | None) -> None:
        """Cache what the first ``tokens`` tokens make due; a step computes those after ``begun``, if it is one."""
        prefixes, tables = self.prefixes[request.number], self.tables[request.number]
        self._events += self.cache.register(self.pool, request, prefixes, tables, tokens, begun)

    def _dispatch(self, _operation: Dispatch) -> Copies:
        self.cache.dispatched()
        return Copies(self.holdings.dispatch())

    # Release

    def _release_skipped(self, operation: ReleaseSkipped) -> Done:
        self._leave(self.population[operation.request])
        return Done()

    def _leave(self, request: Request) -> None:
        """Release what no later token of a request reads."""
        self.holdings.release_passed(request.number, request.tokens_computed, self._unsure(request))

    def _unsure(self, request: Request) -> int:
        return self.choices.rules.ask(tokens_unsure, request, self.settings.loads_out_of_turn)

    def _preempt(self, operation: Preempt) -> Done:
        self._free(operation.request)
        return Done()

    def _free(self, request: int) -> None:
        """Free all that a request holds: when the steps in flight are over, if another node could write it before."""
        population = self.population
        if self.settings.loads_out_of_turn and self.choices.rules.ask(is_fenced, population[request]):
            self.holdings.defer(request, population.dispatched)
        else:
            self.holdings.release_all(request)

    def returned(self, requests: Collection[int]) -> None:
        """The oldest step in flight is over, which computed these requests."""
        self.population.returned(requests)
        self.holdings.steps_over(self.population.over)

    def _end(self, operation: Finish | Abort) -> Done:
        request = self.population[operation.request]
        if not holds_on(request, operation):
            self._free(request.number)
        elif request.status is Status.RUNNING:
            # Another node reads what the request's own next token would read, and no more.
            self._leave(request)
        return Done()

    def _transferred(self, operation: Transferred) -> Done:
        """What a load brought is cached; if that is nothing, or the request has ended, its blocks are freed."""
        request = self.population[operation.request]
        if request.status is Status.LOADING and operation.succeeded and request.tokens_computed > 0:
            self._register(request, request.tokens_computed, None)
        else:
            self._free(operation.request)
        return Done()

    def _rewind(self, operation: Rewind) -> Done:
        """Forget what is cached of what is not valid: it is cached again when it is computed."""
        self._events += map(Removed, self._forget_after(operation.request, operation.tokens))
        return Done()

    def _start_anew(self, operation: Rewind) -> Answer:
        """Of a request that cannot continue in its blocks nothing counts: it frees them, at once or after its load."""
        self._rewind(operation)
        self.population.settle(evolve(operation, tokens=0), Done())
        runs = self.population[operation.request].status is Status.RUNNING
        return self.perform(Preempt(operation.request)) if runs else Done()

    def _forget_after(self, request: int, tokens: int) -> list[Content]:
        """What was cached of a request after its first ``tokens`` tokens."""
        lost: list[Content] = []
        for group, table in zip(self.geometry.groups, self.tables[request], strict=True):
            valid = tokens // group.block_size_tokens
            first = self.choices.rules.ask(blocks_still_valid, valid, len(table.blocks))
            table.registered = min(table.registered, first)
            lost += [content for block in table.blocks[first:] for content in self.pool.evict(block)]
        return lost

    def _evict(self, operation: Evict) -> Done:
        self._events += map(Removed, self.pool.evict(operation.block))
        return Done()

    def _reset(self, _operation: Reset) -> Success:
        succeeded = self.pool.reset()
        if succeeded:
            self.cache.statistics = evolve(self.cache.statistics, reset=True)
            self._events.append(Cleared())
        return Success(succeeded)

    # Reports to the outside

    def _take_events(self, _operation: TakeEvents) -> Happened:
        events, self._events = self._events, []
        return Happened(tuple(events) if self.settings.tells_events else ())

    def _take_statistics(self, _operation: TakeStatistics) -> Statistics:
        statistics, self.cache.statistics = self.cache.statistics, Statistics()
        return statistics

    def snapshot(self) -> Snapshot:
        """The state, as far as it can be observed from outside."""
        return Snapshot(
            tables={
                number: [list(table.blocks) for table in tables] for number, tables in self.tables.items() if tables
            },
            references=list(self.pool.references),
            free=list(self.pool.free),
            blocks_free=self.choices.rules.ask(blocks_said_free, self.pool),
            contents=self.pool.cached.contents(),
            read_entries=self.pool.cached.entries,
            pinned=self.pool.pinned_blocks(),
            copies=tuple(self.copies),
            freed_late=[[block for table in tables for block in table.live()] for _, tables in self.holdings.deferred],
            begun=self.pool.partial.blocks(),
            scratch_first=self.settings.scratch_first and self.choices.promises_scratch_first,
        )


def population_of(settings: Settings, rules: Rules = OWN_RULES) -> Population:
    """The requests of a system, of which there are none yet."""
    return (PopulationAhead if settings.steps_in_flight_max > 1 else Population)(settings, rules)


def prefixes_kept(prefixes: Sequence[Prefix], computed: int) -> int:
    """How many of a session's prefixes stay: those of computed tokens, and not those that end with its last answer."""
    return sum(prefix.tokens <= computed for prefix in prefixes)


def blocks_still_valid(valid: int, blocks: int) -> int:
    """Of a table of so many blocks, of which a failed load left the first ``valid``, how many may stay cached."""
    return min(valid, blocks)


def lacks_blocks(groups: Sequence[Group], tables: Tables, tokens: int) -> bool:
    """Whether, in some group, a request has released a block that the token after its first ``tokens`` reads."""
    return any(table.dead > group.blocks_unread(tokens) for group, table in zip(groups, tables, strict=True))


def _nothing(_manager: Manager, _operation: Operation) -> Done:
    return Done()


_PERFORM: dict[type, Callable[[Manager, Any], Answer]] = {
    Arrive: _nothing,
    LookUp: Manager._look_up,
    Admit: Manager._admit,
    Schedule: Manager._schedule,
    Sample: _nothing,
    Preempt: Manager._preempt,
    Finish: Manager._end,
    Abort: Manager._end,
    Transferred: Manager._transferred,
    Rewind: Manager._rewind,
    Pause: _nothing,
    Continue: _nothing,
    ReleaseSkipped: Manager._release_skipped,
    CommonPrefix: Manager._common_prefix,
    Evict: Manager._evict,
    Dispatch: Manager._dispatch,
    Reset: Manager._reset,
    TakeEvents: Manager._take_events,
    TakeStatistics: Manager._take_statistics,
}


def step(manager: Manager, operation: Operation) -> tuple[Manager, Answer]:
    """The state after a legal operation, and the answer. The given state stays as it is."""
    after = manager.copy()
    return after, after.apply(operation)
