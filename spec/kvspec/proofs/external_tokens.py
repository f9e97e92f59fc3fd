"""Chapter 13: external tokens follow the hit, their blocks are for one request, and are held until a transfer ends.

The running block manager over counts has one request that loads, or is still read after its end.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attrs import define, field

from kvreference import tables
from kvreference.answers import Hit
from kvreference.attention import Kind
from kvreference.holdings import Allocation, Span
from kvreference.manager import Manager
from kvreference.operations import Abort, Admit, Finish, Transferred
from kvreference.population import Status
from kvreference.tables import Table
from kvspec.obligation import Count, Obligation, only
from kvspec.progress.counted import CountedManager, CountedTable, least, length_of, on_counts, request_of, settings_of
from kvspec.progress.room import KINDS, group_of
from kvspec.proofs.running_allocation import Stretch, Times, grown, on_stretches
from kvspec.stand_in import group
from kvspec.symbolic import expression_of, implies


def _limits(u: Any) -> dict[str, Any]:
    """Limits that let every computation fit into one step."""
    return {
        "tokens_max": u.tokens + 2,
        "chunk_tokens": u.tokens,
        "full_sequence_must_fit": False,
        "lookahead_tokens": 0,
        "steps_in_flight_max": 1,
        "loads_out_of_turn": False,
    }


@define
class _Granting:
    """Holdings that grant every request, and remember what it was."""

    spans: list[Span] = field(factory=list)
    tables: dict[int, list[Any]] = field(factory=lambda: {0: []})
    pool: None = None

    def allocate(self, _request: int, span: Span, _hit: Hit) -> Allocation:
        """Granted."""
        self.spans.append(span)
        return Allocation((), ())

    def release_all(self, _request: int) -> None:
        """Nothing is held here."""


class Load:
    """A request is admitted after its hit and what another node offers; later the transfer is over."""

    def __init__(self, u: Any, at_once: bool = False) -> None:
        settings = settings_of(2, **_limits(u))
        settings.geometry.keeps_states = bool(u.keeps_states)
        with on_counts():
            manager = CountedManager(settings)
            hit = Hit(u.hit, ())
            cache: Any = SimpleNamespace(
                look_up=lambda *_: hit, is_ready=lambda *_: True, register=lambda *_: [], dispatched=lambda: None
            )
            manager.cache = cache
            granting = _Granting()
            holdings: Any = granting
            manager.holdings = holdings
            manager.prefixes[0] = []
            request = manager.population.alive[0] = request_of(0, u.tokens)
            self.answer: Any = manager.apply(Admit(0, u.tokens, u.external, not at_once))
            self.span = granting.spans[0]
            """What slots were asked for."""
            self.computed = request.tokens_computed
            """How many tokens count as computed then."""
            self.loads = request.status is Status.LOADING
            if self.loads:
                manager.apply(Transferred(0, u.arrives == 1))
            self.computed_after = request.tokens_computed
            """The same, once the transfer is over."""
            self.waits = request.status is Status.WAITING


def first_kept(u: Any, load: Load) -> Any:
    """The first token whose block was not released where room was made for the load."""
    return group_of(u).blocks_unread(load.span.computed) * u.block


LOADING, RUNNING = range(2)


class End:
    """A request that holds blocks is aborted or ends; later the transfer is over, if there is one."""

    def __init__(self, u: Any) -> None:
        group = group_of(u)
        settings = settings_of(u.blocks + 1, **_limits(u))
        settings.geometry.groups = (group,)
        status = Status.LOADING if u.stands == LOADING else Status.RUNNING
        with on_counts():
            manager = CountedManager(settings)
            manager.population.alive[0] = request_of(0, u.tokens, u.computed, status)
            manager.prefixes[0] = []
            # It stands for a table, of which only counts are known.
            manager.tables[0] = [CountedTable(u.entries, u.dead)]  # type: ignore[list-item]
            pool: Any = manager.pool
            pool.blocks_free -= u.entries - u.dead
            self.read = group.blocks_dead(u.computed)
            """Before which entry the next token reads nothing."""
            manager.apply(Finish(0, u.sends == 1) if u.finishes == 1 else Abort(0))
            self.held = _held(manager)
            self.first_held = manager.tables[0][0].dead if 0 in manager.tables else None
            self.alive = 0 in manager.population.alive
            if self.alive:
                manager.apply(Transferred(0, u.arrives == 1))
            self.held_after = _held(manager)
            self.free_after = length_of(manager.pool.free)
            self.gone = 0 not in manager.population.alive and 0 not in manager.prefixes


def _held(manager: CountedManager) -> Any:
    return sum(length_of(table.live()) for table in manager.tables.get(0, ()))


def _follows_the_hit(u: Any) -> Any:
    """Whether what is provided gets exactly the blocks that are missing after the hit, and the rest follows."""
    one, hit = group(Kind.FULL, u.block), Stretch(u.hit_blocks, "there")
    its = SimpleNamespace(
        blocks_occupied=lambda tokens: Times(expression_of(one.blocks_occupied(tokens))),
        entries=lambda tokens, slots: Times(expression_of(one.entries(tokens, slots))),
        layout=one.layout,
    )
    geometry: Any = SimpleNamespace(groups=(its,))
    table: Any = [Table([hit], 0, 0)]  # type: ignore[list-item]  # a stretch
    of_hit = u.hit_blocks * u.block
    end = of_hit + u.external
    with on_stretches():
        provided: Any = tables.plan_provided(geometry, table, end if u.external > 0 else 0)
        complete: Any = tables.plan(geometry, table, provided, end + u.behind, end + u.behind)
        first, both = tables.blocks_new(provided, [None]), tables.blocks_new(complete, provided)
    for layout in (*provided, *complete):
        if layout is None:
            continue
        first_of_all, *others = layout.stretches
        if first_of_all is not hit or any(each.what != "new" for each in others):
            return False
    fine: Any = (first >= 0) & (both >= first)
    for new, tokens in ((first, u.external), (both, u.external + u.behind)):
        # Those of the hit and the new ones have room for all tokens, and one fewer have not.
        count = u.hit_blocks + new
        room = (count * u.block >= of_hit + tokens) & ((count - 1) * u.block < of_hit + tokens)
        fine = fine & (implies(tokens == 0, new == 0) & implies(tokens > 0, room))
    return fine


NEW = tables.blocks_new
"""What it does, where nothing is broken."""


PLANNED = Obligation(
    id="external-tokens.blocks-follow-the-hit",
    statements=("KV-OP-24",),
    title="External tokens, however many, get exactly the blocks that they fill after a hit of any length: none of the "
    "hit's, none too many and never fewer than none. So do the tokens that are computed after them.",
    unknowns={"hit_blocks": Count(0), "block": Count(1), "external": Count(0), "behind": Count(0)},
    claim=_follows_the_hit,
    witnesses={
        "a block is shared by both parts": lambda u: (
            (u.hit_blocks == 70) & (u.block == 16) & (u.external == 90) & (u.behind == 2)
        )
    },
    mutants=(
        only(
            "takes-the-hit-anew",
            "Blocks are taken for the hit as well.",
            "kvreference.tables:plan_provided",
            lambda geometry, _tables, provided: [grown([], geometry.groups[0].blocks_occupied(provided))],
        ),
        only(
            "fewer-than-none",
            "Where nothing is provided, the hit's own blocks are subtracted.",
            "kvreference.tables:blocks_new",
            lambda layouts, _before: sum(-1 if layout is None else layout.count(None) for layout in layouts),
        ),
        only(
            "planned-next-to-what-is-provided",
            "What follows is planned on top of the hit alone.",
            "kvreference.tables:blocks_new",
            lambda layouts, before: NEW(layouts, before) + sum(each.count(None) for each in before if each is not None),
        ),
    ),
)

LOADED = {
    "tokens": Count(1),
    "hit": Count(0),
    "external": Count(0),
    "keeps_states": Count(0, 1),
    "arrives": Count(0, 1),
}


def _is_computed_here(u: Any) -> Any:
    """Whether what is provided lies after the hit, and the last token is computed here in any case."""
    load = Load(u)
    provided = load.answer.external_tokens
    end = u.hit + provided
    within = (provided <= u.external) & (end <= u.tokens) & (load.span.computed <= u.tokens - 1)
    if not load.loads:
        return within & (provided == 0) & (load.computed == u.tokens) & (load.span.provided == 0)
    if u.arrives == 0 and load.computed_after != 0:
        return False
    arrived = (load.computed_after <= u.tokens - 1) & (load.computed_after <= end) & (load.computed == end)
    whole = load.span.computed + load.span.tokens == end
    return within & arrived & whole & (load.span.provided == end) & load.waits


COMPUTED = Obligation(
    id="external-tokens.last-token-is-computed-here",
    statements=("KV-OP-24", "KV-LIVE-02"),
    title="A load brings at most what was offered after the hit, slots are made for exactly that, and the "
    "request's last token is computed here all the same; a load that failed counts as nothing.",
    unknowns=LOADED,
    assumes=lambda u: u.hit <= u.tokens - 1,
    claim=_is_computed_here,
    witnesses={
        "a whole prompt is loaded after a hit": lambda u: (
            (u.keeps_states == 0)
            & (u.arrives == 1)
            & (u.hit >= 2)
            & (u.external >= u.tokens - u.hit)
            & (u.tokens > u.hit + 2)
        ),
        "a load fails": lambda u: (u.arrives == 0) & (u.external >= 2) & (u.tokens > u.hit + 2),
    },
    mutants=(
        only(
            "all-counts-as-computed",
            "What was loaded counts as computed, the last token too: no answer follows from it.",
            "kvreference.population:Population._transferred",
            lambda _self, request, succeeded: _set(request, request.tokens_computed if succeeded else 0),
        ),
        only(
            "failed-counts-as-loaded",
            "After a load that failed its tokens count as computed.",
            "kvreference.population:Population._transferred",
            lambda _self, request, _succeeded: _set(request, request.tokens.number - 1),
        ),
    ),
)


def _set(request: Any, computed: Any) -> None:
    request.status, request.tokens_computed = Status.WAITING, computed


def _at_once(u: Any) -> Any:
    """Whether what arrives within the step leaves the last token to be computed in it."""
    load = Load(u, at_once=True)
    provided = load.answer.external_tokens
    return (
        (not load.loads)
        & (provided >= 0)
        & (provided <= u.external)
        & (u.hit + provided <= u.tokens - 1)
        & (load.span.computed == u.hit + provided)
        & (load.computed == u.tokens)
    )


_admit_with_hit = Manager._admit_with_hit


AT_ONCE = Obligation(
    id="external-tokens.at-once-leaves-the-last",
    statements=("KV-OP-24",),
    title="Of what arrives within a step the last token is never a part: it is computed in that step.",
    unknowns=LOADED,
    assumes=lambda u: u.hit <= u.tokens - 1,
    claim=_at_once,
    witnesses={
        "more is offered than can be used": lambda u: (u.hit >= 1) & (u.tokens > u.hit + 2) & (u.external > u.tokens)
    },
    mutants=(
        only(
            "takes-the-last-token",
            "A token more is taken than may be: where all that is left is offered, the last one too.",
            "kvreference.manager:Manager._admit_with_hit",
            lambda self, request, budget, hit, provided, later, lookahead: _admit_with_hit(
                self, request, budget, hit, least(provided + 1, request.tokens.number - hit.tokens), later, lookahead
            ),
        ),
    ),
)

CHUNKED = KINDS.index("chunked_local")


def _first_read(u: Any) -> Any:
    """The first token that the last token reads. Said anew here, from what each kind is."""
    last = u.tokens - 1
    if u.kind == CHUNKED:
        return last - last % u.window
    return last - u.window + 1


def _keeps_what_it_reads(u: Any) -> Any:
    load = Load(u)
    return not load.loads or first_kept(u, load) <= (_first_read(u) if _first_read(u) > 0 else 0)


WINDOW = Obligation(
    id="external-tokens.load-keeps-what-the-last-token-reads",
    statements=("KV-MEM-01", "KV-MEM-02", "KV-OP-24"),
    title="Where a whole prompt is loaded, no block is released that its last token, computed here, still reads.",
    unknowns={
        **LOADED,
        "kind": Count(1, CHUNKED),
        "block": Count(1),
        "window": Count(2),
        "drafts_max": Count(0, 0),
    },
    assumes=lambda u: (u.hit <= u.tokens - 1) & (u.keeps_states == 0) & (u.arrives == 1),
    claim=_keeps_what_it_reads,
    witnesses={
        "the first token it reads is the last of its block": lambda u: (
            (u.kind == 1)
            & (u.hit == 0)
            & (u.block >= 2)
            & (u.external >= u.tokens)
            & (u.tokens > u.window)
            & ((u.tokens - u.window + 1) % u.block == 0)
        )
    },
    mutants=(
        only(
            "load-forgets-its-last-token",
            "What is released follows from all tokens that are loaded (finding 009, vLLM 0.20.2).",
            "kvreference.manager:Span",
            lambda computed, tokens, lookahead, provided: Span(computed + tokens, 0, lookahead, provided),
        ),
    ),
)


def _is_held(u: Any) -> Any:
    """Whether blocks that another node reads or fills are held until it is done, and not after."""
    end = End(u)
    held = u.entries - u.dead
    released = (end.held_after == 0) & (end.free_after == u.blocks) & end.gone
    if u.stands == LOADING:
        return end.alive & (end.held == held) & released
    if (u.finishes == 1) & (u.sends == 1):
        first = end.first_held
        if first is None:
            return False
        return end.alive & (end.held == u.entries - first) & ((first == u.dead) | (first <= end.read)) & released
    return (not end.alive) & released


HELD = Obligation(
    id="external-tokens.held-until-the-transfer-is-over",
    statements=("KV-OP-25", "KV-OP-07"),
    title="A request that is aborted while it loads keeps all its blocks, and one that ends and is still read keeps "
    "all that its next token would read. Once the transfer is over, with success or without, nothing is held any more.",
    unknowns={
        "kind": Count(0, len(KINDS) - 1),
        "block": Count(1),
        "window": Count(2),
        "drafts_max": Count(0),
        "stands": Count(LOADING, RUNNING),
        "finishes": Count(0, 1),
        "sends": Count(0, 1),
        "arrives": Count(0, 1),
        "blocks": Count(1),
        "tokens": Count(1),
        "computed": Count(0),
        "entries": Count(1),
        "dead": Count(0),
    },
    assumes=lambda u: (
        (u.dead <= u.entries)
        & (u.entries - u.dead <= u.blocks)
        & (u.computed <= u.tokens)
        & ((u.stands == RUNNING) | (u.finishes == 0))
    ),
    claim=_is_held,
    witnesses={
        "aborted while it loads": lambda u: (u.stands == LOADING) & (u.entries >= u.dead + 2),
        "a window is sent": lambda u: (
            (u.kind == 1)
            & (u.sends == 1)
            & (u.finishes == 1)
            & (u.stands == RUNNING)
            & (u.computed > u.window + u.block)
            & (u.entries * u.block > u.computed)
            & (u.dead == 0)
        ),
    },
    mutants=(
        only(
            "abort-releases",
            "An aborted request frees its blocks, loading or not.",
            "kvreference.manager:holds_on",
            lambda request, operation: getattr(operation, "sends", False),
        ),
        only(
            "end-releases",
            "A request that ends frees its blocks, read or not.",
            "kvreference.manager:holds_on",
            lambda request, operation: request.status.value == "loading",
        ),
        only(
            "is-never-over",
            "A request that was read or aborted stays alive when the transfer is over.",
            "kvreference.population:Population._transferred",
            lambda *_: None,
        ),
    ),
)

OBLIGATIONS = (PLANNED, COMPUTED, AT_ONCE, WINDOW, HELD)
