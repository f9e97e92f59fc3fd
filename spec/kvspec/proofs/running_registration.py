"""Chapters 03, 06 and 09: which blocks and which boundaries inside blocks become known to the cache, and when.

The running ``caching.register`` goes over the groups, in each over the blocks that it has not looked at, and over the
boundaries that it has not offered. Of each loop one turn is run, from what holds before every turn
(``kvspec.turns``). A table may have any length, and a model any number of groups.

Before every turn ``registered`` blocks were looked at, and the boundaries up to ``boundary_tokens`` were offered. A
turn moves these on and never back, and offers only what comes after them: so nothing is offered twice, in this step or
in a later one. When the loop over blocks ends at a block that is due later, no block after it is due now: this is
``retention.*-boundaries-in-order``, and without an interval ``retention.dense-keeps-all``. So all that is due now is
registered in this step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import evolve

from kvreference import ahead, caching, prefix_cache, retention, tables
from kvreference.answers import Hit
from kvreference.attention import Kind
from kvreference.block_pool import NULL
from kvreference.choices import Choices
from kvreference.content import Keys
from kvreference.geometry import Group
from kvreference.mamba import StateMode
from kvreference.operations import Sample, Transferred
from kvreference.population import Status
from kvreference.prefix_cache import PrefixCache
from kvreference.retention import Dense, Sparse
from kvreference.rules import Delta, Rules
from kvreference.tables import Table
from kvspec.loops import edited
from kvspec.obligation import AMap, Count, Obligation, Unknown, only
from kvspec.progress.counted import least
from kvspec.proofs.hit_lookup import full_of
from kvspec.proofs.running_pool import manager_over
from kvspec.proofs.running_requests import Tokens
from kvspec.proofs.running_tables import OWNER, Entries, on_lengths
from kvspec.running import key
from kvspec.sequences import Parts, Stretch, times
from kvspec.stand_in import any_geometry, group
from kvspec.symbolic import either, implies, negated
from kvspec.turns import turn_of_group, turns_at

REGISTER: Callable[..., Any] = caching.register
TAKE_DUE: Callable[..., Iterator[int]] = caching._take_due
TAKE_BOUNDARIES: Callable[..., Iterator[int]] = caching._take_boundaries
FIRST_TABLES: Callable[..., list[Table]] = tables.tables_of_hit
"""What these do, where nothing is broken."""


class Prefixes:
    """The prefixes of a request, of which only the places are known."""

    def __init__(self, count: Any) -> None:
        self.count = count

    def __len__(self) -> Any:
        return self.count

    def __getitem__(self, place: Any) -> Any:
        return place


OF_CACHING: Mapping[str, Unknown] = {
    "size": Count(1),
    "grain": Count(1),
    "known": Count(0),
    "length": Count(1),
    "groups": Count(1),
    "group": Count(0),
    "place": Count(0),
    "block": Count(0),
    "registered": Count(0),
    "tokens": Count(0),
    "due": Count(0),
    "is_due": Count(0, 1),
}
"""A table of any length in one of any number of groups, and how far its request is; a block is due once so many tokens
are computed, or never."""


NOTHING_KNOWN = SimpleNamespace(content_of=lambda _block: None)
"""A cached map in which no block holds anything."""

JUNCTION, PROMPT = object(), object()
"""The junction of a request, which the retention of its blocks must be asked for, and the length of its prompt."""


def registered_in_a_step(
    u: Any, its: Group, kept: Any, table: Any, pool: Any, tokens: Any, verified: Any, begun: Any = None
) -> tuple[list[Any], list[Any]]:
    """One step registers what is due in one group.

    Returns the content that cannot serve a hit yet, and the places of the blocks that events report.
    """
    reported: list[Any] = []

    def stored_events(_rule: Any, *arguments: Any) -> list[Any]:
        reported.append(arguments)
        return [arguments]

    groups, tables = (Entries(u.groups, {"looked": (u.group, each)}) for each in (its, table))
    geometry: Any = SimpleNamespace(groups=groups, grain_tokens=u.grain)
    cache: Any = object.__new__(PrefixCache)
    cache.geometry, cache.rules = geometry, Rules((Delta("stored_events", stored_events),))
    cache.retention = SimpleNamespace(at_junction=lambda junction: kept if junction is JUNCTION else None)
    fenced: list[Any] = []
    cache.fenced = SimpleNamespace(update=fenced.extend)
    request: Any = SimpleNamespace(
        prompt_tokens=PROMPT, tokens=Tokens(verified), junction_tokens=JUNCTION, status=Status.RUNNING
    )
    prefixes: Any = Prefixes(u.known)
    with turn_of_group(caching, u.group), on_lengths(caching), on_lengths(prefix_cache):
        events = cache.register(pool, request, prefixes, tables, tokens, begun)
    ((of, index, *its_own, _looked_at, due, _began),) = reported
    assert events == reported, "what is reported is returned"
    assert [id(each) for each in (of, index, *its_own)] == [id(each) for each in (geometry, u.group, request, prefixes)]
    return fenced, due


def _looked_at(u: Any) -> tuple[Any, Any]:
    """A place, and a table that names a block there."""
    place, table = key(u.place), Table([], u.registered, 0)
    entries: Any = Entries(u.length, {"looked": (place, key(u.block))})
    table.blocks = entries
    return place, table


def _due_at(place: Any, due: Any, is_due: Any) -> Any:
    def due_tokens(_group: Any, index: Any, prompt_tokens: Any) -> Any:
        assert index == place, "of this block"
        assert prompt_tokens is PROMPT, "of this request"
        return due if is_due == 1 else None

    return SimpleNamespace(due_tokens=due_tokens, boundaries=lambda *_: ())


def _registers_what_is_due(u: Any) -> Any:
    stops, keeps_states = bool(u.stops == 1), bool(u.stops != 0)
    states = {"states": StateMode.ALIGN if stops else StateMode.ALL} if keeps_states else {}
    its = group(Kind.MAMBA if keeps_states else Kind.FULL, u.size, **states)
    known: list[Any] = []
    pool: Any = SimpleNamespace(
        register=lambda content, block: known.append((content, block)),
        is_cached=lambda _block: False,
        cached=SimpleNamespace(content_of=lambda _block: (u.group, -1) if u.is_known == 1 else None),
    )
    place, table = _looked_at(u)
    begun = u.begun if u.steps == 1 else None
    with turns_at(caching, [place], lambda its_place: setattr(table, "registered", its_place)) as turns:
        fenced, reported = registered_in_a_step(
            u, its, _due_at(u.place, u.due, u.is_due), table, pool, u.tokens, u.verified, begun
        )
    end, tokens = (u.place + 1) * u.size, least(u.tokens, u.verified)
    whole = u.place < least(tokens, u.known * u.grain) // u.size
    # A block that is due later ends the loop, and keeps the place from which the next step continues.
    later = (u.is_due == 1) & (u.due > tokens)
    reached = (u.place >= u.registered) & whole
    if not turns.firsts:
        return negated(reached) & (table.registered == u.registered) & (known == [] and fenced == [])
    fine = reached & (turns.firsts[0] == u.registered) & (negated(later) == (turns.went_on == 1))
    fine = fine & (table.registered == either(later, u.place, u.place + 1))
    # A state that a step has passed is the one from which it began.
    passed = (end > u.begun) & (end < tokens) if stops and begun is not None else False
    due = (u.is_due == 1) & (u.due <= tokens) & (u.block != NULL) & negated(passed) & (u.is_known == 0)
    if len(reported) != len(known):
        return False
    if not known:
        return fine & negated(due) & (fenced == [])
    ((which, prefix), block) = known[0]
    own = (which == u.group) & (prefix == end // u.grain - 1) & (block == u.block)
    verified = (end <= tokens) & (end <= u.known * u.grain)
    waits = len(fenced) == 1 and fenced[0] == known[0][0] if keeps_states and begun is not None else fenced == []
    return fine & due & own & verified & (len(known) == 1 and waits)


def _drafts_too(group_: Any, retention_: Any, request: Any, table: Any, _tokens: Any, known: Any, *others: Any) -> Any:
    del others
    end = (known + group_.block_size_tokens) // group_.block_size_tokens
    for position in caching.range(table.registered, end):  # type: ignore[attr-defined]  # patched
        table.registered = position + 1
        due = retention_.due_tokens(group_, position, request.prompt_tokens)
        if due is not None and table.blocks[position] != NULL:
            yield position


def _passes_over(group_: Any, retention_: Any, request: Any, table: Any, tokens: Any, known: Any, *others: Any) -> Any:
    del others
    for position in caching.range(table.registered, least(tokens, known) // group_.block_size_tokens):  # type: ignore[attr-defined]  # patched
        due = retention_.due_tokens(group_, position, request.prompt_tokens)
        table.registered = position + 1
        if due is not None and due <= tokens and table.blocks[position] != NULL:
            yield position


def _goes_on(group_: Any, retention_: Any, request: Any, table: Any, tokens: Any, known: Any, *others: Any) -> Any:
    del others
    for position in caching.range(table.registered, least(tokens, known) // group_.block_size_tokens):  # type: ignore[attr-defined]  # patched
        due = retention_.due_tokens(group_, position, request.prompt_tokens)
        if due is not None and due > tokens:
            continue
        table.registered = position + 1
        if due is not None and table.blocks[position] != NULL:
            yield position


REGISTERS = Obligation(
    id="content-and-cached-map.running-caching",
    statements=("KV-OP-08", "KV-OP-15", "KV-OP-16", "KV-OP-20", "KV-OP-27", "KV-MEM-01", "KV-WORK-01"),
    title="When a request's computed tokens are registered, in any of its groups, each block of its table, however "
    "long that is, is looked at in its turn: if it is full of verified tokens and was not looked at before. It is "
    "cached, once, for the prefix that ends with its last token, if and only if it is due, not released, not cached by "
    "another request with which it is shared, and, of states, this step does not pass its end. If it is due later, the "
    "step looks no further, and the next one begins there. A state that becomes cached serves no hit before this step "
    "is dispatched, if the step computes it.",
    unknowns={
        **OF_CACHING,
        "verified": Count(1),
        "stops": Count(0, 2),
        "begun": Count(0),
        **{name: Count(0, 1) for name in ("steps", "is_known")},
    },
    assumes=lambda u: (u.place < u.length) & (u.group < u.groups) & ((u.is_due == 1) | (u.due == 0)),
    claim=_registers_what_is_due,
    witnesses={
        "a block that is due": lambda u: (
            (u.is_due == 1)
            & (u.place == u.registered + 1)
            & (u.verified == u.due)
            & (u.tokens == u.verified + 2)
            & (u.verified == (u.place + 1) * u.size)
            & (u.known == u.verified)
            & (u.grain == 1)
            & (u.size >= 2)
            & (u.block >= 1)
            & (u.group == 2)
        ),
        "one that is due later": lambda u: (
            (u.is_due == 1)
            & (u.place == u.registered)
            & (u.due == u.tokens + 1)
            & (u.tokens == (u.place + 1) * u.size)
            & (u.tokens == u.verified)
            & (u.known == u.tokens)
            & (u.grain == 1)
        ),
        "a state that a step passes": lambda u: (
            (u.stops == 1)
            & (u.steps == 1)
            & (u.is_due == 1)
            & (u.block >= 1)
            & (u.place == u.registered)
            & (u.begun == u.place * u.size)
            & (u.tokens == (u.place + 2) * u.size)
            & (u.verified == u.tokens)
            & (u.due <= u.tokens)
            & (u.known == u.tokens)
            & (u.grain == 1)
        ),
    },
    mutants=(
        only(
            "shared-block-is-registered-twice",
            "What two requests share and compute again after a failed load becomes known twice.",
            "kvreference.prefix_cache:register",
            edited(
                caching.register,
                "if pool.cached.content_of(table.blocks[position]) is None",
                "if table.blocks[position] != NULL",
            ),
        ),
        only(
            "null-is-registered",
            "A place that was released becomes known.",
            "kvreference.caching:NULL",
            -1,
        ),
        only(
            "before-it-is-full",
            "A block becomes known before its tokens are scheduled.",
            "kvreference.caching:_take_due",
            _drafts_too,
        ),
        only(
            "due-later-is-passed-over",
            "A block that is due later is looked at now, and never again.",
            "kvreference.caching:_take_due",
            _passes_over,
        ),
        only(
            "goes-on-after-one-that-is-due-later",
            "The loop over blocks continues after one that is due later, and so passes it over.",
            "kvreference.caching:_take_due",
            _goes_on,
        ),
        only(
            "no-state-waits",
            "A state serves hits in the step that computes it.",
            "kvreference.geometry:Group.fences",
            False,
        ),
        only(
            "due-as-in-another-prompt",
            "When a block is due is asked for another prompt.",
            "kvreference.caching:due_tokens",
            lambda retention_, group_, position, _prompt: retention_.due_tokens(group_, position, position),
        ),
        only(
            "drafts-are-verified",
            "Drafts are cached with the step that computes them.",
            "kvreference.prefix_cache:min",
            max,
        ),
        only(
            "prefix-of-the-block-before",
            "A block becomes known with the content of the one before it.",
            "kvreference.caching:content_up_to",
            lambda geometry, group_, prefixes, tokens: (group_, prefixes[tokens // geometry.grain_tokens - 2]),
        ),
        only(
            "a-passed-state-is-cached",
            "A state is cached at an end that its step has passed.",
            "kvreference.caching:holds_its_end",
            lambda _group, _end, _passed: True,
        ),
    ),
)


def _offers_once(u: Any) -> Any:
    offers: list[Any] = []
    pool: Any = SimpleNamespace(
        register=lambda _content, block: offers.append(block),
        is_cached=lambda _block: False,
        cached=NOTHING_KNOWN,
    )
    place, table = _looked_at(u)
    its = group(Kind.FULL, u.size)
    with turns_at(caching, [place], lambda its_place: setattr(table, "registered", its_place)):
        registered_in_a_step(u, its, _due_at(u.place, u.due, u.is_due), table, pool, u.tokens, u.tokens)
        first = len(offers)
        looked = bool(table.registered > u.place)
        if u.further > table.registered:
            table.registered = u.further
        registered_in_a_step(
            u, its, _due_at(u.place, u.due_again, u.is_due_again), table, pool, u.tokens + u.more, u.tokens + u.more
        )
    again = len(offers) - first
    return first + again <= 1 and (again == 0 or not looked)


def _forgets(*arguments: Any) -> Iterator[int]:
    table = arguments[3]
    due = list(TAKE_DUE(*arguments))
    if due:
        table.registered = due[0]
    return iter(due)


ONCE = Obligation(
    id="content-and-cached-map.running-offers-once",
    statements=("KV-OP-08", "KV-OP-15", "KV-WORK-01"),
    title="Of two steps, with any others between them, at most one offers a block to the cache; and a block that was "
    "looked at in the first is not offered in the second, whatever is due then.",
    unknowns={
        **OF_CACHING,
        "further": Count(0),
        "more": Count(0),
        "due_again": Count(0),
        "is_due_again": Count(0, 1),
    },
    assumes=lambda u: (u.place < u.length) & (u.group < u.groups),
    claim=_offers_once,
    witnesses={
        "the second offers it": lambda u: (
            (u.is_due == 1)
            & (u.is_due_again == 1)
            & (u.due == u.tokens + 4)
            & (u.due_again == u.due)
            & (u.more == 4)
            & (u.place == u.registered)
            & (u.size == 4)
            & (u.tokens == (u.place + 1) * 4)
            & (u.known == u.tokens + 4)
            & (u.grain == 1)
            & (u.further == 0)
            & (u.block >= 1)
        )
    },
    mutants=(
        only(
            "looked-at-again",
            "What is looked at is forgotten with the step.",
            "kvreference.caching:_take_due",
            _forgets,
        ),
    ),
)


# Boundaries inside blocks

SIZES: dict[str, Unknown] = {"block": Count(1), "unit": Count(1), "lookahead": Count(0, 1), "hit": Count(1)}


def _entry(u: Any) -> Any:
    """One turn of the loop over boundaries, by the code that runs; ``hit`` is any of those that are admitted."""
    its, known = full_of(u), list[Any]()
    pool: Any = SimpleNamespace(
        partial=SimpleNamespace(contents_of=lambda _block: ()),
        register_beginning=lambda content, block: known.append((content, block)),
        is_cached=lambda _block: False,
        cached=NOTHING_KNOWN,
    )
    # In this geometry every number is a boundary, so that of this prompt may be any.
    dense = bool(u.dense == 1)
    geometry = any_geometry(alignment_tokens=u.interval if dense else 1)
    own: Any = Dense(geometry) if dense else Sparse(geometry, u.interval, u.junction)
    offered: list[Any] = []

    def first(start: Any, end: Any, prompt: Any) -> list[Any]:
        assert prompt is PROMPT, "of this request"
        with patch.object(retention, "range", _from_its_first, create=True):
            offered.extend(islice(own.boundaries(start, end, u.replay + 1), 1))
        return offered

    kept: Any = SimpleNamespace(due_tokens=lambda *_: None, boundaries=first)
    table: Any = Table(u.blocks, 0, u.offered)
    with turns_at(caching, []):
        fenced, _ = registered_in_a_step(u, its, kept, table, pool, u.tokens, u.tokens, 0)
    reached = least(u.tokens, u.known * u.grain) - its.lookahead_tokens
    admitted = u.hit % u.interval == 0 if u.interval > 0 else False
    if not dense:
        admitted = admitted | (u.hit == u.replay) | (u.hit == u.junction)
    if not offered:
        none = negated(admitted & (u.hit > u.offered) & (u.hit <= reached))
        return (none | (u.unit == u.block)) & (table.boundary_tokens == u.offered) & (known == [] and fenced == [])
    (boundary,) = offered
    fine = (table.boundary_tokens == boundary) & (boundary > u.offered) & (boundary <= reached)
    fine = fine & implies(admitted & (u.hit > u.offered), boundary <= u.hit)
    multiple = boundary % u.interval == 0 if u.interval > 0 else False
    fine = fine & (multiple | (negated(dense) & ((boundary == u.replay) | (boundary == u.junction))))
    matched = boundary + its.lookahead_tokens
    if not known:
        return fine & (matched % u.block == 0) & (fenced == [])
    ((which, prefix), block) = known[0]
    own_content = (which == u.group) & (prefix == matched // u.grain - 1) & (block == u.blocks[matched // u.block])
    is_only = len(known) == 1 and len(fenced) == 1 and fenced[0] == known[0][0]
    return fine & negated(matched % u.block == 0) & own_content & is_only


def _from_its_first(first: Any, end: Any, step: Any) -> Iterator[Any]:
    """A range of any length, one after the other."""
    while first < end:
        yield first
        first = first + step


ENTRY = Obligation(
    id="partial-hits.an-entry-once",
    statements=("KV-OP-18", "KV-OP-16", "KV-OP-27", "KV-WORK-01", "KV-MEM-01"),
    title="The next admitted boundary after those that were offered, in this step or in any before, is offered as soon "
    "as all that a hit there must match is computed, and never again. It becomes an entry if and only if this ends "
    "inside a block: that block, with the content that the look-up asks for. No admitted boundary is passed over.",
    unknowns={
        **SIZES,
        **{name: OF_CACHING[name] for name in ("grain", "known", "groups", "group", "tokens")},
        **{name: Count(0) for name in ("offered", "interval", "junction", "replay")},
        "dense": Count(0, 1),
        "blocks": AMap(),
    },
    assumes=lambda u: (u.block % u.unit == 0) & (u.group < u.groups) & implies(u.dense == 1, u.interval >= 1),
    claim=_entry,
    witnesses={
        "a junction after a multiple": lambda u: (
            (u.offered == u.interval)
            & (u.interval == 8)
            & (u.junction == 12)
            & (u.unit == 4)
            & (u.block == 16)
            & (u.lookahead == 1)
            & (u.tokens == 19)
            & (u.known == 5)
            & (u.grain == 4)
            & (u.hit == 12)
            & (u.replay == 40)
            & (u.dense == 0)
        )
    },
    mutants=(
        only(
            "entry-without-look-ahead",
            "A boundary becomes an entry as soon as it is computed itself.",
            "kvreference.geometry:Group.tokens_matched",
            lambda self, hit_tokens: hit_tokens,
        ),
        only(
            "offered-in-every-step",
            "Each step offers all boundaries.",
            "kvreference.caching:_take_boundaries",
            lambda its, kept, request, table, tokens: TAKE_BOUNDARIES(
                its, kept, request, evolve(table, boundary_tokens=0), tokens
            ),
        ),
        only(
            "last-boundary-alone",
            "Of several boundaries that are reached, only the last is offered.",
            "kvreference.retention:Sparse.boundaries",
            lambda self, start, end, prompt: iter(
                [each for each in (end // self.interval_tokens * self.interval_tokens,) if each > start]
                if self.interval_tokens
                else []
            ),
        ),
        only(
            "begins-the-block-before",
            "A boundary is an entry of the block before the one in which it ends.",
            "kvreference.caching:_begins",
            lambda pool, content_, table, position: pool.register_beginning(content_, table.blocks[position - 1]),
        ),
    ),
)


def _goes_on_from_the_last(u: Any) -> Any:
    kept: Any = Dense(any_geometry(alignment_tokens=u.interval))
    if u.dense == 0:
        kept = Sparse(any_geometry(), u.interval, u.junction)
    with patch.object(retention, "range", _from_its_first, create=True):
        boundaries = kept.boundaries(u.start, u.end, u.replay + 1)
        first = next(boundaries, None)
        if first is None:
            return True
        second, anew = next(boundaries, None), next(kept.boundaries(first, u.end, u.replay + 1), None)
    if second is None or anew is None:
        return second is None and anew is None
    return second == anew


NEXT = Obligation(
    id="partial-hits.boundaries-one-after-the-other",
    statements=("KV-OP-18", "KV-WORK-01"),
    title="Which boundary comes after one depends on no other that was offered before: the next ones are those that a "
    "step would offer which begins there.",
    unknowns={
        **{name: Count(0) for name in ("start", "end", "replay", "junction", "interval")},
        "dense": Count(0, 1),
    },
    assumes=lambda u: implies(u.dense == 1, u.interval >= 1),
    claim=_goes_on_from_the_last,
    witnesses={
        "a junction between two multiples": lambda u: (
            (u.dense == 0) & (u.interval == 8) & (u.start == 4) & (u.junction == 12) & (u.end == 30) & (u.replay == 100)
        )
    },
    mutants=(
        only(
            "every-other-multiple",
            "Of the multiples of the interval, every other one is admitted.",
            "kvreference.retention:Sparse.boundaries",
            lambda self, start, end, _prompt: _from_its_first(start + 1, end + 1, 2 * self.interval_tokens + 2),
        ),
    ),
)


def _several(u: Any) -> Any:
    its, cached, entries = full_of(u), list[Any](), list[Any]()
    pool: Any = SimpleNamespace(
        partial=SimpleNamespace(contents_of=lambda _block: ()),
        register=lambda content, block: cached.append((content, block)),
        register_beginning=lambda content, block: entries.append((content, block)),
        is_cached=lambda _block: False,
        cached=NOTHING_KNOWN,
    )
    table: Any = Table(u.blocks, u.registered, u.offered)
    kept: Any = SimpleNamespace(due_tokens=lambda *_: 0, boundaries=lambda *_: [u.low, u.high])
    with turns_at(caching, [u.first, u.second], lambda place: setattr(table, "registered", place)):
        fenced, reported = registered_in_a_step(u, its, kept, table, pool, u.tokens, u.tokens, 0)
    if len(cached) != 2 or len(reported) != 2:
        return False
    fine = (table.registered == u.second + 1) & (reported[0] == u.first) & (reported[1] == u.second)
    for place, ((which, prefix), block) in zip((u.first, u.second), cached, strict=True):
        fine = fine & (which == u.group) & (prefix == (place + 1) * u.block // u.grain - 1) & (block == u.blocks[place])
    copies = its.copies
    ends = [boundary + its.lookahead_tokens for boundary in (u.low, u.high)] if copies else []
    inside = [end for end in ends if end % u.block != 0]
    if len(inside) != len(entries) or len(fenced) != (2 + len(inside) if copies else 0):
        return False
    for end, ((which, prefix), block) in zip(inside, entries, strict=True):
        fine = fine & (which == u.group) & (prefix == end // u.grain - 1) & (block == u.blocks[end // u.block])
    return fine & (table.boundary_tokens == (u.high if copies else u.offered))


def _first_alone(values: Any) -> list[Any]:
    return [*values][:1]


def _reports_the_last(rules: Rules) -> Rules:
    def of_last(rule: Callable[..., Any], *arguments: Any) -> Any:
        *others, due, began = arguments
        return rule(*others, due[-1:], began)

    return Rules((*rules.deltas, Delta("stored_events", of_last)))


SEVERAL = Obligation(
    id="content-and-cached-map.running-caches-each",
    statements=("KV-OP-08", "KV-OP-12", "KV-OP-15", "KV-OP-16", "KV-OP-18", "KV-OP-20", "KV-OP-27"),
    title="Of several blocks that are due in a step, and of several boundaries, each is cached for its own content, in "
    "order: what is done to one does not depend on another. Exactly the blocks that became cached are reported, in "
    "order.",
    unknowns={
        **{name: SIZES[name] for name in ("block", "unit", "lookahead")},
        **{name: OF_CACHING[name] for name in ("grain", "known", "groups", "group", "tokens", "registered")},
        **{name: Count(0) for name in ("first", "second", "offered", "low", "high")},
        "blocks": AMap(),
    },
    assumes=lambda u: (
        (u.block % u.unit == 0)
        & (u.group < u.groups)
        & (u.registered <= u.first)
        & (u.first < u.second)
        & (u.second < least(u.tokens, u.known * u.grain) // u.block)
        & (u.blocks[u.first] != NULL)
        & (u.blocks[u.second] != NULL)
        & (u.low < u.high)
    ),
    claim=_several,
    witnesses={"two boundaries of one block": lambda u: (u.block == 16) & (u.unit == 4) & (u.low == 4) & (u.high == 8)},
    mutants=(
        only(
            "one-in-a-step",
            "Of several that are due, a step caches the first, and passes the others over.",
            "kvreference.caching:list",
            _first_alone,
        ),
        only(
            "reports-the-last",
            "Of the blocks that become cached only the last is reported.",
            "kvreference.prefix_cache:register",
            lambda *arguments: REGISTER(*arguments[:-1], _reports_the_last(arguments[-1])),
        ),
    ),
)


# Answers


class _Alone:
    """A population of one request, of which an answer was settled."""

    def __init__(self, request: Any) -> None:
        self.request, self.alive = request, {OWNER: request}

    def __getitem__(self, _number: int) -> Any:
        return self.request

    def settle(self, _operation: Any, _answer: Any) -> None:
        """Its tokens and what is computed of it are any."""


def _answers(u: Any) -> Any:
    loads, holds, drafts = bool(u.loads == 1), bool(u.holds == 1), bool(u.drafts == 1)
    status = Status.LOADING if loads else Status.RUNNING
    request = SimpleNamespace(
        number=OWNER, tokens=Tokens(u.tokens), tokens_computed=u.computed, status=status, keys=Keys()
    )
    registered: list[Any] = []

    def register(_pool: Any, its: Any, prefixes: Any, tables: Any, tokens: Any, begun: Any) -> list[Any]:
        registered.append((its, prefixes, tables, tokens, begun))
        return []

    tables: dict[int, list[Any]] = {OWNER: []} if holds else {}
    manager = manager_over(SimpleNamespace(pool=None, tables=tables))
    manager.choices = Choices(caches_answers=bool(u.caches == 1))
    manager.settings = SimpleNamespace(drafts_max=1 if drafts else 0, steps_in_flight_max=u.steps)
    manager.population, manager.prefixes = _Alone(request), {}
    manager.cache = SimpleNamespace(register=register)
    extended: list[Any] = []
    manager._interned = SimpleNamespace(extend=lambda *arguments: extended.append(arguments))
    with on_lengths(ahead):
        manager.perform(Sample(OWNER, 0, 7, 0))
    ((prefixes, tokens, keys),) = extended
    fine = prefixes is manager.prefixes[OWNER] and tokens is request.tokens and keys is request.keys
    caches = (u.steps > 1) | ((u.caches == 1) & (u.drafts == 1))
    if not registered:
        return fine & negated(caches & (holds and not loads))
    ((its, of_request, into, till, begun),) = registered
    same = its is request and of_request is prefixes and into is tables[OWNER] and begun is None
    # All that is computed, but for the answer itself, which is cached with its step.
    is_one = (till == u.computed) | (till == u.tokens - 1)
    return (fine and same) & caches & (holds and not loads) & is_one & (till <= u.computed) & (till <= u.tokens - 1)


ANSWERS = Obligation(
    id="content-and-cached-map.running-answer-is-cached",
    statements=("KV-OP-08", "KV-OP-09", "KV-MEM-01"),
    title="With an answer the prefixes of its request's tokens become known. Where steps are ahead of answers, and "
    "where a release caches with an answer what drafts filled, what is computed is registered then, but for the answer "
    "itself, unless the request holds no blocks or loads them.",
    unknowns={
        "tokens": Count(1),
        "computed": Count(0),
        **{name: Count(0, 1) for name in ("loads", "holds", "drafts", "caches")},
        "steps": Count(1),
    },
    claim=_answers,
    witnesses={
        "drafts filled it": lambda u: (
            (u.drafts == 1) & (u.caches == 1) & (u.holds == 1) & (u.loads == 0) & (u.computed == u.tokens - 1)
        ),
        "a step is ahead": lambda u: (u.steps == 2) & (u.holds == 1) & (u.loads == 0) & (u.computed == u.tokens + 1),
    },
    mutants=(
        only(
            "the-answer-itself",
            "The answer is cached before it is computed.",
            "kvreference.manager:tokens_answered",
            lambda request: request.tokens_computed,
        ),
        only(
            "while-it-loads",
            "What is not loaded yet is cached with an answer to an earlier step.",
            "kvreference.manager:Status",
            SimpleNamespace(LOADING=None),
        ),
    ),
)


def _arrives(u: Any) -> Any:
    loads, succeeded = bool(u.loads == 1), bool(u.succeeded == 1)
    status = Status.LOADING if loads else Status.RUNNING
    request = SimpleNamespace(number=OWNER, tokens_computed=u.computed, status=status)
    registered, freed = list[Any](), list[Any]()

    def register(_pool: Any, *others: Any) -> list[Any]:
        registered.append(others)
        return []

    tables: dict[int, list[Any]] = {OWNER: []}
    manager = manager_over(SimpleNamespace(pool=None, tables=tables, release_all=freed.append))
    manager.settings = SimpleNamespace(loads_out_of_turn=False)
    manager.population, manager.prefixes = _Alone(request), {OWNER: []}
    manager.cache = SimpleNamespace(register=register)
    manager._transferred(Transferred(OWNER, succeeded))
    if not (loads and succeeded) or u.computed == 0:
        return registered == [] and freed == [OWNER]
    if freed or len(registered) != 1:
        return False
    its, prefixes, into, till, begun = registered[0]
    same = its is request and prefixes is manager.prefixes[OWNER] and into is tables[OWNER] and begun is None
    return same & (till == u.computed)


ARRIVES = Obligation(
    id="external-tokens.running-arrival-is-cached",
    statements=("KV-OP-24", "KV-OP-08", "KV-MEM-01"),
    title="When a load has arrived, all that its request counts as computed is registered, and no step computes it. If "
    "that is nothing, if it failed, or if a transfer of a request that has ended is over, nothing is registered, and "
    "all blocks are freed.",
    unknowns={"computed": Count(0), "loads": Count(0, 1), "succeeded": Count(0, 1)},
    claim=_arrives,
    witnesses={
        "it arrived": lambda u: (u.loads == 1) & (u.succeeded == 1) & (u.computed == 9),
        "nothing of it counts": lambda u: (u.loads == 1) & (u.succeeded == 1) & (u.computed == 0),
    },
    mutants=(
        only(
            "arrived-is-not-cached",
            "What was loaded is not cached.",
            "kvreference.manager:Manager._register",
            lambda self, request, tokens, begun: None,
        ),
        only(
            "failed-is-cached",
            "What did not arrive is cached.",
            "kvreference.manager:Manager._transferred",
            lambda self, operation: self._register(
                self.population[OWNER], self.population[OWNER].tokens_computed, None
            ),
        ),
    ),
)


def _begins_after_its_hit(u: Any) -> Any:
    """The blocks of a hit in one group, any number of them; of so many no later token reads anything."""

    class OfHit:
        def __getitem__(self, which: Any) -> Any:
            return [Stretch(u.length - which.start)]

    asked: list[Any] = []

    def blocks_unread(tokens: Any) -> Any:
        asked.append(tokens)
        return times(u.dead)

    its = SimpleNamespace(blocks_unread=blocks_unread)
    geometry: Any = SimpleNamespace(groups=(its,))
    blocks: Any = OfHit()
    with patch.object(tables, "len", lambda parts: Parts(parts).length, create=True):
        (table,) = tables.tables_of_hit(geometry, Hit(u.hit, (blocks,)), u.computed)
    null, rest = Parts(table.blocks).parts
    named = (null.count == u.dead) & (rest.count == u.length - u.dead) & (null.value == NULL)
    seen = (table.registered == u.length) & (table.boundary_tokens == u.hit) & (table.dead == u.dead)
    return named & seen & (asked[0] == u.computed) & table.fresh


AFTER_HIT = Obligation(
    id="partial-hits.running-begins-after-its-hit",
    statements=("KV-OP-18", "KV-WORK-01"),
    title="A request offers the cache no block and no boundary of its hit: its first table, of any length, counts the "
    "blocks of the hit as looked at, and the boundaries up to its end as offered.",
    unknowns={name: Count(0) for name in ("length", "dead", "hit", "computed")},
    assumes=lambda u: u.dead <= u.length,
    claim=_begins_after_its_hit,
    witnesses={"a window passed some": lambda u: (u.dead == 70) & (u.length == 90) & (u.hit == 1440)},
    mutants=(
        only(
            "looked-at-up-to-the-window",
            "The blocks of a hit that are not null blocks are looked at again.",
            "kvreference.tables:tables_of_hit",
            lambda geometry, hit, computed: [
                evolve(table, registered=table.dead) for table in FIRST_TABLES(geometry, hit, computed)
            ],
        ),
        only(
            "window-counted-twice",
            "What no later token reads is missing from the count of what was looked at.",
            "kvreference.tables:tables_of_hit",
            lambda geometry, hit, computed: [
                evolve(table, registered=table.registered - table.dead)
                for table in FIRST_TABLES(geometry, hit, computed)
            ],
        ),
    ),
)

OBLIGATIONS = (REGISTERS, ONCE, ENTRY, NEXT, SEVERAL, ANSWERS, ARRIVES, AFTER_HIT)
