"""Chapters 04 and 11: what admission counts is a bound, what fits the empty pool is admitted, and room stays room.

Need and holdings of a request are sums over groups, so it is enough to compare them in one group. That the code which
runs adds up all groups is read from its source (``kvspec.turns``). For the
gate there are two groups, full attention and a sliding window: more groups add more of the same terms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from kvreference import admission, attention
from kvreference.admission import blocks_at_peak, fits_empty_pool
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.refuted.scheduling import UnreservedLoad
from kvreference.scheduler import room
from kvreference.scheduler.room import blocks_parked, blocks_to_run, is_room
from kvreference.scheduler.scheduler import Scheduler
from kvspec.obligation import AMap, Count, Lemma, Obligation, only
from kvspec.progress.counted import counted, least, most
from kvspec.progress.promised import ASKED, asked_of, stays_within
from kvspec.progress.room import (
    KINDS,
    finds_its_blocks,
    first_blocks,
    first_states,
    group_of,
    had_room,
    has_room_behind,
    held,
    leaves_room,
    needed,
    settings_over,
)
from kvspec.proofs.attention_kinds import (
    ALIGNED,
    DEAD_FOR_GOOD,
    HELD_AT_ONCE,
    aligned_of,
    binds,
    grows,
    held_when_it_grows,
    next_step,
)
from kvspec.proofs.lemmas import MULTIPLE
from kvspec.stand_in import any_geometry, any_settings, group

PEAK_KINDS: dict[Kind, tuple[str, str, dict[str, Count]]] = {
    Kind.FULL: ("full", "full attention", {"block": Count(1)}),
    Kind.SLIDING_WINDOW: ("window", "a sliding window", {"block": Count(1), "window": Count(2)}),
    Kind.CHUNKED_LOCAL: ("chunk", "chunked local attention", {"block": Count(1), "window": Count(2)}),
    Kind.MAMBA: ("states", "states", {"block": Count(1), "drafts": Count(0)}),
}
LIMITS = {"chunk_most": Count(1), "longest": Count(1)}


def group_of_kind(kind: Kind, u: Any) -> Group:
    """The group that the unknowns describe."""
    if kind is Kind.MAMBA:
        return group(kind, u.block, states=StateMode.ALL, draft_states=u.drafts)
    return group(kind, u.block, u.window if "window" in PEAK_KINDS[kind][2] else None)


def settings_of(u: Any, *groups: Group) -> Any:
    """What admission reads of settings."""
    blocks = getattr(u, "blocks", 2)
    return any_settings(any_geometry(*groups), chunk_tokens=u.chunk_most, tokens_max=u.longest, blocks=blocks)


SKIPPED_SUBTRACTED = only(
    "skipped-blocks-subtracted",
    "What the hit makes unread is taken off the bound on what is held at once, too.",
    "kvreference.admission:blocks_at_peak",
    lambda settings, its, tokens, computed: (
        min(its.entries(tokens, tokens), its.blocks_held_at_most(settings.chunk_tokens, settings.tokens_max))
        - its.blocks_unread(computed)
    ),
)
MUTANTS = {
    Kind.FULL: only(
        "begun-block-not-counted",
        "A block that is begun and not full is not counted.",
        "kvreference.admission:blocks_at_peak",
        lambda settings, its, tokens, computed: tokens // its.block_size_tokens,
    ),
    Kind.SLIDING_WINDOW: SKIPPED_SUBTRACTED,
    Kind.CHUNKED_LOCAL: SKIPPED_SUBTRACTED,
    Kind.MAMBA: only(
        "drafts-without-states",
        "The states of drafts in flight are not counted.",
        "kvreference.mamba:Mamba.blocks_held_at_most",
        lambda self, chunk, longest, block: -(-longest // block),
    ),
}


def _held(its: Group, u: Any) -> Any:
    """How many blocks stand in the table while a chunk is computed, dead ones and those that were never held apart."""
    tokens = u.at + u.chunk
    dead = its.blocks_dead(u.at)
    # Drafts may be taken back: so fewer states may be dead than were unread at the hit. Elsewhere dead is unread.
    return its.entries(tokens, tokens) - (max(dead, its.blocks_unread(u.computed)) if its.keeps_states else dead)


def _peak(its: Group, u: Any) -> Any:
    return admission.blocks_at_peak(settings_of(u), its, u.tokens, u.computed)


def _of_chunks(u: Any) -> tuple[Lemma, ...]:
    its = {"block": u.block, "window": u.window}
    later = {"computed": u.computed, "more": u.at - u.computed}
    held = {"computed": u.at, "chunk": u.chunk, "chunk_most": u.chunk_most, "longest": u.longest}
    return (
        Lemma(DEAD_FOR_GOOD[Kind.CHUNKED_LOCAL], {**its, **later}),
        Lemma(HELD_AT_ONCE[Kind.CHUNKED_LOCAL], {**its, **held}),
    )


def bound(kind: Kind) -> Obligation:
    """For any chunk, no more is held than was counted at admission."""
    name, words, unknowns = PEAK_KINDS[kind]
    return Obligation(
        id=f"scheduler-progress.{name}-peak",
        statements=("KV-OP-03", "KV-LIVE-01"),
        title=f"With {words}, an admitted request never holds more blocks than the gate counted for the "
        "tokens that it had, for any hit and however they are cut into chunks.",
        unknowns={
            **unknowns,
            **LIMITS,
            "tokens": Count(1),
            "computed": Count(0),
            "at": Count(0),
            "chunk": Count(1),
        },
        assumes=lambda u: (
            (u.computed <= u.at) & (u.chunk <= u.chunk_most) & (u.at + u.chunk <= u.tokens) & (u.tokens <= u.longest)
        ),
        claim=lambda u: _held(group_of_kind(kind, u), u) <= _peak(group_of_kind(kind, u), u),
        witnesses={
            "the bound is reached": lambda u: (
                (_held(group_of_kind(kind, u), u) == _peak(group_of_kind(kind, u), u))
                & (u.block >= 2)
                & (u.at > u.computed)
            )
        },
        mutants=(MUTANTS[kind],),
        lemmas=lambda u: _of_chunks(u) if kind is Kind.CHUNKED_LOCAL else (),
        binds=binds(kind, StateMode.ALL),
    )


# The gate, over full attention and a sliding window

BOTH = {"full_block": Count(1), "block": Count(1), "window": Count(2), **LIMITS, "blocks": Count(2)}


def both(u: Any) -> tuple[Group, Group]:
    """Full attention and a sliding window, with blocks of their own sizes."""
    return group(Kind.FULL, u.full_block), group(Kind.SLIDING_WINDOW, u.block, u.window)


def fits(u: Any, tokens: Any) -> Any:
    """Whether so many tokens fit the empty pool, by the code that runs."""
    return admission.fits_empty_pool(settings_of(u, *both(u)), tokens)


COUNTED_WHOLE = only(
    "first-chunk-alone",
    "Only the first chunk of a request is counted when it is accepted.",
    "kvreference.admission:fits_empty_pool",
    lambda settings, tokens: (
        admission.blocks_to_come(settings, min(tokens, settings.chunk_tokens), 0, (0,) * len(settings.geometry.groups))
        <= settings.blocks - 1
    ),
)

SHORTER = Obligation(
    id="scheduler-progress.shorter-fits-too",
    statements=("KV-LIVE-01", "KV-OP-03"),
    title="If a request fits the empty pool at the length that it may reach, it fits at every length before.",
    unknowns={**BOTH, "tokens": Count(1), "more": Count(0)},
    assumes=lambda u: fits(u, u.tokens + u.more),
    claim=lambda u: fits(u, u.tokens),
    witnesses={"just so": lambda u: (u.more > 2) & (u.window > u.block) & (u.block >= 2)},
    mutants=(
        only(
            "window-not-held",
            "Of a window no more is counted than what the last token reads.",
            "kvreference.admission:blocks_at_peak",
            lambda settings, its, tokens, computed: its.entries(tokens, tokens) - its.blocks_unread(tokens),
        ),
    ),
)


def _hit_blocks(its: Group, u: Any) -> Any:
    """How many blocks of the hit are held: those that a token after the computed ones reads."""
    return max(0, u.hit // its.block_size_tokens - its.blocks_unread(u.computed))


def _taken(u: Any) -> Any:
    """The blocks that the gate asks for if no block is held: those to come, and those of the hit, which are free."""
    groups = both(u)
    live = [_hit_blocks(its, u) for its in groups]
    return admission.blocks_to_come(settings_of(u, *groups), u.tokens, u.computed, live) + sum(live)


ADMITTED = Obligation(
    id="scheduler-progress.empty-pool-lets-in",
    statements=("KV-LIVE-01", "KV-OP-03"),
    title="A request that fits the empty pool passes the gate when no block is held, for any hit and "
    "any load after the hit.",
    unknowns={**BOTH, "tokens": Count(1), "hit": Count(0), "computed": Count(0)},
    assumes=lambda u: (u.hit <= u.computed) & (u.computed < u.tokens) & (u.tokens <= u.longest) & fits(u, u.tokens),
    claim=lambda u: _taken(u) <= u.blocks - 1,
    witnesses={"a hit": lambda u: (u.hit > u.full_block) & (u.hit > u.window) & (u.block >= 2) & (u.full_block >= 2)},
    mutants=(COUNTED_WHOLE,),
)

ADMISSION = (*(bound(kind) for kind in PEAK_KINDS), SHORTER, ADMITTED)


SIZES = {
    "kind": Count(0, len(KINDS) - 1),
    "block": Count(1),
    "window": Count(2),
    "drafts_max": Count(0),
    "lookahead": Count(0, 1),
    "tokens_max": Count(2),
    "chunk": Count(1),
    "blocks": Count(2),
}
SLOTS = {"ratio": Count(1), "whole": Count(0, 1)}
"""How many tokens a slot holds, and whether one that is only begun is not stored."""


AT_BLOCK_ENDS = len(KINDS) - 1


def _binds(_geometry: Geometry, group: Group) -> Mapping[str, int] | None:
    """The sizes of a group of a user's model."""
    if group.copies:
        return None
    kind = AT_BLOCK_ENDS if group.attention.stops_at_block_ends else KINDS.index(group.kind.value)
    sizes = {"kind": kind, "block": group.block_size_tokens, "ratio": group.compress_ratio, "whole": group.whole_slots}
    return {**sizes, "window": group.window_tokens} if group.window_tokens is not None else sizes


def _binds_but_at_block_ends(geometry: Geometry, group: Group) -> Mapping[str, int] | None:
    if group.attention.stops_at_block_ends or group.whole_slots:
        return None
    return _each_token(geometry, group)


def _each_token(geometry: Geometry, group: Group) -> Mapping[str, int] | None:
    """The sizes of a group that stores each token."""
    return {name: size for name, size in (_binds(geometry, group) or {}).items() if name not in SLOTS} or None


def _whole_blocks(u: Any) -> tuple[Lemma, ...]:
    """Attention chunks of whole blocks begin where a block begins."""
    if KINDS[u.kind] != "chunked_local":
        return ()
    return (Lemma(MULTIPLE, {"factor": u.computed // u.window, "multiple": u.window, "unit": u.block}),)


def _counting(claim: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``claim``, of counts."""

    def of_counts(u: Any) -> Any:
        with counted():
            return claim(u)

    return of_counts


def _enough(settings: Any, tokens: Any, lookahead: bool = True, drafts: bool = True) -> Any:
    """What is needed, without a part of it."""
    computed = least(tokens + (settings.drafts_max if drafts else 0), settings.tokens_max)
    slots = least(computed + (settings.lookahead_tokens if lookahead else 0), settings.tokens_max)
    span = settings.chunk_tokens + (settings.lookahead_tokens if lookahead else 0)
    groups = settings.geometry.groups
    return sum(least(g.entries(computed, slots), g.blocks_held_at_most(span, settings.tokens_max)) for g in groups)


ENOUGH = Obligation(
    id="scheduler-progress.needed-is-enough",
    statements=("KV-LIVE-01", "KV-LIVE-02"),
    title="A request never holds more blocks than it was said to need when it was accepted, its drafts and their "
    "look-ahead slots included. States that are kept at block ends only have a proof of their own.",
    unknowns={
        **SIZES,
        **{"kind": Count(0, AT_BLOCK_ENDS - 1), "limit": Count(2), "computed": Count(0), "tokens": Count(0)},
    },
    assumes=lambda u: (
        (u.tokens <= u.chunk)
        & (u.computed + u.tokens <= u.limit - 1 + u.drafts_max)
        & (u.computed + u.tokens <= u.tokens_max - 1)
        & (u.limit <= u.tokens_max)
    ),
    claim=lambda u: held(u) <= needed(u, u.limit - 1),
    lemmas=_whole_blocks,
    witnesses={
        "a window was recycled, and all of it is needed": lambda u: (
            (u.kind == 1) & (u.computed > u.window) & (u.block >= 2) & (held(u) == needed(u, u.limit - 1))
        )
    },
    mutants=(
        only(
            "look-ahead-not-reserved",
            "Look-ahead slots are not counted (vllm-project/vllm#57104).",
            "kvreference.scheduler.room:blocks_to_run",
            lambda settings, tokens: _enough(settings, tokens, lookahead=False),
        ),
        only(
            "drafts-not-reserved",
            "The slots of drafts are not counted.",
            "kvreference.scheduler.room:blocks_to_run",
            lambda settings, tokens: _enough(settings, tokens, drafts=False),
        ),
    ),
    binds=_binds_but_at_block_ends,
)


def _entries(u: Any, more: Any = 0) -> Any:
    with counted():
        return group_of(u).entries(u.tokens + more, u.slots + more)


WHOLE_SLOTS = Obligation(
    id="scheduler-progress.whole-slots-take-no-more",
    statements=("KV-LIVE-01", "KV-LIVE-02"),
    title="Where only whole slots are stored, however many tokens each holds, a table has no more entries than where "
    "each token is stored, and no fewer for more tokens. So what is enough there is enough here.",
    unknowns={**SIZES, **SLOTS, "tokens": Count(), "slots": Count(), "more": Count()},
    claim=lambda u: (
        (_entries(u) <= _entries(SimpleNamespace(**{**vars(u), "whole": 0}))) & (_entries(u) <= _entries(u, u.more))
    ),
    witnesses={
        "a slot is begun": lambda u: (
            (u.kind == 1)
            & (u.whole == 1)
            & (u.ratio == 4)
            & (u.block == 8)
            & (u.slots == 17)
            & (_entries(u) < _entries(SimpleNamespace(**{**vars(u), "whole": 0})))
        )
    },
    mutants=(
        only(
            "begun-slot-is-whole",
            "A slot that is begun is counted with all its tokens.",
            "kvreference.geometry:Group.tokens_stored",
            lambda self, tokens: (tokens + tokens % self.compress_ratio) if self.whole_slots else tokens,
        ),
    ),
    binds=lambda _geometry, group: (
        {"block": group.block_size_tokens, "ratio": group.compress_ratio, "whole": 1} if group.whole_slots else None
    ),
)


def _need_of_groups(u: Any) -> Any:
    """What a request of any length is said to need in one group after others, which stand here as one."""
    before: Any = SimpleNamespace(entries=lambda *_: u.before, blocks_held_at_most=lambda *_: u.before, copies=0)
    its: Any = SimpleNamespace(
        entries=lambda tokens, slots: u.entries[tokens, slots],
        blocks_held_at_most=lambda span, longest: u.most[span, longest],
        copies=u.copies == 1,
    )
    with counted():
        return room.blocks_to_run(settings_over(u, before, its), u.tokens)


def _of_each_group(settings: Any, tokens: Any) -> list[Any]:
    """What is needed in each group."""
    one_by_one: Any = [
        SimpleNamespace(**{**vars(settings), "geometry": SimpleNamespace(groups=(each,))})
        for each in settings.geometry.groups
    ]
    return [_NEEDS(one, tokens) for one in one_by_one]


_NEEDS = blocks_to_run
"""What is needed, where nothing is broken."""


def _holds_at_most(u: Any) -> Any:
    """What it holds at most in the group when it computes its last tokens and drafts, a source of a copy included."""
    computed = least(u.tokens + u.drafts_max, u.tokens_max)
    lookahead = u.drafts_max if u.lookahead else 0
    slots = least(computed + lookahead, u.tokens_max)
    return least(u.entries[computed, slots], u.most[u.chunk + lookahead, u.tokens_max]) + u.copies


NEED_ADDS_UP = Obligation(
    id="scheduler-progress.need-adds-up",
    statements=("KV-LIVE-01", "KV-LIVE-02"),
    title="One group, after others in which a request needs any number of blocks, adds what the request holds in it at "
    "most, drafts and look-ahead included, and the block that a copy reads.",
    unknowns={
        **{name: SIZES[name] for name in ("drafts_max", "lookahead", "tokens_max", "chunk", "blocks")},
        **{name: Count() for name in ("before", "tokens")},
        "copies": Count(0, 1),
        "entries": AMap(2),
        "most": AMap(2),
    },
    claim=lambda u: _need_of_groups(u) == u.before + _holds_at_most(u),
    witnesses={
        "what is held at once is less": lambda u: (
            (u.before == 3)
            & (u.copies == 1)
            & (u.lookahead == 1)
            & (u.drafts_max == 2)
            & (u.tokens == 9)
            & (u.tokens_max == 12)
            & (u.chunk == 4)
            & (u.entries[11, 12] == 7)
            & (u.most[6, 12] == 5)
        )
    },
    mutants=(
        only(
            "copies-are-not-counted",
            "The block that a copy reads is not counted.",
            "kvreference.scheduler.room:blocks_to_run",
            lambda settings, tokens: _enough(settings, tokens),
        ),
        only(
            "only-the-largest-counts",
            "Of all groups only the one that needs most is counted.",
            "kvreference.scheduler.room:blocks_to_run",
            lambda settings, tokens: most(*_of_each_group(settings, tokens)),
        ),
        only(
            "only-the-first-counts",
            "Of all groups only the first is counted.",
            "kvreference.scheduler.room:blocks_to_run",
            lambda settings, tokens: _of_each_group(settings, tokens)[0],
        ),
    ),
)

FIRST_ALLOCATION = {
    **SIZES,
    **{name: Count(1) for name in ("tokens", "limit")},
    **{name: Count() for name in ("hit", "end", "computed", "chunk_tokens")},
}


def is_admitted(u: Any) -> Any:
    """A hit, and what another node provides after it: the last token is computed here, now or after a load."""
    loads = (u.hit < u.end) & (u.chunk_tokens == u.end - u.computed)
    computes = (u.end < u.tokens) & (u.chunk_tokens >= 1) & (u.computed + u.chunk_tokens <= u.tokens)
    here = (u.computed == least(u.end, u.tokens - 1)) & (u.hit <= u.end) & (u.hit < u.tokens) & (u.end <= u.tokens)
    fits = (u.tokens < u.limit) & (u.limit <= u.tokens_max) & (u.chunk_tokens <= u.chunk)
    return here & fits & (loads | computes)


HELD_WHOLE = only(
    "hit-is-held-whole",
    "Of a hit the blocks are held, too, that no later token reads.",
    "kvreference.geometry:Group.blocks_unread",
    lambda self, tokens: 0,
)

FIRST_ENOUGH = Obligation(
    id="scheduler-progress.needed-is-enough-at-first",
    statements=("KV-LIVE-01", "KV-LIVE-02"),
    title="With any hit and any load after it, the first blocks of a request, those of the hit included, are no more "
    "than it was said to need when it was accepted, besides the blocks that are copied. States that are kept at block "
    "ends only have a proof of their own.",
    unknowns={**FIRST_ALLOCATION, "kind": Count(0, AT_BLOCK_ENDS - 1)},
    assumes=is_admitted,
    claim=lambda u: first_blocks(u) <= needed(u, u.limit - 1),
    lemmas=_whole_blocks,
    witnesses={
        "a window, after a load": lambda u: (
            (u.kind == 1)
            & (u.block >= 2)
            & (u.hit >= u.block)
            & (u.computed > u.window)
            & (u.end > u.hit)
            & (first_blocks(u) == needed(u, u.limit - 1))
        ),
        "a whole prompt is loaded": lambda u: (u.kind == 0) & (u.block >= 2) & (u.end == u.tokens) & (u.hit >= u.block),
    },
    mutants=(
        HELD_WHOLE,
        only(
            "loads-by-the-block",
            "For a load one more block is taken.",
            "kvreference.geometry:Group.blocks_occupied",
            lambda self, tokens: -(-tokens // self.block_size_tokens) + 1,
        ),
    ),
    binds=_binds_but_at_block_ends,
)

FIRST_STATES = Obligation(
    id="scheduler-progress.needed-is-enough-for-first-states",
    statements=("KV-LIVE-01", "KV-LIVE-02"),
    title="The same where states are kept at block ends only: of its hit, of a load and of its first chunk a request "
    "holds one state each at most, and those of its drafts.",
    unknowns={**FIRST_ALLOCATION, "kind": Count(AT_BLOCK_ENDS, AT_BLOCK_ENDS)},
    assumes=lambda u: is_admitted(u) & (u.end < u.tokens),
    claim=lambda u: first_states(u) <= needed(u, u.limit - 1),
    witnesses={
        "a hit, and a state after it": lambda u: (
            (u.block >= 2) & (u.hit == u.end) & (u.drafts_max == 1) & (first_states(u) == 2 + u.drafts_max)
        ),
        "a load": lambda u: (u.block >= 2) & (u.hit >= u.block) & (u.end > u.hit + u.block) & (u.chunk_tokens == 0),
    },
    mutants=(
        HELD_WHOLE,
        only(
            "states-between-are-kept",
            "A state is taken for each block of a chunk.",
            "kvreference.mamba:AlignedMamba.layout",
            lambda self, blocks, entries, fresh: _grown_at_its_end(blocks, entries),
        ),
    ),
    binds=lambda geometry, its: _each_token(geometry, its) if its.attention.stops_at_block_ends else None,
)


def _grown_at_its_end(blocks: Any, entries: Any) -> Any:
    """A table that grows at its end."""
    return attention.grown([blocks], entries)


def _reaches(u: Any) -> Any:
    """How far the next step of a request with states at block ends reaches."""
    return u.end - u.rejected + next_step(u)


def _states_needed(u: Any) -> Any:
    with counted():
        blocks: Any = blocks_to_run(settings_over(u, aligned_of(u)), u.limit - 1)
        return blocks


ENOUGH_STATES = Obligation(
    id="scheduler-progress.needed-is-enough-for-states",
    statements=("KV-LIVE-01", "KV-LIVE-02"),
    title="The same where states are kept at block ends only: when its table grows, a request holds no more blocks "
    "than it was said to need.",
    unknowns={
        **ALIGNED.unknowns,
        **{"limit": Count(2), "tokens_max": Count(2), "chunk": Count(1), "blocks": Count(2), "lookahead": Count(0, 1)},
    },
    assumes=lambda u: (
        grows(_named(u))
        & (u.limit <= u.tokens_max)
        & (_reaches(u) <= u.limit - 1 + u.drafts)
        & (_reaches(u) <= u.tokens_max - 1)
    ),
    claim=lambda u: held_when_it_grows(u) + 1 <= _states_needed(_named(u)),
    lemmas=ALIGNED.lemmas,
    witnesses={
        "it is all needed": lambda u: (
            (u.drafts >= 1) & (u.end > u.block) & (held_when_it_grows(u) + 1 == _states_needed(_named(u)))
        )
    },
    mutants=(
        only(
            "new-state-not-reserved",
            "Of a request's states, the one that it comes from is not counted.",
            "kvreference.mamba:AlignedMamba.blocks_held_at_most",
            lambda self, chunk_tokens, tokens_max, block_size_tokens: 1 + self.draft_states,
        ),
    ),
    binds=ALIGNED.binds,
)


def _named(u: Any) -> Any:
    """The unknowns, in which a group has room for as many drafts as there may be."""
    return SimpleNamespace(**{**vars(u), "drafts_max": u.drafts})


def _passes_gate(u: Any) -> Any:
    """Whether the gate of an empty pool lets in who was accepted."""
    settings = settings_over(u, group_of(u))
    return not needed(u, u.limit - 1) <= u.blocks - 1 or fits_empty_pool(settings, u.tokens)


GATE = Obligation(
    id="scheduler-progress.accepted-passes-gate",
    statements=("KV-LIVE-01", "KV-OP-03"),
    title="An accepted request passes the admission gate of an empty pool, however long it has become.",
    unknowns={**SIZES, **SLOTS, "limit": Count(2), "tokens": Count(1)},
    assumes=lambda u: (u.tokens <= u.limit - 1) & (u.limit <= u.tokens_max),
    claim=_counting(_passes_gate),
    witnesses={
        "a window that was counted whole would not fit": lambda u: (
            (u.kind == 1)
            & (u.block >= 2)
            & (needed(u, u.limit - 1) == u.blocks - 1)
            & (-(-u.tokens // u.block) > u.blocks - 1)
        )
    },
    mutants=(
        only(
            "window-counted-whole",
            "The gate counts a window as if nothing were freed (vllm-project/vllm#39734).",
            "kvreference.admission:blocks_at_peak",
            lambda _settings, group, tokens, _computed: group.entries(tokens, tokens),
        ),
    ),
    binds=_binds,
)


def _at_peak(u: Any) -> Any:
    group = group_of(u)
    return blocks_at_peak(settings_over(u, group), group, u.tokens, u.computed)


PEAK = Obligation(
    id="scheduler-progress.gate-counts-no-more",
    statements=("KV-LIVE-01", "KV-OP-03"),
    title="From any start, the admission gate never counts more for a request than its computed need.",
    unknowns={**SIZES, **SLOTS, "limit": Count(2), "tokens": Count(1), "computed": Count(0)},
    assumes=lambda u: (u.computed < u.tokens) & (u.tokens <= u.limit - 1) & (u.limit <= u.tokens_max),
    claim=_counting(lambda u: _at_peak(u) <= needed(u, u.limit - 1)),
    witnesses={
        "look-ahead makes the difference": _counting(
            lambda u: (u.kind == 0) & (u.block >= 2) & (_at_peak(u) < needed(u, u.limit - 1))
        )
    },
    mutants=(
        only(
            "said-for-fewer-tokens",
            "A request is said to need what a shorter one needs.",
            "kvreference.scheduler.room:blocks_to_run",
            lambda settings, tokens: blocks_to_run(settings, tokens - 1 - settings.drafts_max),
        ),
    ),
    binds=_binds,
)

GROWS = Obligation(
    id="scheduler-progress.needed-grows",
    statements=("KV-LIVE-01",),
    title="A longer request never needs fewer blocks, so one that fits at its end fits at every length before.",
    unknowns={**SIZES, **SLOTS, "less": Count(0), "more": Count(0)},
    assumes=lambda u: u.less <= u.more,
    claim=lambda u: needed(u, u.less) <= needed(u, u.more),
    witnesses={"it needs more": lambda u: (u.block >= 2) & (needed(u, u.less) + 1 < needed(u, u.more))},
    mutants=(
        only(
            "look-ahead-for-short-ones-only",
            "Look-ahead slots are counted only for those that are shorter than a chunk.",
            "kvreference.scheduler.room:blocks_to_run",
            lambda settings, tokens: _enough(settings, tokens, lookahead=bool(tokens < settings.chunk_tokens)),
        ),
    ),
    binds=_binds,
)

ROOM = Obligation(
    id="scheduler-progress.room-is-enough",
    statements=("KV-LIVE-01", "KV-LIVE-02"),
    title="While there is room for the first request, the blocks it wants are no more than those left once all that "
    "run after it freed theirs.",
    unknowns={name: Count() for name in ("blocks", "needed", "parked", "wanted", "held")},
    assumes=lambda u: (u.held <= u.wanted) & (u.wanted <= u.needed) & (u.held + u.parked <= u.blocks),
    claim=finds_its_blocks,
    witnesses={
        "it takes the last block": lambda u: (
            (u.held >= 1)
            & (u.parked >= 1)
            & (u.wanted > u.held)
            & (u.wanted == u.needed)
            & (u.blocks == u.parked + u.wanted)
        )
    },
    mutants=(
        only(
            "parked-is-not-counted",
            "Blocks of those that cannot be preempted are taken for free ones.",
            "kvreference.scheduler.room:is_room",
            lambda blocks, needed, _parked: all(need <= blocks for need in needed.values()),
        ),
    ),
)

TWO = (*ASKED, "blocks", "tokens", "needed", "held", "external", "rest", "other_needed", "other_held")


def _one_applicant(u: Any) -> Any:
    """Two requests as they may stand: the one that asks is back from a load, or holds nothing."""
    sizes = (u.tokens <= u.needed) & (u.held <= u.needed) & (u.other_held <= u.other_needed)
    applies = ((u.entered == 1) & (u.parks == 0)) | ((u.entered == 0) & (u.held == 0))
    accepted = (u.needed <= u.blocks) & (u.other_needed <= u.blocks)
    return sizes & applies & accepted & stays_within(SimpleNamespace(**asked_of(u)), u.tokens)


def _leaves_room_for_one(self: Any, number: int) -> Any:
    """The rule of the reference, without all that were admitted after the first."""
    later = [other for other in self.queues.terms if self.queues.terms[other].entered and other != number][1:]
    terms = {other: its for other, its in self.queues.terms.items() if other not in later}
    with patch.object(self.queues, "terms", terms):
        return _LEAVES_ROOM(self, number)


_LEAVES_ROOM = Scheduler._leaves_room
"""The rule of the reference, where nothing is broken."""


def _forgets_those_that_run(self: Any, number: int) -> Any:
    """The rule of the reference, with no request running."""
    terms, parked = self.queues.terms, blocks_parked(self.manager.tables, self.queues.running)
    admitted = [other for other in terms if other == number or (terms[other].entered and other in parked)]
    if terms[number].parks:
        parked[number] = self._blocks_to_run(self.manager.population[number].tokens.number)
    needed = {other: self._blocks_to_run(terms[other].limit_tokens - 1) for other in admitted}
    return is_room(self.settings.blocks - 1, needed, parked)


STAYS = Obligation(
    id="scheduler-progress.admission-keeps-room",
    statements=("KV-LIVE-01", "KV-LIVE-02"),
    title="An admitted request has room, and leaves it to all admitted before: a load begins only if "
    "the blocks that it locks are in no request's way.",
    unknowns={
        **{name: Count() for name in TWO},
        **{name: Count(0, 1) for name in ("entered", "parks", "other_runs")},
    },
    assumes=lambda u: had_room(u) if _one_applicant(u) else False,
    claim=has_room_behind,
    witnesses={
        "a load is begun next to another": lambda u: (
            leaves_room(u)
            and (u.parks == 1)
            & (u.left + u.gets >= 1)
            & (u.other_runs == 0)
            & (u.other_held >= 1)
            & (u.other_needed > u.other_held)
        ),
        "one back from a load runs": lambda u: leaves_room(u) and (u.entered == 1) & (u.held >= 1) & (u.rest >= 1),
    },
    mutants=(
        only(
            "load-unreserved",
            "A load is begun if it fits by itself (vllm-project/vllm#45388).",
            "kvreference.scheduler.scheduler:Scheduler._leaves_room",
            UnreservedLoad._leaves_room,
        ),
        only(
            "room-for-one-other-only",
            "A load leaves room for one of those that were admitted before.",
            "kvreference.scheduler.scheduler:Scheduler._leaves_room",
            _leaves_room_for_one,
        ),
        only(
            "only-the-first-table-is-parked",
            "Of the blocks that a request holds, those in its first table count.",
            "kvreference.scheduler.scheduler:blocks_parked",
            lambda tables, running: blocks_parked({number: its[:1] for number, its in tables.items()}, running),
        ),
        only(
            "those-that-run-forgotten",
            "A load leaves room for those that wait with their blocks, and for none that run.",
            "kvreference.scheduler.scheduler:Scheduler._leaves_room",
            _forgets_those_that_run,
        ),
    ),
)


ROOM_STAYS = (
    NEED_ADDS_UP,
    WHOLE_SLOTS,
    ENOUGH,
    FIRST_ENOUGH,
    ENOUGH_STATES,
    FIRST_STATES,
    GATE,
    PEAK,
    GROWS,
    ROOM,
    STAYS,
)
OBLIGATIONS = (*ADMISSION, *ROOM_STAYS)
