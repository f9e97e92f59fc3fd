"""Chapter 04, where states are kept at block ends only: where a chunk ends, and how many states are held at once."""

from __future__ import annotations

from typing import Any

from kvreference import mamba
from kvreference.attention import Kind
from kvreference.geometry import Group
from kvreference.mamba import StateMode
from kvspec.obligation import Count, Lemma, Obligation, only
from kvspec.proofs.multiples import MULTIPLE, SUM_OF_MULTIPLES
from kvspec.stand_in import group, sizes


def _cut(u: Any) -> Any:
    return mamba.tokens_to_boundary(u.computed, u.pending, u.block)


def _ends_of(computed: Any, pending: Any, block: Any) -> tuple[Lemma, ...]:
    """Whole blocks behind a block's end are as many blocks more."""
    whole = pending // block * block
    return (
        Lemma(MULTIPLE, {"factor": pending // block, "multiple": block, "unit": block}),
        Lemma(SUM_OF_MULTIPLES, {"multiple": computed, "other": whole, "unit": block}),
    )


CUT = Obligation(
    id="attention-kinds.states-chunk-ends-at-a-block",
    statements=("KV-OP-26", "KV-LIVE-02"),
    sentence="Where states are kept at block ends only, a chunk is never empty, and it ends where a block ends or "
    "stays inside one: no state is skipped that is to be kept.",
    unknowns={"block": Count(1), "computed": Count(0), "pending": Count(1)},
    shows=lambda u: (
        (_cut(u) >= 1)
        & (_cut(u) <= u.pending)
        & (((u.computed + _cut(u)) % u.block == 0) | (u.computed // u.block == (u.computed + _cut(u)) // u.block))
    ),
    lemmas=lambda u: _ends_of(u.computed, u.pending, u.block),
    witnesses={
        "it is cut": lambda u: (_cut(u) < u.pending) & (u.block >= 2) & (u.computed % u.block > 0),
        "it reaches no block's end": lambda u: (_cut(u) == u.pending) & ((u.computed + u.pending) % u.block > 0),
    },
    mutants=(
        only(
            "cut-to-nothing",
            "A chunk that reaches no block's end is cut to no token at all.",
            "kvreference.mamba:tokens_to_boundary",
            lambda computed, tokens, block: tokens // block * block,
        ),
        only(
            "state-inside-goes-on",
            "A state that stands inside a block is taken beyond that block's end at once.",
            "kvreference.mamba:tokens_to_boundary",
            lambda computed, tokens, block: tokens // block * block or tokens,
        ),
    ),
    binds=lambda _geometry, group: {"block": group.block_size_tokens} if group.attention.stops_at_block_ends else None,
)


def aligned_of(u: Any) -> Group:
    """A group that keeps states at block ends only."""
    return group(Kind.MAMBA, u.block, states=StateMode.ALIGN, draft_states=u.drafts)


def _next_step(u: Any) -> Any:
    """How many tokens the next step computes: one and its drafts, or a chunk of a prompt, without drafts."""
    if u.decodes:
        return 1 + u.proposed
    return mamba.tokens_to_boundary(u.end, u.pending, u.block)


def _grows(u: Any) -> Any:
    computed = u.end - u.rejected
    its = aligned_of(u)
    after = its.entries(computed + _next_step(u), 0)
    legal = (u.rejected <= u.drafts) & (u.proposed <= u.drafts) & (u.rejected < u.end)
    prompt = (u.rejected == 0) | (u.decodes == 1)
    return legal & prompt & (u.block >= 2 * u.drafts + 2) & (after > its.entries(u.end, 0))


def _held_when_it_grows(u: Any) -> Any:
    """How many entries of the table may still hold a state when it grows."""
    its = aligned_of(u)
    return its.entries(u.end, 0) - its.blocks_dead(u.end - u.rejected)


ALIGNED = Obligation(
    id="attention-kinds.aligned-states-held-at-most",
    statements=("KV-OP-03", "KV-OP-26", "KV-LIVE-01"),
    sentence="Where states are kept at block ends only, nothing but the running state and those of its drafts is held "
    "when a table grows; so with the new one no more are held than the bound that admission counts.",
    unknowns={
        "block": Count(2),
        "drafts": Count(0),
        "end": Count(1),
        "rejected": Count(0),
        "decodes": Count(0, 1),
        "proposed": Count(0),
        "pending": Count(1),
    },
    given=_grows,
    shows=lambda u: (
        (_held_when_it_grows(u) <= 1 + u.drafts)
        & (_held_when_it_grows(u) + 1 <= aligned_of(u).blocks_held_at_most(1, 1))
    ),
    lemmas=lambda u: _ends_of(u.end, u.pending, u.block),
    witnesses={
        "drafts were rejected": lambda u: (u.rejected >= 1) & (u.end % u.block > 0),
        "a chunk of a prompt": lambda u: (u.decodes == 0) & (u.drafts >= 1) & (u.end > u.block),
    },
    mutants=(
        only(
            "drafts-taken-back-twice",
            "Twice as many states are kept as there may be drafts to take back.",
            "kvreference.mamba:Mamba.tokens_dead",
            lambda self, tokens_computed: max(0, tokens_computed - 2 * self.draft_states - 1),
        ),
        only(
            "state-inside-goes-on",
            "A state that stands inside a block is taken beyond that block's end at once.",
            "kvreference.mamba:tokens_to_boundary",
            lambda computed, tokens, block: tokens // block * block or tokens,
        ),
    ),
    binds=sizes(Kind.MAMBA, StateMode.ALIGN, drafts="draft_states"),
)

OBLIGATIONS = (CUT, ALIGNED)
