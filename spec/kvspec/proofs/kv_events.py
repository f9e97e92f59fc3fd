"""Chapter 12: events tell exactly the blocks that became cached, each with its own tokens, and what was forgotten.

The positions that are due are gone through in order. Before each there is a run of neighbours, of any length, that may
still grow: so two positions after such a run stand for any number of them. Of a run of any length two blocks are
looked at, in their order, or one.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import evolve, frozen

from kvreference import block_pool, caching, holdings
from kvreference.answers import Hit
from kvreference.block_pool import BlockPool
from kvreference.events import Cleared, Removed
from kvreference.holdings import Allocation, Holdings, Span
from kvreference.manager import _PERFORM, Manager
from kvreference.operations import Admit, Evict, Reset, Rewind, Schedule, TakeEvents, Transferred
from kvreference.population import Status
from kvreference.rules import OWN_RULES
from kvreference.tables import Table
from kvspec.obligation import Count, Lemma, Obligation, only
from kvspec.proofs.lemmas import MULTIPLE
from kvspec.proofs.running_pool import manager_over
from kvspec.proofs.running_tables import OWNER, on_lengths
from kvspec.sequences import Cut, Stretch, ranges_around


@frozen(eq=False)
class _Run:
    """Neighbouring positions, however many, of which one is looked at, and a later one if there is one."""

    first: Any
    looked_at: Any
    last: Any
    later: Any = 0

    def __getitem__(self, place: int) -> Any:
        return {0: self.first, -1: self.last}[place]

    def __iter__(self) -> Iterator[Any]:
        yield self.looked_at
        if self.later > self.looked_at:
            yield self.later

    def __add__(self, more: Any) -> Any:
        """In the place of its last position."""
        return self.last + more


def _runs(u: Any) -> Any:
    """Whether neighbours are together, after a run that may be there, and all others apart."""
    run, first = _Run(0, 0, u.last), u.last + u.gap + 1
    positions: list[Any] = [*([run] if u.begun == 1 else []), first, first + u.second_gap + 1]
    positions = positions[: len(positions) - u.fewer.__index__()]
    expected: list[list[Any]] = []
    for position in positions:
        if expected and position == expected[-1][-1] + 1:
            expected[-1].append(position)
        else:
            expected.append([position])
    runs = list(caching._runs(iter(positions)))
    return [[id(each) for each in its] for its in runs] == [[id(each) for each in its] for its in expected]


def _run_apart(positions: Any) -> Any:
    return ([position] for position in positions)


def all_in_one(positions: Any) -> Any:
    """All positions as one run, whether they are neighbours or not."""
    everything = list(positions)
    return iter([everything] if everything else [])


def _last_is_forgotten(positions: Any) -> Any:
    return iter(list(SOUND_RUNS(positions))[:-1])


SOUND_RUNS = caching._runs

RUNS = Obligation(
    id="kv-events.runs-are-what-is-due",
    statements=("KV-OP-12",),
    title="Every block that becomes cached is reported once, in order, with adjacent blocks only, in any number.",
    unknowns={"begun": Count(0, 1), "fewer": Count(0, 2), **{name: Count(0) for name in ("last", "gap", "second_gap")}},
    claim=_runs,
    witnesses={
        "a run that grows, and one after it": lambda u: (
            (u.begun == 1) & (u.fewer == 0) & (u.gap == 0) & (u.second_gap >= 1)
        )
    },
    mutants=(
        only(
            "all-in-one",
            "All that is due is reported as one run (vllm-project/vllm#44451).",
            "kvreference.caching:_runs",
            all_in_one,
        ),
        only("each-apart", "Every block is reported by an event of its own.", "kvreference.caching:_runs", _run_apart),
        only("last-run-lost", "The last run is not reported.", "kvreference.caching:_runs", _last_is_forgotten),
    ),
)


class _Stretch:
    """Something that has one thing per token or grain, of which only the place is known."""

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            assert place.step is None, "in their order"
            start, stop = place.start, place.stop
            return _From(start) if stop is None else list(Cut(start, stop).first_and_others())
        return place + 1


@frozen
class _From:
    """What begins at a place."""

    start: Any

    def __getitem__(self, first: slice) -> list[Cut]:
        assert (first.start, first.step) == (None, None), "the first so many"
        return [Cut(self.start, self.start + first.stop)]


class _Groups:
    """The groups of a geometry, of which only one is asked for."""

    def __init__(self, u: Any) -> None:
        self.u = u

    def __getitem__(self, index: Any) -> Any:
        assert index is self.u.group, "of another group"
        return SimpleNamespace(block_size_tokens=self.u.block)


def stored_at(u: Any) -> Any:
    """The event of the first of two runs that are due, with places where there would be tokens, prefixes and keys."""
    keys = SimpleNamespace(lora="an adapter", of_block=lambda start, end: (start, end))
    request: Any = SimpleNamespace(tokens=_Stretch(), keys=keys)
    geometry: Any = SimpleNamespace(grain_tokens=u.grain, hashed_ahead_tokens=u.ahead, groups=_Groups(u))
    run, prefixes = _Run(u.first, u.looked_at, u.last, u.later), _Stretch()
    due, second = object(), u.last + 2
    next_run = _Run(second, second, second)
    with patch.object(caching, "_runs", lambda positions: [run, next_run] if positions is due else []):
        events: list[Any] = caching.stored_events(geometry, u.group, request, prefixes, range(0), due, ())  # type: ignore[arg-type]  # they stand for them
    event, after = events
    assert after.tokens[0].start == second * u.block, "in their order"
    return event


def _reports_its_tokens(u: Any) -> Any:
    """Whether the event has the tokens of its run and no others, after its parent, and what is each block's own."""
    event = stored_at(u)
    token, others = event.tokens
    start = token.start
    of_group, parent = (u.group, 0) if event.parent is None else event.parent
    shown = (start == u.first * u.block) & (token.end == start + 1) & (others.start == start + 1)
    shown = shown & (others.end == (u.last + 1) * u.block) & (event.block_size_tokens == u.block)
    shown = shown & (event.group == u.group) & (of_group == u.group) & (parent * u.grain == start)
    positions = [u.looked_at, u.later] if u.later > u.looked_at else [u.looked_at]
    ahead = event.ahead if u.ahead == 1 else [(Cut((its + 1) * u.block, (its + 1) * u.block),) for its in positions]
    shown = shown & ((u.ahead == 1) | (event.ahead == ()))
    for its, (group, grains), keys, (after,) in zip(positions, event.contents, event.extra_keys, ahead, strict=True):
        end = (its + 1) * u.block
        shown = shown & (group == u.group) & (grains * u.grain == end) & (keys == (its * u.block, end + u.ahead))
        shown = shown & (after.start == end) & (after.end == end + u.ahead)
    return shown


def _whole_grains(u: Any) -> tuple[Lemma, ...]:
    """Every block ends where a grain of content ends."""
    ends = u.first, u.looked_at + 1, u.later + 1
    return tuple(Lemma(MULTIPLE, {"factor": end, "multiple": u.block, "unit": u.grain}) for end in ends)


def _spans_what_is_due(geometry: Any, index: int, request: Any, prefixes: Any, *runs: Any) -> Any:
    """Its tokens continue after the run."""
    event = SOUND_STORED(geometry, index, request, prefixes, *runs)
    tokens: Any = event.tokens
    size = geometry.groups[index].block_size_tokens
    token, others = tokens
    longer: Any = (token, Cut(others.start, others.end + size))
    return evolve(event, tokens=longer)


def _sorts(event: Any) -> Any:
    return evolve(event, tokens=tuple(sorted(event.tokens)))


def _last_named_first(event: Any) -> Any:
    return evolve(event, contents=event.contents[::-1])


SOUND_STORED = caching._stored

TOKENS = Obligation(
    id="kv-events.tokens-are-those-of-the-blocks",
    statements=("KV-OP-12",),
    title="An event of a run of any length, in any group, carries exactly the tokens of its blocks, in their order. "
    "Its parent ends where they begin. Each block is named by the content that ends with it, and has keys of its own, "
    "and the token after it where its content depends on that.",
    unknowns={
        **{name: Count(0) for name in ("group", "first", "looked_at", "later", "last")},
        **{name: Count(1) for name in ("block", "grain")},
        "ahead": Count(0, 1),
    },
    assumes=lambda u: (
        (u.block % u.grain == 0) & (u.first <= u.looked_at) & (u.looked_at <= u.later) & (u.later <= u.last)
    ),
    claim=_reports_its_tokens,
    lemmas=_whole_grains,
    witnesses={
        "blocks of several grains": lambda u: (
            (u.grain >= 2)
            & (u.block > u.grain)
            & (u.first == 3)
            & (u.looked_at == 40)
            & (u.later == 55)
            & (u.last == 90)
            & (u.ahead == 1)
        )
    },
    mutants=(
        only(
            "a-block-too-many",
            "The tokens continue for a block that is not named.",
            "kvreference.caching:_stored",
            _spans_what_is_due,
        ),
        only(
            "tokens-in-any-order",
            "The tokens of a run are sorted.",
            "kvreference.caching:_stored",
            lambda *arguments: _sorts(SOUND_STORED(*arguments)),
        ),
        only(
            "blocks-in-reverse-order",
            "The blocks of a run are named from its end.",
            "kvreference.caching:_stored",
            lambda *arguments: _last_named_first(SOUND_STORED(*arguments)),
        ),
        only(
            "parent-is-the-first-block",
            "Content is counted from the block's beginning, and not from its end.",
            "kvreference.caching:content_up_to",
            lambda geometry, group, prefixes, tokens: (group, prefixes[tokens // geometry.grain_tokens]),
        ),
        only(
            "events-of-the-first-group",
            "Events name the first group.",
            "kvreference.caching:_stored",
            lambda *arguments: evolve(SOUND_STORED(*arguments), group=0),
        ),
    ),
)

SCHEDULES, ADMITS, ARRIVES, EVICTS, REWINDS, RESETS = range(6)
"""What forgets or caches."""


class _Books(dict[int, Any]):
    """The requests, each with a token to compute."""

    def tokens_to_schedule(self, _request: Any, _budget: int) -> int:
        """One."""
        return 1

    def tokens_from(self, _request: Any, _computed: Any, _budget: int) -> int:
        """One."""
        return 1


def _reports(u: Any) -> Any:
    way, works = u.way.__index__(), bool(u.works == 1)
    earlier, stored = object(), object()
    lost: Any = (object(), object())
    first, second = map(Removed, lost)
    # Of what is not valid: all in the groups before one, the blocks of its table before one, that, and what follows.
    parts: Any = [object() for _ in range(5)]
    of_parts = [lost if place == 2 else (object(),) for place in range(5)]
    forgets = dict(zip(parts, of_parts, strict=True))
    pool: Any = SimpleNamespace(evict=lambda block: forgets[block] if way == REWINDS else lost, reset=lambda: works)
    named = [parts[0]], [object(), *parts[1:4]], [parts[4]]
    tables = [SimpleNamespace(blocks=blocks, registered=len(blocks)) for blocks in named]
    allocation = Allocation((), lost) if works else None
    manager = manager_over(SimpleNamespace(pool=pool, tables={OWNER: tables}, allocate=lambda *_: allocation))
    manager.cache.look_up, manager.cache.is_ready = lambda *_: Hit(0, ()), lambda *_: True
    manager.cache.register = lambda *_: [stored]
    manager.settings = SimpleNamespace(tells_events=bool(u.tells == 1), lookahead_tokens=0, loads_out_of_turn=False)
    manager.settings.full_sequence_must_fit = False
    groups = [SimpleNamespace(block_size_tokens=size) for size in (8, 4, 8)]
    manager.geometry = SimpleNamespace(groups=groups, keeps_states=False)
    status = Status.LOADING if way == ARRIVES else Status.RUNNING
    computed = 8 if way == ARRIVES else 0
    manager.population = _Books(
        {
            OWNER: SimpleNamespace(
                number=OWNER, tokens=[0] * 9, tokens_computed=computed, status=status, drafts_in_flight=0
            )
        }
    )
    manager.prefixes, manager.performed, manager._events = {OWNER: []}, 0, [earlier]
    operation: Any = (
        Schedule(OWNER, 1),
        Admit(OWNER, 1),
        Transferred(OWNER, True),
        Evict(4),
        Rewind(OWNER, 4),
        Reset(),
    )[way]
    PERFORM[type(operation)](manager, operation)
    happened, again = (manager._take_events(TakeEvents()).events for _ in range(2))
    granted: tuple[Any, ...] = (first, second, stored) if works else ()
    expected = {
        SCHEDULES: granted,
        ADMITS: granted,
        ARRIVES: (stored,),
        EVICTS: (first, second),
        REWINDS: tuple(Removed(content) for contents in of_parts for content in contents),
        RESETS: (Cleared(),) if works else (),
    }
    return happened == ((earlier, *expected[way]) if u.tells == 1 else ()) and again == ()


def _reports_first_group(self: Manager, operation: Rewind) -> None:
    later = self.tables[OWNER][1:]
    del self.tables[OWNER][1:]
    SOUND_REWIND(self, operation)
    self.tables[OWNER] += later


PERFORM = _PERFORM
SOUND_REWIND = Manager._rewind
LOSE = Manager._lose
FILL, ADMIT, TAKE = Holdings._fill, Holdings._admit, BlockPool.take
"""What these do, where nothing is broken."""

REPORTS = Obligation(
    id="kv-events.running-reports-in-order",
    statements=("KV-OP-12",),
    title="A manager reports, after what it reported before, what an allocation forgot, then what became cached; what "
    "an eviction forgot, and what a failed load made forget, in any number of groups, one after the other, and in a "
    "table of any length, block by block; and that a reset forgot all. What was taken is not reported again, and "
    "nothing is if events are switched off.",
    unknowns={"way": Count(0, 5), "works": Count(0, 1), "tells": Count(0, 1)},
    claim=_reports,
    witnesses={"an admission": lambda u: (u.way == ADMITS) & (u.works == 1) & (u.tells == 1)},
    mutants=(
        only(
            "forgotten-is-not-reported",
            "What an allocation forgot is not reported.",
            "kvreference.manager:Manager._lose",
            lambda self, allocation: None,
        ),
        only(
            "the-first-alone",
            "Of what an allocation forgot the first is reported.",
            "kvreference.manager:Manager._lose",
            lambda self, allocation: LOSE(self, evolve(allocation, lost=allocation.lost[:1])),
        ),
        only(
            "of-the-first-group-alone",
            "Of what a failed load made forget that of the first group is reported.",
            "kvspec.proofs.kv_events:PERFORM",
            {**_PERFORM, Rewind: lambda self, operation: _reports_first_group(self, operation)},
        ),
        only(
            "before-what-was-forgotten",
            "What became cached is reported before what was forgotten for it.",
            "kvreference.manager:Manager._register",
            lambda self, request, tokens, begun: self._events.insert(0, *self.cache.register()),
        ),
        only(
            "told-twice",
            "What was taken is reported again.",
            "kvreference.manager:Manager._take_events",
            lambda self, _operation: SimpleNamespace(events=tuple(self._events) if self.settings.tells_events else ()),
        ),
    ),
)


def _collects(u: Any) -> Any:
    """A table loses what it and its layout name; where a layout is none, the table stays as it is.

    One table is observed. The other two stand for those before it and after it, any number, in which something grows.
    """
    known, provides = bool(u.known == 1), bool(u.provides == 1)
    grows = bool(u.first == 1), bool(u.second == 1), bool(u.third == 1)
    held: Any = object.__new__(Holdings)
    held.pool = SimpleNamespace(count_free=lambda _held: 0, make_room=lambda _taken, _held: True, touch=lambda _: None)
    held.pool.free = ()
    held.groups, held.rules, held.copies = (), OWN_RULES, []
    held.settings = SimpleNamespace(geometry=None)
    tables = [Table([], 0, 0) for _ in grows]
    held.tables = {OWNER: tables} if known else {}
    layouts: dict[str, Any] = {
        name: [[name, number] if its else None for number, its in enumerate(grows, 1)]
        for name in ("provided", "after it", "at once")
    }

    def grow(table: Table, layout: Any) -> list[Any]:
        number = next(at for at, each in enumerate(held.tables[OWNER], 1) if each is table)
        return [(layout, number, which) for which in range(2)]

    def plans(_tables: Any, before: Any, _span: Any) -> Any:
        return layouts["after it" if before == [None] * len(grows) else "at once"]

    with (
        patch.object(holdings, "tables_of_hit", lambda *_: tables),
        patch.object(holdings, "plan_provided", lambda *_: layouts["provided"] if provides else [None] * len(grows)),
        patch.object(holdings, "blocks_new", lambda *_: 0),
        patch.object(holdings, "has_room", lambda *_: True),
        patch.object(held, "_grow", grow),
        patch.object(held, "_plan", plans),
        patch.object(held, "_aim", lambda *_: None),
        patch.object(held, "release_passed", lambda *_: None),
    ):
        allocation = held.allocate(OWNER, Span(0, 1, 0, provided=1 if provides else 0), Hit(0, ((),) * len(grows)))
    names = ("provided", "after it") if provides else ("after it",)
    expected = [
        (layout, number, which)
        for name in names
        for number, layout in enumerate(layouts[name], 1)
        for which in range(2)
        if layout is not None
    ]
    return _takes(u) & (list(allocation.lost) == expected)


def _takes(u: Any) -> Any:
    """Blocks are taken, any number: some, one that is observed, and others after it."""
    pool: Any = object.__new__(BlockPool)
    front: Any = [Stretch(u.place), object(), Stretch(u.count - u.place - 1)]
    pool.references, pool.free = {}, SimpleNamespace(length=u.free, pop=iter(front).__next__)
    with (
        on_lengths(block_pool),
        patch.object(block_pool, "range", lambda count: ranges_around(u.place)(0, count), create=True),
        patch.object(pool, "_lose", lambda block: [(block, "one"), (block, "other")]),
    ):
        blocks, lost = pool.take(u.count)
    return blocks == front and lost == [(block, which) for block in front for which in ("one", "other")]


def _last_first(blocks: list[int], lost: list[Any]) -> tuple[list[int], list[Any]]:
    return blocks, lost[::-1]


COLLECTS = Obligation(
    id="kv-events.running-collects-what-is-lost",
    statements=("KV-OP-12", "KV-OP-05"),
    title="An allocation returns all that the blocks lost that it takes, however many, in the order in which it takes "
    "them: what another node provides first, then the rest, each in any number of groups, group by group, and in a "
    "group block by block.",
    unknowns={
        **{name: Count(0, 1) for name in ("known", "provides", "first", "second", "third")},
        **{name: Count(0) for name in ("count", "place", "free")},
    },
    assumes=lambda u: (u.place < u.count) & (u.count <= u.free),
    claim=_collects,
    witnesses={
        "all groups, after what is provided": lambda u: (
            (u.known + u.provides + u.first + u.second + u.third == 5) & (u.place == 40) & (u.count == 70)
        )
    },
    mutants=(
        only(
            "of-the-last-group",
            "What is lost for the last group is returned.",
            "kvreference.holdings:Holdings._fill",
            lambda self, tables, layouts: FILL(self, tables, layouts)[0 if layouts[2] is None else -2 :],
        ),
        only(
            "provided-ones-lose-nothing",
            "What is lost for another node's blocks is not returned.",
            "kvreference.holdings:Holdings._admit",
            lambda self, *arguments: ADMIT(self, *arguments)[:0],
        ),
        only(
            "last-block-first",
            "What the last block lost comes first.",
            "kvreference.block_pool:BlockPool.take",
            lambda self, count: _last_first(*TAKE(self, count)),
        ),
    ),
)

OBLIGATIONS = (RUNS, TOKENS, REPORTS, COLLECTS)
