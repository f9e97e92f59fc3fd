"""Chapters 04 and 11: what the admission gate counts is a bound, and what fits the empty pool is let in.

One group at a time for the bound; two groups, full attention and a sliding window, for the gate: more groups add more
of the same terms.
"""

from __future__ import annotations

from typing import Any

from kvreference import admission
from kvreference.attention import Kind
from kvreference.geometry import Group
from kvreference.mamba import StateMode
from kvspec.obligation import Count, Lemma, Obligation, only
from kvspec.proofs.attention_kinds import DEAD_FOR_GOOD, HELD_AT_ONCE, binds
from kvspec.stand_in import any_geometry, any_settings, group

KINDS: dict[Kind, tuple[str, str, dict[str, Count]]] = {
    Kind.FULL: ("full", "full attention", {"block": Count(1)}),
    Kind.SLIDING_WINDOW: ("window", "a sliding window", {"block": Count(1), "window": Count(2)}),
    Kind.CHUNKED_LOCAL: ("chunk", "chunked local attention", {"block": Count(1), "window": Count(2)}),
    Kind.MAMBA: ("states", "states", {"block": Count(1), "drafts": Count(0)}),
}
LIMITS = {"chunk_most": Count(1), "longest": Count(1)}


def group_of(kind: Kind, u: Any) -> Group:
    """The group that the unknowns describe."""
    if kind is Kind.MAMBA:
        return group(kind, u.block, states=StateMode.ALL, draft_states=u.drafts)
    return group(kind, u.block, u.window if "window" in KINDS[kind][2] else None)


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
    """Whatever chunk is computed, no more is held than was counted at admission."""
    name, words, unknowns = KINDS[kind]
    return Obligation(
        id=f"scheduler-progress.{name}-peak",
        statements=("KV-OP-03", "KV-LIVE-01"),
        sentence=f"With {words}, a request that was let in never holds more blocks than the gate counted for the "
        "tokens that it had, whatever it hit and however they are cut into chunks.",
        unknowns={
            **unknowns,
            **LIMITS,
            "tokens": Count(1),
            "computed": Count(0),
            "at": Count(0),
            "chunk": Count(1),
        },
        given=lambda u: (
            (u.computed <= u.at) & (u.chunk <= u.chunk_most) & (u.at + u.chunk <= u.tokens) & (u.tokens <= u.longest)
        ),
        shows=lambda u: _held(group_of(kind, u), u) <= _peak(group_of(kind, u), u),
        witnesses={
            "the bound is reached": lambda u: (
                (_held(group_of(kind, u), u) == _peak(group_of(kind, u), u)) & (u.block >= 2) & (u.at > u.computed)
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
    sentence="If a request fits the empty pool at the length that it may reach, it fits at every length before.",
    unknowns={**BOTH, "tokens": Count(1), "more": Count(0)},
    given=lambda u: fits(u, u.tokens + u.more),
    shows=lambda u: fits(u, u.tokens),
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
    """How many blocks of the hit are held: those that a token behind the computed ones reads."""
    return max(0, u.hit // its.block_size_tokens - its.blocks_unread(u.computed))


def _taken(u: Any) -> Any:
    """What the gate asks for where nobody holds a block: what is to come, and the blocks of the hit, which are free."""
    groups = both(u)
    live = [_hit_blocks(its, u) for its in groups]
    return admission.blocks_to_come(settings_of(u, *groups), u.tokens, u.computed, live) + sum(live)


LET_IN = Obligation(
    id="scheduler-progress.empty-pool-lets-in",
    statements=("KV-LIVE-01", "KV-OP-03"),
    sentence="A request that fits the empty pool passes the gate when nobody holds a block, whatever it hits and "
    "whatever arrives behind the hit.",
    unknowns={**BOTH, "tokens": Count(1), "hit": Count(0), "computed": Count(0)},
    given=lambda u: (u.hit <= u.computed) & (u.computed < u.tokens) & (u.tokens <= u.longest) & fits(u, u.tokens),
    shows=lambda u: _taken(u) <= u.blocks - 1,
    witnesses={"a hit": lambda u: (u.hit > u.full_block) & (u.hit > u.window) & (u.block >= 2) & (u.full_block >= 2)},
    mutants=(COUNTED_WHOLE,),
)

OBLIGATIONS = (*(bound(kind) for kind in KINDS), SHORTER, LET_IN)
