"""Chapters 01, 03 and 05: what the running manager answers without changing a block, and what it counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import validators

from kvreference import holdings, population, prefix_cache
from kvreference import manager as manager_module
from kvreference.answers import Granted, Hit, Partial, Refused, Statistics
from kvreference.attention import Kind
from kvreference.choices import Choices
from kvreference.holdings import Allocation, Holdings, Span
from kvreference.mamba import StateMode
from kvreference.manager import Manager
from kvreference.operations import Abort, Admit, CommonPrefix, Dispatch, Finish, LookUp, Schedule, TakeStatistics
from kvreference.population import Population, Request, Status
from kvreference.prefix_cache import PrefixCache, junction_of
from kvreference.retention import junction
from kvreference.rules import OWN_RULES
from kvspec.obligation import Count, Obligation, only
from kvspec.progress.counted import least, most
from kvspec.proofs.running_pool import books, holdings_over, manager_over
from kvspec.proofs.running_requests import BOOKS, CHUNK, NO_STATES, Tokens, request_of
from kvspec.proofs.running_tables import HOLDINGS, OWNER, Entries, on_lengths
from kvspec.sequences import Parts, Stretch, numbered
from kvspec.stand_in import any_geometry, group
from kvspec.symbolic import either, negated

CACHE = "kvreference.prefix_cache:PrefixCache"


def cache_over(geometry: Any) -> Any:
    """A prefix cache without a pool."""
    made: Any = object.__new__(PrefixCache)
    made.geometry, made.rules, made.partial_hit_tokens_min = geometry, OWN_RULES, 0
    made.statistics, made.junction_of, made.fenced = Statistics(), junction_of, set()
    return made


def _looks_up(u: Any) -> Any:
    cache = cache_over(any_geometry(alignment_tokens=u.alignment))
    cache.statistics = Statistics(u.requests, u.queries, u.hits, u.again, u.again_queries, u.again_hits)
    reads = bool(u.reads == 1)
    request = SimpleNamespace(
        number=OWNER, tokens=Tokens(u.tokens), reads_cache=reads, preemptions=u.preemptions, junction_tokens=0
    )
    maps: Any = SimpleNamespace(cached=object(), partial=object())
    manager = manager_over(SimpleNamespace(pool=maps))
    cache.partial_hit_tokens_min, prefixes = object(), list[Any]()
    manager.cache, manager.population, manager.prefixes = cache, {OWNER: request}, {OWNER: prefixes}
    asked: list[Any] = []

    def found(*arguments: Any) -> Hit:
        asked.append(arguments)
        return Hit(u.hit, ())

    def known(its: Any, cached: Any, of_request: Any) -> Any:
        for what, of_this in ((its, cache.geometry), (cached, maps.cached), (of_request, prefixes)):
            assert what is of_this, "of the whole request, in all that is cached"
        return u.known

    with (
        patch.object(prefix_cache, "longest_hit", found),
        patch.object(prefix_cache, "tokens_known", known),
        on_lengths(prefix_cache),
    ):
        hit = manager._look_up(LookUp(OWNER))
    counts = manager._take_statistics(TakeStatistics())
    first = either(u.preemptions == 0, 1, 0) if reads else 0
    later = either(u.preemptions == 0, 0, 1) if reads else 0
    fine = (counts.requests == u.requests + first) & (counts.preempted_requests == u.again + later)
    for was, now, more in (
        (u.queries, counts.queries_tokens, first * u.tokens if reads else 0),
        (u.hits, counts.hits_tokens, first * u.hit if reads else 0),
        (u.again_queries, counts.preempted_queries_tokens, later * u.tokens if reads else 0),
        (u.again_hits, counts.preempted_hits_tokens, later * u.hit if reads else 0),
    ):
        fine = fine & (now == was + more)
    parts = junction(cache.geometry, u.known, u.tokens - 1, u.hit) if reads else 0
    fine = fine & (hit.tokens == (u.hit if reads else 0)) & (request.junction_tokens == parts)
    fine = fine & (len(asked) == (1 if reads else 0))
    for its, cached, of_request, tokens, partial, shortest, rules, readable in asked:
        everything = its is cache.geometry and cached is maps.cached and partial is maps.partial
        everything = everything and of_request is prefixes and shortest is cache.partial_hit_tokens_min
        fine = fine & (everything and rules is OWN_RULES) & (tokens == u.tokens) & (readable == u.tokens)
    return fine & (cache.statistics == Statistics())


LOOKS_UP = Obligation(
    id="hit-lookup.running-look-up-is-counted",
    statements=("KV-OP-01", "KV-OP-13", "KV-OP-27"),
    title="A look-up that may read the cache asks for the longest hit of all tokens of its request in all that is "
    "cached. It is counted once, with its tokens and those of its hit, apart if its request was preempted, and its "
    "request has the junction of this look-up. Another one finds nothing and is not counted. Taken statistics begin "
    "anew.",
    unknowns={
        **{name: Count(0) for name in ("requests", "queries", "hits", "again", "again_queries", "again_hits")},
        "tokens": Count(1),
        "hit": Count(0),
        "known": Count(0),
        "alignment": Count(1),
        "preemptions": Count(0),
        "reads": Count(0, 1),
    },
    assumes=lambda u: u.hit < u.tokens,
    claim=_looks_up,
    witnesses={
        "a hit of a preempted one": lambda u: (u.reads == 1) & (u.preemptions == 2) & (u.hit == 8) & (u.tokens == 12),
        "it may not read": lambda u: (u.reads == 0) & (u.tokens == 12),
    },
    mutants=(
        only(
            "preempted-ones-count-as-others",
            "A look-up of a preempted request is counted with the others.",
            "kvreference.answers:Statistics.counted",
            lambda self, queries, hits, preempted: Statistics(
                self.requests + 1,
                self.queries_tokens + queries,
                self.hits_tokens + hits,
                self.preempted_requests,
                self.preempted_queries_tokens,
                self.preempted_hits_tokens,
            ),
        ),
        only(
            "the-last-token-may-match",
            "A look-up asks as if its request had a token more.",
            f"{CACHE}.tokens_readable",
            lambda self, tokens: tokens + 1,
        ),
    ),
)


def _blocks_of(leading: Any, rest: Any, lacks: bool) -> list[Any]:
    """The blocks of each request in one group: leading ones that all hold, one that another lacks, and any after it.

    The first request is the one that asks, and the third decides. Before and after it stand others, which have
    everything.
    """
    shared, lacked, others = Stretch(leading), object(), Stretch(rest)
    own = Parts([shared, lacked, others] if lacks else [shared])
    # Where those that follow stand in other tables makes no difference.
    everything, less = Parts([others, lacked, shared]), Parts([shared, others])
    return [own, everything, less if lacks else everything, everything]


def _shares(u: Any) -> Any:
    """Of any number of groups two, or one: the first is of full attention, and the second may be."""
    window, places = bool(u.window == 1), (u.first, u.second) if u.second < u.groups else (u.first,)
    kinds = group(Kind.FULL, 4), group(Kind.SLIDING_WINDOW, 4, 8) if window else group(Kind.FULL, 4)
    groups: Any = _entries(u.groups, places, kinds)
    geometry = SimpleNamespace(groups=groups)
    held = holdings_over(SimpleNamespace(pool=SimpleNamespace(references=_NoCounts())), geometry)
    in_groups = [
        _blocks_of(u.leading, u.rest, bool(u.parts == 1)),
        _blocks_of(u.second_leading, u.second_rest, bool(u.second_parts == 1)),
    ]
    held.tables = {
        number: _entries(u.groups, places, [SimpleNamespace(blocks=blocks) for blocks in tables])
        for number, tables in enumerate(zip(*in_groups, strict=True), OWNER)
    }
    manager = manager_over(held)
    manager.cache = cache_over(geometry)
    own = iter(in_groups)

    def placed(values: Any) -> Iterator[Any]:
        """Whether a block is held, by its place in the next group."""
        yield from zip((place for place, _ in numbered(next(own)[0])), values, strict=True)

    with on_lengths(holdings), patch.object(holdings, "enumerate", placed, create=True):
        shared = manager._common_prefix(CommonPrefix(OWNER)).blocks
    if len(shared) != len(places):
        return False
    fine: Any = True
    for one, other in zip(shared, (u.leading, 0 if window else u.second_leading), strict=False):
        fine = fine & (one == other)
    return fine


def _entries(count: Any, places: Sequence[Any], values: Sequence[Any]) -> Any:
    """Of so many, those at these places."""
    return Entries(count, {str(number): each for number, each in enumerate(zip(places, values, strict=False))})


class _NoCounts:
    """The references to each block, which are not asked for."""

    def __getitem__(self, _block: Any) -> int:
        return 0


_leading_shared = Holdings.leading_shared
"""What it does, where nothing is broken."""


def _with(held: Holdings, groups: Any, tables: Mapping[int, Any]) -> Any:
    """The same with other groups and tables."""
    return SimpleNamespace(groups=groups, tables=tables, pool=held.pool, rules=held.rules)


SHARES = Obligation(
    id="blocks-and-references.running-common-prefix",
    statements=("KV-OP-14",),
    title="In a model of any number of groups, the common prefix in each group of full attention is as many leading "
    "blocks of a request as each other request with blocks names there, too, in tables of any length; in a group with "
    "a window it is none.",
    unknowns={
        **{name: Count(0) for name in ("leading", "rest", "second_leading", "second_rest", "first", "second")},
        **{name: Count(0, 1) for name in ("parts", "second_parts", "window")},
        "groups": Count(1),
    },
    assumes=lambda u: (u.first < u.second) & (u.first < u.groups),
    claim=_shares,
    witnesses={
        "many are shared": lambda u: (u.leading == 70) & (u.rest == 5) & (u.parts == 1),
        "groups share different numbers": lambda u: (
            (u.groups == 9)
            & (u.leading == 70)
            & (u.second_leading == 3)
            & (u.second_parts == 1)
            & (u.window == 0)
            & (u.second == 8)
        ),
    },
    mutants=(
        only(
            "counted-across-a-gap",
            "Shared blocks after one that is not shared count.",
            f"{HOLDINGS}.leading_shared",
            lambda self, request: [
                Parts(block for block in own.blocks if all(block in set(other.blocks) for other in others)).length
                if its.keeps_all
                else 0
                for its, own, *others in zip(self.groups, self.tables[request], *self.tables.values(), strict=True)
            ],
        ),
        only(
            "the-first-group-for-all",
            "What is shared in the first group counts in each of full attention.",
            f"{HOLDINGS}.leading_shared",
            lambda self, request: [_leading_shared(self, request)[0] if each.keeps_all else 0 for each in self.groups],
        ),
        only(
            "other-tables-of-the-first-group",
            "In each group the blocks of others are those of the first group.",
            f"{HOLDINGS}.leading_shared",
            lambda self, request: _leading_shared(
                _with(
                    self,
                    self.groups,
                    {
                        number: its if number == request else [next(iter(its)) for _ in self.groups]
                        for number, its in self.tables.items()
                    },
                ),
                request,
            ),
        ),
        only(
            "the-first-two-groups-alone",
            "No group after the first two is asked.",
            f"{HOLDINGS}.leading_shared",
            lambda self, request: _leading_shared(
                _with(self, self.groups[:2], {number: its[:2] for number, its in self.tables.items()}), request
            ),
        ),
        only(
            "windows-share",
            "What is shared in a group with a window counts.",
            "kvreference.geometry:Group.keeps_all",
            True,
        ),
        only(
            "one-other-is-asked",
            "Only one of the other requests is asked.",
            "kvreference.holdings:is_held_by_all",
            lambda block, others, references: all(block in other for other in others[:2]),
        ),
    ),
)


def _caches(u: Any) -> Any:
    asked: list[Any] = []

    def registered(_pool: Any, _geometry: Any, _retention: Any, *others: Any) -> tuple[list[Any], list[Any]]:
        asked.append(others[3])
        return [], ["a state"]

    cache = cache_over(None)
    cache.retention = SimpleNamespace(at_junction=lambda junction_tokens: junction_tokens)
    loads = bool(u.loads == 1)
    status = Status.LOADING if loads else Status.RUNNING
    request = SimpleNamespace(tokens=Tokens(u.tokens), junction_tokens=0, status=status)
    begun = u.till if u.steps == 1 else None
    with patch.object(prefix_cache, "register", registered), on_lengths(prefix_cache):
        cache.register(None, request, [], [], u.till, begun)
    fenced = cache.fenced == {"a state"}
    verified = (asked[0] <= u.till) & (asked[0] <= u.tokens) & ((asked[0] == u.till) | (asked[0] == u.tokens))
    return verified & (fenced == (begun is not None and not loads)) & (len(asked) == 1)


CACHES = Obligation(
    id="content-and-cached-map.running-caches-what-is-verified",
    statements=("KV-OP-08", "KV-OP-20", "KV-MEM-01"),
    title="Of what a step computes only the request's own tokens are cached, and no draft; what it has yet to compute "
    "serves no hit before it is dispatched, and what was loaded does.",
    unknowns={"tokens": Count(1), "till": Count(0), "steps": Count(0, 1), "loads": Count(0, 1)},
    claim=_caches,
    witnesses={"drafts after its tokens": lambda u: (u.till == u.tokens + 3) & (u.steps == 1) & (u.loads == 0)},
    mutants=(
        only(
            "nothing-is-fenced",
            "What a step has yet to compute serves hits.",
            "kvreference.prefix_cache:yet_to_compute",
            lambda cached, computes, loaded: [],
        ),
    ),
)


class _Fenced:
    """What cannot serve yet: one content, which is looked at."""

    def __init__(self, group: int, grains: Any) -> None:
        self.content = group, grains

    def __contains__(self, content: Any) -> bool:
        return bool((content[0] == self.content[0]) & (content[1] == self.content[1]))

    def clear(self) -> None:
        """From now on all content serves."""
        self.content = -1, 0


class _Ends:
    """The prefixes of a request: each is known by its length, in whole grains."""

    def __getitem__(self, place: Any) -> Any:
        return place + 1


def _is_ready(u: Any) -> Any:
    """One of three groups is looked at; in the others everything serves."""
    which, states, copied = u.which.__index__(), bool(u.states == 1), bool(u.copied == 1)
    mode = StateMode.ALIGN if u.aligned == 1 else StateMode.ALL
    its = (
        group(Kind.MAMBA, u.block, states=mode)
        if states
        else group(Kind.FULL, u.block, unit_tokens=u.unit, lookahead=bool(u.drafts == 1))
    )
    groups = [group(Kind.FULL, u.block) for _ in range(3)]
    groups[which] = its
    cache = cache_over(SimpleNamespace(groups=groups, grain_tokens=u.grain))
    cache.fenced = _Fenced(which, u.fenced)
    hit = Hit(u.hit, (), (Partial(which, 7, 1),) if copied else ())
    prefixes: Any = _Ends()
    ready = cache.is_ready(hit, prefixes)
    manager = manager_over(SimpleNamespace(dispatch=lambda: ()))
    manager.cache = cache
    manager._dispatch(Dispatch())
    end = u.hit if states or u.drafts == 0 else u.hit + u.unit
    fenced = (u.hit > 0) & ((u.states == 1) | (u.copied == 1)) & (u.fenced == end // u.grain)
    return (negated(fenced) == ready) & cache.is_ready(hit, prefixes)


READY = Obligation(
    id="hit-lookup.running-hit-is-ready",
    statements=("KV-OP-20", "KV-MEM-01"),
    title="A hit may serve unless it reads a state, or copies a beginning of a block, that the step which is scheduled "
    "has yet to compute: of each group that is asked for by the content that the hit, with its look-ahead, ends with "
    "there. Once the step is dispatched, it may.",
    unknowns={
        **{name: Count(0, 1) for name in ("states", "aligned", "copied", "drafts")},
        "which": Count(0, 2),
        **{name: Count(1) for name in ("block", "unit", "grain")},
        **{name: Count(0) for name in ("hit", "fenced")},
    },
    claim=_is_ready,
    witnesses={
        "only its look-ahead is yet to be computed": lambda u: (
            (u.copied == 1) & (u.drafts == 1) & (u.unit == 4) & (u.hit == 8) & (u.grain == 4) & (u.fenced == 3)
        ),
        "a state of this step": lambda u: (u.states == 1) & (u.hit == 8) & (u.grain == 4) & (u.fenced == 2),
        "a copy of another": lambda u: (u.copied == 1) & (u.hit == 8) & (u.grain == 4) & (u.fenced == 1),
    },
    mutants=(
        only(
            "states-are-ready",
            "A state serves a hit in the step that computes it.",
            "kvreference.geometry:Group.keeps_states",
            False,
        ),
        only(
            "all-are-ready",
            "A copy is made in the step that computes its source.",
            f"{CACHE}.is_ready",
            lambda self, hit, prefixes: not (hit.tokens > 0 and self.geometry.groups[0].keeps_states),
        ),
        only(
            "never-ready-again",
            "A content that was computed once never serves by a state.",
            f"{CACHE}.dispatched",
            lambda self: None,
        ),
    ),
)


def _is_refused(u: Any) -> Any:
    """A request whose hit is not ready asks to be admitted; whether all of it would fit is not even asked."""
    request = request_of(u, Status.WAITING, drafts=Tokens(0))
    its = books(Population, chunk_tokens=u.chunk, tokens_max=u.longest, geometry=NO_STATES)
    its.alive = {request.number: request}
    manager = manager_over(SimpleNamespace(pool=None))
    manager.population, manager.prefixes, manager.performed = its, {request.number: []}, 0
    manager.geometry = SimpleNamespace(groups=(), keeps_states=False)
    manager.settings = SimpleNamespace(lookahead_tokens=0, full_sequence_must_fit=bool(u.gate == 1))
    manager.cache = SimpleNamespace(is_ready=lambda *_: False, look_up=lambda *_: Hit(u.hit, ()))
    with validators.disabled():
        admit = Admit(request.number, u.budget)
    with on_lengths(population), on_lengths(manager_module):
        answer = manager._admit(admit)
        its.settle(admit, answer)
    refused = isinstance(answer, Refused) and request.status is Status.WAITING and answer.gate == bool(u.gate == 1)
    return (request.tokens_computed == u.computed) & refused


REFUSED = Obligation(
    id="partial-hits.running-admission-waits-for-its-step",
    statements=("KV-OP-20", "KV-MEM-01"),
    title="A request whose hit is not ready is rejected, by the gate where there is one: it gets no block, and "
    "computes nothing.",
    unknowns={**CHUNK, "drafts": Count(0, 0), "hit": Count(0), "gate": Count(0, 1)},
    assumes=lambda u: (u.hit < u.tokens) & (u.tokens <= u.longest) & (u.computed < u.tokens),
    claim=_is_refused,
    witnesses={
        "without a gate": lambda u: (u.gate == 0) & (u.computed == 0) & (u.hit == 8) & (u.tokens == 12),
        "with one": lambda u: (u.gate == 1) & (u.computed == 0) & (u.hit == 8) & (u.tokens == 12),
    },
    mutants=(
        only(
            "admitted-at-once",
            "A request is admitted whether its hit is ready or not.",
            "kvreference.manager:Manager._admit_with_hit",
            lambda self, request, budget, hit, provided, *_: Granted(hit.tokens, (), provided),
        ),
    ),
)

RUNS, BEGINS, LOADS = range(3)
"""A request gets slots for its next chunk, for its first, or for what another node provides later."""


def _schedules(u: Any) -> Any:
    way = u.way.__index__()
    status = Status.RUNNING if way == RUNS else Status.WAITING
    request = request_of(
        u, status, drafts=Tokens(u.drafts), drafts_in_flight=u.unsure, in_flight=[u.flies], awaited=[u.unsure]
    )
    # What another node disturbs matters where a window moves on, and look-ahead at once where a request begins.
    out_of_turn, at_once = way == RUNS and bool(u.out_of_turn == 1), way != RUNS and bool(u.drafts_at_once == 1)
    unsure = most(u.unsure, least(u.flies, u.computed)) if out_of_turn else u.unsure
    its = books(Population, chunk_tokens=u.chunk, tokens_max=u.longest, geometry=NO_STATES)
    its.alive = {request.number: request}
    spans: list[Span] = []
    registered: list[Any] = []

    def allocate(_request: int, span: Span, _hit: Hit) -> Allocation | None:
        spans.append(span)
        return None if u.lacks == 1 else Allocation((), ())

    def registers(_pool: Any, _request: Any, _prefixes: Any, _tables: Any, tokens: Any, begun: Any) -> list[Any]:
        registered.append((tokens, begun))
        return []

    def looks_up(_pool: Any, of: Any, prefixes: Any) -> Hit:
        assert of is request, "of this request"
        assert prefixes is manager.prefixes[request.number], "by its own prefixes"
        looked_up.append(of)
        return Hit(u.hit, ())

    looked_up: list[Any] = []
    held = SimpleNamespace(
        allocate=allocate, tables={request.number: []}, pool=None, passes_gate=lambda *_: u.gate == 1
    )
    manager = manager_over(held)
    manager.population, manager.prefixes, manager.performed = its, {request.number: []}, 0
    manager.geometry = SimpleNamespace(groups=(), keeps_states=way == LOADS and bool(u.states == 1))
    manager.settings = SimpleNamespace(lookahead_tokens=u.lookahead, full_sequence_must_fit=bool(u.gate != 2))
    manager.settings.loads_out_of_turn = out_of_turn
    manager.choices = Choices(lookahead_when_admitted=at_once, blocks_reserved={0: u.reserved})
    manager.cache = SimpleNamespace(
        is_ready=lambda *_: u.ready == 1,
        look_up=looks_up,
        register=registers,
    )
    with validators.disabled():
        # They reject all but ints.
        schedule, admit = Schedule(request.number, u.budget), Admit(request.number, u.budget, u.external, way == LOADS)
    with on_lengths(population), on_lengths(manager_module):
        granted = manager._schedule(schedule) if way == RUNS else manager._admit(admit)
        its.settle(schedule if way == RUNS else admit, granted)
    if len(looked_up) != (1 if way != RUNS and u.computed == 0 else 0):
        return False
    if way != RUNS and u.ready == 0 and (spans or not isinstance(granted, Refused)):
        return False
    if isinstance(granted, Refused):
        rejected = (u.lacks == 1) | (negated((u.gate != 0) & (u.ready == 1)) if way != RUNS else False)
        return rejected & (request.tokens_computed == u.computed) & (registered == [])
    (span,) = spans
    drafts = way == RUNS or bool(u.computed > 0) or (at_once and not granted.loads)
    asked = (span.lookahead == (u.lookahead if drafts else 0)) & (span.unsure == (unsure if way == RUNS else 0))
    asked = asked & (span.reserved == (0 if way == RUNS else u.reserved))
    if granted.loads:
        to_load = (span.computed + span.tokens == request.tokens_computed) & (span.computed <= u.tokens - 1)
        # A state cannot be taken back: then nothing of what is loaded is computed again.
        to_load = to_load & ((u.states == 0) | (span.tokens == 0))
        return asked & to_load & (span.provided == request.tokens_computed) & (registered == [])
    ((till, begun),) = registered
    begins = u.computed + granted.hit_tokens + granted.external_tokens
    exact = (till == request.tokens_computed) & (begun == begins)
    asked = asked & (span.provided == either(granted.external_tokens > 0, begins, 0))
    return asked & exact & (span.computed == begins) & (span.computed + span.tokens == till)


_REGISTER, _COMPUTE = Manager._register, Population._compute
_HIT, _ADMIT, _ADMIT_WITH_HIT = Manager._hit, Manager._admit, Manager._admit_with_hit
"""What these do, where nothing is broken."""


def _counts_one_more(self: Population, request: Request, budget: int, granted: Granted) -> None:
    _COMPUTE(self, request, budget, granted)
    request.tokens_computed += 1


SCHEDULES = Obligation(
    id="content-and-cached-map.running-registers-what-is-scheduled",
    statements=("KV-MEM-01", "KV-MEM-02", "KV-OP-08", "KV-OP-13", "KV-OP-16", "KV-OP-20", "KV-OP-27"),
    title="A step of the running manager asks for slots for exactly the tokens that it then counts as computed, after "
    "the hit and what another node provides, and for the look-ahead of the settings, unless it loads or is a request's "
    "first and drafts nothing; and it lets a window leave nothing that is not sure. It registers nothing beyond what "
    "it computes. What arrives later is not registered yet; where states are kept, nothing of it is computed again. An "
    "admission of a request that has computed nothing makes one look-up, also if it is rejected, and no other "
    "step makes one. It is rejected if its hit may not serve yet, and then nothing is asked for.",
    unknowns={
        **CHUNK,
        "way": Count(0, 2),
        "hit": Count(0),
        "external": Count(0),
        "lookahead": Count(0),
        **{name: Count(0) for name in ("unsure", "flies", "reserved")},
        **{name: Count(0, 1) for name in ("lacks", "ready", "states", "out_of_turn", "drafts_at_once")},
        "gate": Count(0, 2),
    },
    # A hit leaves a token, and a request that computed some before has one to compute.
    assumes=lambda u: (
        (u.hit < u.tokens)
        & (u.tokens <= u.longest)
        & ((u.way == RUNS) | (u.computed == 0) | ((u.way == BEGINS) & (u.computed < u.tokens)))
        & ((u.way != RUNS) | ((u.computed < u.tokens + u.drafts) & (u.computed < u.longest - 1)))
    ),
    claim=_schedules,
    witnesses={
        "after a hit and what is provided at once": lambda u: (
            (u.way == BEGINS) & (u.hit == 4) & (u.external == 4) & (u.tokens == 12) & (u.budget >= 2)
        ),
        "drafts are computed": lambda u: (u.way == RUNS) & (u.drafts == 2) & (u.computed == u.tokens - 1),
        "it was loaded before": lambda u: (u.way == BEGINS) & (u.computed == 8) & (u.tokens == 12),
        "it is rejected": lambda u: (u.way == BEGINS) & (u.computed == 0) & (u.lacks == 1) & (u.tokens == 12),
        "it loads": lambda u: (u.way == LOADS) & (u.external == 4) & (u.tokens == 12),
        "another node writes out of turn": lambda u: (u.out_of_turn == 1) & (u.way == RUNS) & (u.flies > u.unsure),
    },
    mutants=(
        only(
            "next-step-without-look-ahead",
            "A request that runs gets no slots for drafts.",
            "kvreference.manager:Span",
            lambda computed, tokens, lookahead=0, provided=0, reserved=0, unsure=None: (
                Span(computed, tokens, lookahead, provided, reserved)
                if unsure is None
                else Span(computed, tokens, unsure=unsure)
            ),
        ),
        only(
            "first-step-without-look-ahead",
            "A request that is admitted gets no slots for drafts, also where it is to have some.",
            "kvreference.manager:Manager._admit_with_hit",
            lambda self, request, budget, hit, provided, later, _lookahead: _ADMIT_WITH_HIT(
                self, request, budget, hit, provided, later, 0
            ),
        ),
        only(
            "all-is-sure",
            "A window leaves what drafts in flight may take back.",
            "kvreference.manager:Manager._unsure",
            lambda self, request: 0,
        ),
        only(
            "registered-a-token-early",
            "A token more is registered than the step computes.",
            "kvreference.manager:Manager._register",
            lambda self, request, tokens, begun: _REGISTER(self, request, tokens + 1, begun),
        ),
        only(
            "looked-up-again",
            "An admission looks up a second time.",
            "kvreference.manager:Manager._hit",
            lambda self, request: (_HIT(self, request), _HIT(self, request))[1],
        ),
        only(
            "only-granted-if-it-fits",
            "A rejected admission makes no look-up.",
            "kvreference.manager:Manager._admit",
            lambda self, operation: (
                _ADMIT(self, operation) if self._allocate(0, None, None) else Refused(0, gate=False)
            ),
        ),
        only(
            "counted-without-a-slot",
            "A token more is counted than there are slots for.",
            f"{BOOKS}._compute",
            lambda self, request, budget, granted: _counts_one_more(self, request, budget, granted),
        ),
        only(
            "last-state-is-loaded",
            "The last token is loaded also where its state cannot be taken back.",
            "kvreference.manager:Manager._admit_with_hit",
            lambda self, request, budget, hit, provided, later, lookahead: _ADMIT_WITH_HIT(
                self,
                request,
                budget,
                hit,
                least(provided + 1, request.tokens.length - hit.tokens) if later else provided,
                later,
                lookahead,
            ),
        ),
    ),
)


WAITS, LOADS_NOW, RUNS_NOW, PAUSES = Status.WAITING, Status.LOADING, Status.RUNNING, Status.PAUSED


def _ends(u: Any) -> Any:
    """A request ends, wherever it stands, with another node that is to read its blocks or without."""
    status = (WAITS, LOADS_NOW, RUNS_NOW, PAUSES)[u.status]
    request = request_of(u, status, drafts_in_flight=u.unsure)
    left, freed = list[Any](), list[int]()
    manager = manager_over(
        SimpleNamespace(release_passed=lambda *passed: left.append(passed), release_all=freed.append)
    )
    manager.settings = SimpleNamespace(loads_out_of_turn=False)
    manager.population = {request.number: request}
    sends = bool(u.sends == 1)
    manager._end(Abort(request.number) if u.aborts == 1 else Finish(request.number, sends))
    keeps = status is LOADS_NOW or (sends and bool(u.aborts == 0))
    if not (keeps and status is RUNS_NOW):
        return freed == ([] if keeps else [request.number]) and left == []
    ((number, computed, unsure),) = left
    return (computed == u.computed) & (unsure == u.unsure) & (number == request.number and freed == [])


ENDS = Obligation(
    id="external-tokens.running-end-keeps-what-is-read",
    statements=("KV-OP-06", "KV-OP-07", "KV-OP-25"),
    title="A request that ends frees all its blocks, unless another node fills them, or is to read them. Of what "
    "another node reads, a request that ran first releases what its own next token would not read.",
    unknowns={
        "tokens": Count(1),
        "computed": Count(0),
        "unsure": Count(0),
        "status": Count(0, 3),
        **{name: Count(0, 1) for name in ("aborts", "sends")},
    },
    claim=_ends,
    witnesses={
        "it is read": lambda u: (u.status == 2) & (u.sends == 1) & (u.aborts == 0) & (u.computed == 40),
        "it is aborted while it loads": lambda u: (u.status == 1) & (u.aborts == 1),
    },
    mutants=(
        only(
            "sent-after-an-abort",
            "A request that is aborted keeps its blocks for another node, too.",
            "kvreference.manager:holds_on",
            lambda request, operation: request.status is Status.LOADING or getattr(operation, "sends", True),
        ),
    ),
)


OBLIGATIONS = (LOOKS_UP, SHARES, CACHES, READY, REFUSED, SCHEDULES, ENDS)
