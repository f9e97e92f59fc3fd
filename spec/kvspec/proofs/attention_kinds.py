"""Chapter 04: what is freed is read no more, what a hit needs is what is read, and no more is held than is counted.

Where states are kept at block ends only: where a chunk ends, and how many states are held at once.
"""

from __future__ import annotations

from typing import Any

from kvreference import attention, mamba
from kvreference.attention import Kind
from kvreference.geometry import Group
from kvreference.mamba import StateMode
from kvspec.obligation import Count, Lemma, Mutant, Obligation, only
from kvspec.proofs.lemmas import MULTIPLE, SUM_OF_MULTIPLES
from kvspec.stand_in import group, sizes
from kvspec.symbolic import implies

WINDOW, CHUNK, STATES = Kind.SLIDING_WINDOW, Kind.CHUNKED_LOCAL, Kind.MAMBA
NAMES = {WINDOW: "window", CHUNK: "chunk", STATES: "states"}
WORDS = {WINDOW: "a sliding window", CHUNK: "chunked local attention", STATES: "a table of states"}

SIZES = {WINDOW: {"block": Count(1), "window": Count(2)}, CHUNK: {"block": Count(1), "window": Count(2)}}
SIZES[STATES] = {"block": Count(1), "drafts": Count(0)}


def group_of(kind: Kind, u: Any) -> Group:
    """The group that the unknowns describe."""
    if kind is STATES:
        return group(kind, u.block, states=StateMode.ALL, draft_states=u.drafts)
    return group(kind, u.block, u.window)


def binds(kind: Kind, *modes: StateMode) -> Any:
    """The sizes of a group of ``kind`` in a user's model; of states, in these modes, or in all."""
    return sizes(kind, *(modes or StateMode), drafts="draft_states") if kind is STATES else sizes(kind)


def reads(kind: Kind, u: Any, at: Any, position: Any) -> Any:
    """Whether the token at position ``at`` reads what is kept for the one at ``position``, one before it.

    Said anew here, from what each kind is, and not by the formulas that are proved.
    """
    if kind is WINDOW:
        return (at - u.window < position) & (position < at)
    if kind is CHUNK:
        return (at // u.window == position // u.window) & (position < at)
    return position == at - 1


MUTANTS: dict[Kind, dict[str, Mutant]] = {
    WINDOW: {
        "early": only(
            "window-a-token-short",
            "The window is taken to be a token shorter than it is.",
            "kvreference.attention:tokens_skipped",
            lambda tokens_computed, window_tokens: max(0, tokens_computed - window_tokens + 2),
        ),
        "late": only(
            "window-a-token-long",
            "The window is taken to be a token longer than it is.",
            "kvreference.attention:tokens_skipped",
            lambda tokens_computed, window_tokens: max(0, tokens_computed - window_tokens),
        ),
    },
    CHUNK: {
        "early": only(
            "chunk-ends-early",
            "A token that ends an attention chunk is taken to begin the next one.",
            "kvreference.attention:tokens_before_chunk",
            lambda tokens_computed, chunk_tokens: (tokens_computed + 1) // chunk_tokens * chunk_tokens,
        ),
        "late": only(
            "chunk-ends-late",
            "A token that begins an attention chunk is taken to end the one before.",
            "kvreference.attention:tokens_before_chunk",
            lambda tokens_computed, chunk_tokens: max(0, tokens_computed - 1) // chunk_tokens * chunk_tokens,
        ),
    },
    STATES: {
        "early": only(
            "state-given-up-at-its-end",
            "The running state is released with the token whose state it is.",
            "kvreference.mamba:Mamba.tokens_dead",
            lambda self, tokens_computed: max(0, tokens_computed - self.draft_states),
        ),
        "late": only(
            "two-states-are-read",
            "A resume is taken to read two states, where the one before it is enough.",
            "kvreference.mamba:Mamba.tokens_unread",
            lambda self, hit_tokens: max(0, hit_tokens - 2),
        ),
    },
}


def dead_is_unread(kind: Kind) -> Obligation:
    """No token after the computed ones reads a released block, drafts that are taken back included."""

    def assumes(u: Any) -> Any:
        earliest = u.computed - u.drafts if kind is STATES else u.computed
        return (earliest <= u.at) & reads(kind, u, u.at, u.position)

    def claim(u: Any) -> Any:
        its = group_of(kind, u)
        dead = its.blocks_dead(u.computed)
        return (u.position // u.block >= dead) & (its.blocks_unread(u.at) >= dead)

    return Obligation(
        id=f"attention-kinds.{NAMES[kind]}-dead-is-unread",
        statements=("KV-OP-06", "KV-MEM-01", *(("KV-OP-26",) if kind is STATES else ())),
        title=f"A block that {WORDS[kind]} releases holds nothing that a later token reads, or a resume there"
        + (", even if all drafts in flight are taken back." if kind is STATES else "."),
        unknowns={**SIZES[kind], "computed": Count(0), "at": Count(0), "position": Count(0)},
        assumes=assumes,
        claim=claim,
        witnesses={"blocks are released": lambda u: (group_of(kind, u).blocks_dead(u.computed) >= 2) & (u.block >= 2)},
        mutants=(MUTANTS[kind]["early"],),
        binds=binds(kind),
    )


def dead_for_good(kind: Kind) -> Obligation:
    """Dead blocks stay dead, and unread blocks stay unread."""

    def claim(u: Any) -> Any:
        its = group_of(kind, u)
        before, after = u.computed, u.computed + u.more
        return (its.blocks_dead(before) <= its.blocks_dead(after)) & (
            its.blocks_unread(before) <= its.blocks_unread(after)
        )

    broken = {
        WINDOW: ("kvreference.attention:tokens_skipped", lambda computed, window: abs_of(computed - window + 1)),
        CHUNK: ("kvreference.attention:tokens_before_chunk", lambda computed, chunk: computed % chunk),
        STATES: (
            "kvreference.mamba:Mamba.tokens_dead",
            lambda its, tokens: abs_of(tokens - its.draft_states - 1),
        ),
    }[kind]
    return Obligation(
        id=f"attention-kinds.{NAMES[kind]}-dead-for-good",
        statements=("KV-OP-06",),
        title=f"A block that {WORDS[kind]} has released is never needed again: with more tokens, as many or more "
        "are dead.",
        unknowns={**SIZES[kind], "computed": Count(0), "more": Count(0)},
        claim=claim,
        witnesses={
            "more are dead": lambda u: (
                group_of(kind, u).blocks_dead(u.computed) + 2 <= group_of(kind, u).blocks_dead(u.computed + u.more)
            )
        },
        mutants=(only("dead-come-back", "What is dead is counted so that it may become less.", *broken),),
        binds=binds(kind),
    )


def abs_of(number: Any) -> Any:
    """The absolute value, on terms too."""
    return max(number, -number)


def hit_is_sound(kind: Kind) -> Obligation:
    """All that the token at the hit reads is in the range of blocks that the hit needs."""

    def claim(u: Any) -> Any:
        first, end = group_of(kind, u).blocks_needed(u.hit)
        index = u.position // u.block
        return (first <= index) & (index < end)

    return Obligation(
        id=f"attention-kinds.{NAMES[kind]}-hit-has-all-it-reads",
        statements=("KV-OP-01", "KV-MEM-01"),
        title=f"With {WORDS[kind]}, every block that the first token after a hit reads is one that the hit must have.",
        unknowns={**SIZES[kind], "hit": Count(1), "position": Count(0)},
        assumes=lambda u: (u.hit % u.block == 0) & reads(kind, u, u.hit, u.position),
        claim=claim,
        witnesses={"after other blocks": lambda u: (u.position >= u.block) & (u.block >= 2)},
        mutants=(
            MUTANTS[kind]["early"]
            if kind is not STATES
            else only(
                "the-state-is-unread",
                "A resume is taken to read no state at all.",
                "kvreference.mamba:Mamba.tokens_unread",
                lambda self, hit_tokens: hit_tokens,
            ),
        ),
        binds=binds(kind),
    )


def hit_is_tight(kind: Kind) -> Obligation:
    """The first and the last block of the range are read: by a token that is named."""

    def claim(u: Any) -> Any:
        first, end = group_of(kind, u).blocks_needed(u.hit)
        # The first position that is read, in words of its own.
        earliest = {
            WINDOW: lambda: max(0, u.hit - u.window + 1),
            CHUNK: lambda: u.hit - u.hit % u.window,
            STATES: lambda: u.hit - 1,
        }[kind]()
        last = u.hit - 1
        at_ends = (earliest // u.block == first) & (last // u.block == end - 1)
        return implies(first < end, at_ends & reads(kind, u, u.hit, earliest) & reads(kind, u, u.hit, last))

    return Obligation(
        id=f"attention-kinds.{NAMES[kind]}-hit-needs-no-more",
        statements=("KV-OP-01", "KV-OP-15"),
        title=f"With {WORDS[kind]}, the first and the last block that a hit must have are read after it.",
        unknowns={**SIZES[kind], "hit": Count(1)},
        assumes=lambda u: u.hit % u.block == 0,
        claim=claim,
        witnesses={
            "not all blocks": lambda u: (
                (group_of(kind, u).blocks_needed(u.hit)[0] > 0)
                & (group_of(kind, u).blocks_needed(u.hit)[0] < u.hit // u.block)
                & (u.block >= 2)
            )
        },
        mutants=(MUTANTS[kind]["late"],),
        binds=binds(kind),
    )


def held_at_once(kind: Kind) -> Obligation:
    """The blocks of a table between the dead ones and those of the chunk."""

    def held(u: Any) -> Any:
        its = group_of(kind, u)
        tokens = u.computed + u.chunk
        return its.entries(tokens, tokens) - its.blocks_dead(u.computed)

    def most(u: Any) -> Any:
        return group_of(kind, u).blocks_held_at_most(u.chunk_most, u.longest)

    broken = {
        WINDOW: (
            "window-aligned",
            "A window is taken to begin where a block begins.",
            "kvreference.attention:blocks_held_at_most",
            lambda window, chunk, longest, block: -(-min(window - 1 + chunk, longest) // block),
        ),
        CHUNK: (
            "chunk-aligned",
            "An attention chunk is taken to begin where a block begins.",
            "kvreference.attention:ChunkedLocal.blocks_held_at_most",
            lambda self, chunk, longest, block: -(-min(self.window_tokens + chunk, longest) // block),
        ),
        STATES: (
            "drafts-without-states",
            "The states of drafts in flight are not counted.",
            "kvreference.mamba:Mamba.blocks_held_at_most",
            lambda self, chunk, longest, block: -(-longest // block),
        ),
    }[kind]
    return Obligation(
        id=f"attention-kinds.{NAMES[kind]}-held-at-most",
        statements=("KV-OP-03", "KV-LIVE-01"),
        title=f"With {WORDS[kind]}, a request that computes a chunk never holds more blocks than the bound that "
        "admission counts.",
        unknowns={**SIZES[kind], "computed": Count(0), "chunk": Count(1), "chunk_most": Count(1), "longest": Count(1)},
        assumes=lambda u: (u.chunk <= u.chunk_most) & (u.computed + u.chunk <= u.longest),
        claim=lambda u: held(u) <= most(u),
        witnesses={
            "the bound is reached": lambda u: (
                (held(u) == group_of(kind, u).blocks_held_at_most(u.chunk_most, u.longest))
                & (u.block >= 2)
                & (u.chunk >= 2)
            )
        },
        mutants=(only(*broken),),
        lemmas=lambda u: whole_blocks(u, u.computed) if kind is CHUNK else (),
        binds=binds(kind, StateMode.ALL),
    )


def whole_blocks(u: Any, computed: Any) -> tuple[Lemma, ...]:
    """Attention chunks of whole blocks begin where a block begins."""
    return (Lemma(MULTIPLE, {"factor": computed // u.window, "multiple": u.window, "unit": u.block}),)


ALL = (WINDOW, CHUNK, STATES)
DEAD_IS_UNREAD = {kind: dead_is_unread(kind) for kind in ALL}
DEAD_FOR_GOOD = {kind: dead_for_good(kind) for kind in ALL}
HIT_IS_SOUND = {kind: hit_is_sound(kind) for kind in ALL}
HIT_IS_TIGHT = {kind: hit_is_tight(kind) for kind in ALL}
HELD_AT_ONCE = {kind: held_at_once(kind) for kind in ALL}
OF_KINDS = (
    *DEAD_IS_UNREAD.values(),
    *DEAD_FOR_GOOD.values(),
    *HIT_IS_SOUND.values(),
    *HIT_IS_TIGHT.values(),
    *HELD_AT_ONCE.values(),
)


def _cut(u: Any) -> Any:
    return mamba.tokens_to_boundary(u.computed, u.pending, u.block)


def ends_of(computed: Any, pending: Any, block: Any) -> tuple[Lemma, ...]:
    """Whole blocks after a block's end are as many blocks more."""
    whole = pending // block * block
    return (
        Lemma(MULTIPLE, {"factor": pending // block, "multiple": block, "unit": block}),
        Lemma(SUM_OF_MULTIPLES, {"multiple": computed, "other": whole, "unit": block}),
    )


CUT = Obligation(
    id="attention-kinds.states-chunk-ends-at-a-block",
    statements=("KV-OP-26", "KV-LIVE-02"),
    title="Where states are kept at block ends only, a chunk is never empty, and it ends where a block ends or "
    "stays inside one: no state is skipped that is to be kept.",
    unknowns={"block": Count(1), "computed": Count(0), "pending": Count(1)},
    claim=lambda u: (
        (_cut(u) >= 1)
        & (_cut(u) <= u.pending)
        & (((u.computed + _cut(u)) % u.block == 0) | (u.computed // u.block == (u.computed + _cut(u)) // u.block))
    ),
    lemmas=lambda u: ends_of(u.computed, u.pending, u.block),
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


def _has_all_states(u: Any) -> Any:
    """The table has, after the blocks before it, the state of the last token, and one for each draft."""
    mode = (StateMode.NONE, StateMode.ALL, StateMode.ALIGN)[u.mode]
    entries = group(Kind.MAMBA, u.block, states=mode, draft_states=u.drafts).entries(u.tokens, u.tokens + u.lookahead)
    slots = u.tokens if mode is StateMode.ALIGN else u.tokens + u.lookahead
    ends = (entries - u.drafts) * u.block
    return (ends >= slots) & (ends - u.block < slots)


STATES_OF_DRAFTS = Obligation(
    id="attention-kinds.states-of-drafts-have-entries",
    statements=("KV-OP-26",),
    title="A table of states has an entry for the state of its last token, and one more for each draft that may be in "
    "flight; look-ahead slots ask for a state only where there is one in every block.",
    unknowns={
        "block": Count(1),
        "drafts": Count(0),
        "tokens": Count(1),
        "lookahead": Count(0),
        "mode": Count(0, 2),
    },
    claim=_has_all_states,
    witnesses={"several drafts": lambda u: (u.drafts == 3) & (u.tokens == 40) & (u.block == 16) & (u.mode == 2)},
    mutants=(
        only(
            "a-state-for-all-drafts",
            "All drafts have one state.",
            "kvreference.mamba:Mamba.entries",
            lambda self, tokens, slots, block: attention.blocks_occupied(slots, block) + min(self.draft_states, 1),
        ),
    ),
)


def aligned_of(u: Any) -> Group:
    """A group that keeps states at block ends only."""
    return group(Kind.MAMBA, u.block, states=StateMode.ALIGN, draft_states=u.drafts)


def next_step(u: Any) -> Any:
    """How many tokens the next step computes: one and its drafts, or a chunk of a prompt, without drafts."""
    if u.decodes:
        return 1 + u.proposed
    return mamba.tokens_to_boundary(u.end, u.pending, u.block)


def grows(u: Any) -> Any:
    """Whether the table of states grows in the next step, which is a legal one."""
    computed = u.end - u.rejected
    its = aligned_of(u)
    after = its.entries(computed + next_step(u), 0)
    legal = (u.rejected <= u.drafts) & (u.proposed <= u.drafts) & (u.rejected < u.end)
    prompt = (u.rejected == 0) | (u.decodes == 1)
    return legal & prompt & (u.block >= 2 * u.drafts + 2) & (after > its.entries(u.end, 0))


def held_when_it_grows(u: Any) -> Any:
    """How many entries of the table may still hold a state when it grows."""
    its = aligned_of(u)
    return its.entries(u.end, 0) - its.blocks_dead(u.end - u.rejected)


ALIGNED = Obligation(
    id="attention-kinds.aligned-states-held-at-most",
    statements=("KV-OP-03", "KV-OP-26", "KV-LIVE-01"),
    title="Where states are kept at block ends only, nothing but the running state and those of its drafts is held "
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
    assumes=grows,
    claim=lambda u: (
        (held_when_it_grows(u) <= 1 + u.drafts) & (held_when_it_grows(u) + 1 <= aligned_of(u).blocks_held_at_most(1, 1))
    ),
    lemmas=lambda u: ends_of(u.end, u.pending, u.block),
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

ALIGNED_STATES = (STATES_OF_DRAFTS, CUT, ALIGNED)
OBLIGATIONS = (*OF_KINDS, *ALIGNED_STATES)
