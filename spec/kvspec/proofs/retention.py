"""Chapter 06: what is kept is exactly what a hit at an admitted boundary reads, and a replay finds it.

The blocks that a hit reads come from the look-up's own formula, ``Group.blocks_needed``. Which boundaries are admitted
is written anew here. Where the replay boundary does not matter it may be any number: that is more than what is needed.

When a block is due is proved in three parts, of which only the last two depend on the attention kind. It is due at the
first that reads it of the replay boundary, the junction and the next multiple of the interval. No earlier multiple
reads it. And what is read earlier is due earlier, so that a request which looks at its blocks in order skips none.

Then it is proved what a replay can hit, and where a junction is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import evolve

from kvreference import retention, tables
from kvreference.answers import Hit
from kvreference.attention import Kind
from kvreference.geometry import Group
from kvreference.mamba import StateMode
from kvspec.obligation import AMap, Count, Lemma, Mutant, Obligation, Unknown, only
from kvspec.proofs.lemmas import MULTIPLE
from kvspec.sequences import Parts, Stretch, times
from kvspec.stand_in import any_geometry, group, sizes
from kvspec.symbolic import Term, implies, negated

WINDOW = {"block": Count(1), "window": Count(2), "lookahead": Count(0, 1)}
PLACE = {"index": Count(0), "replay": Count(0)}

WITHOUT_SHIFT = only(
    "mask-without-shift",
    "The mask does not know the look-ahead after a boundary.",
    "kvreference.retention:next_boundary",
    lambda index, interval, block, lookahead: -(-((index + 1) * block) // interval) * interval,
)


def window_of(u: Any) -> Group:
    """A sliding window, with or without a draft layer."""
    return group(Kind.SLIDING_WINDOW, u.block, u.window, lookahead=bool(u.lookahead))


def due(u: Any, interval: Any) -> Any:
    """When the block at ``index`` is cached, by the code that runs, if ``replay`` is the replay boundary."""
    # In this geometry every number is a boundary, so that of this prompt may be any.
    return retention.Sparse(any_geometry(), interval).due_tokens(window_of(u), u.index, u.replay + 1)


def reads(its: Group, boundary: Any, index: Any) -> Any:
    """Whether a hit at ``boundary`` reads the block at ``index``."""
    first, end = its.blocks_needed(boundary)
    return (first <= index) & (index < end)


def full(u: Any) -> Any:
    """When the block at ``index`` is full."""
    return (u.index + 1) * u.block


def by(when: Any, *tokens: Any) -> Any:
    """Whether it is due by the latest of these token counts."""
    if when is None:
        return False
    early: Any = False
    for each in tokens:
        early = (when <= each) | early
    return early


SOUND = Obligation(
    id="retention.mask-sound",
    statements=("KV-OP-15", "KV-OP-16"),
    title="All that a hit at a multiple of the retention interval reads in a sliding window, look-ahead included, "
    "is cached as soon as that boundary is reached and it is full.",
    unknowns={**WINDOW, **PLACE, "interval": Count(1), "boundary": Count(1)},
    assumes=lambda u: (u.boundary % u.interval == 0) & reads(window_of(u), u.boundary, u.index),
    claim=lambda u: by(due(u, u.interval), u.boundary, full(u)),
    witnesses={
        "after other boundaries": lambda u: (u.boundary >= 2 * u.interval) & (u.block >= 2) & (u.lookahead == 1)
    },
    mutants=(WITHOUT_SHIFT,),
    binds=sizes(Kind.SLIDING_WINDOW, lookahead="lookahead"),
)


def _dense(u: Any) -> Any:
    its: Any = SimpleNamespace(block_size_tokens=u.block)
    kept = retention.Dense(any_geometry())
    when: Any = kept.due_tokens(its, u.index, u.prompt)
    later: Any = kept.due_tokens(its, u.index + u.further, u.prompt)
    return ((when <= u.computed) == (u.index < u.computed // u.block)) & (when <= later)


DENSE = Obligation(
    id="retention.dense-keeps-all",
    statements=("KV-OP-08", "KV-OP-16"),
    title="Without an interval every block, in a group of any kind, is due as soon as it is full, and not before; so "
    "none is due before one that stands before it.",
    unknowns={"block": Count(1), **{name: Count(0) for name in ("index", "further", "computed")}, "prompt": Count(1)},
    claim=_dense,
    witnesses={"some are full, some not": lambda u: (u.block >= 2) & (u.computed > 2 * u.block)},
    mutants=(
        only(
            "a-block-early",
            "A block is cached when the one before it is full.",
            "kvreference.retention:Dense.due_tokens",
            lambda self, its, index, prompt_tokens: index * its.block_size_tokens,
        ),
    ),
)


KEPT = (SOUND, DENSE)


PROMPT = {"alignment": Count(1), "lookahead_most": Count(0), "prompt": Count(1)}


def geometry_of(u: Any) -> Any:
    """What retention reads of a geometry."""
    return any_geometry(alignment_tokens=u.alignment, lookahead_tokens=u.lookahead_most)


def replay(u: Any) -> Any:
    """The replay boundary, by the code that runs."""
    return retention.replay_boundary(geometry_of(u), u.prompt)


def _of_geometry(geometry: Any, _group: Any) -> dict[str, int]:
    return {"alignment": geometry.alignment_tokens, "lookahead_most": geometry.lookahead_tokens}


def _replay_mutant(name: str, story: str, prompt_tokens: Any) -> Mutant:
    return only(
        name,
        story,
        "kvreference.retention:replay_boundary",
        lambda geometry, prompt: (
            max(0, prompt_tokens(geometry, prompt)) // geometry.alignment_tokens * geometry.alignment_tokens
        ),
    )


LAST_TOKEN = _replay_mutant(
    "last-token-replayed",
    "A replay is taken to hit the prompt's last token too.",
    lambda geometry, prompt: prompt - geometry.lookahead_tokens,
)
NO_LOOKAHEAD = _replay_mutant(
    "replay-without-lookahead",
    "A replay is taken to match nothing after its hit.",
    lambda geometry, prompt: prompt - 1,
)

REPLAY = Obligation(
    id="retention.replay-is-the-longest",
    statements=("KV-OP-16",),
    title="The replay boundary is the longest hit that a replay can have: a multiple of the alignment, before the "
    "prompt's last token with all that must match after it, and the next multiple is not.",
    unknowns=PROMPT,
    claim=lambda u: (
        (replay(u) % u.alignment == 0)
        & ((replay(u) == 0) | (replay(u) + u.lookahead_most <= u.prompt - 1))
        & (replay(u) + u.alignment + u.lookahead_most > u.prompt - 1)
    ),
    lemmas=lambda u: (
        Lemma(MULTIPLE, {"factor": replay(u) // u.alignment, "multiple": u.alignment, "unit": u.alignment}),
    ),
    witnesses={
        "a replay hits": lambda u: (replay(u) >= 2 * u.alignment) & (u.alignment >= 2) & (u.lookahead_most >= 1)
    },
    mutants=(LAST_TOKEN, NO_LOOKAHEAD),
    binds=_of_geometry,
)


REPLAY_DUE = Obligation(
    id="retention.replay-is-kept",
    statements=("KV-OP-16",),
    title="All that a hit at the replay boundary reads in a sliding window is cached before the prompt's last token "
    "is computed, at any interval.",
    unknowns={**WINDOW, **PLACE, "interval": Count(0), "prompt": Count(1), "lookahead_most": Count(0)},
    assumes=lambda u: (
        (window_of(u).lookahead_tokens <= u.lookahead_most)
        & (u.replay + u.lookahead_most <= u.prompt - 1)
        & reads(window_of(u), u.replay, u.index)
    ),
    claim=lambda u: by(due(u, u.interval), u.prompt - 1),
    witnesses={"its last block": lambda u: (u.index >= 2) & (u.block >= 2) & (u.lookahead == 1)},
    mutants=(
        only(
            "replay-forgotten",
            "The replay boundary is not admitted.",
            "kvreference.retention:replay_boundary",
            lambda geometry, prompt_tokens: 0,
        ),
    ),
    binds=sizes(Kind.SLIDING_WINDOW, lookahead="lookahead"),
)


# When a block is due


def _at(its: Any, index: Any, *boundaries: Any) -> Any:
    """When a block is due if only these boundaries are admitted."""
    serving = [boundary for boundary in boundaries if reads(its, boundary, index)]
    return max(min(serving), (index + 1) * its.block_size_tokens) if serving else None


def _due_mutant(name: str, story: str, due_tokens: Any) -> Mutant:
    """``due_tokens`` is given the retention, the group, the index, and the three boundaries that may read it."""

    def by(self: retention.Sparse, its: Any, index: Any, prompt: Any) -> Any:
        interval = self.interval_tokens if its.is_sparse else self.geometry.alignment_tokens
        following = (
            retention.next_boundary(index, interval, its.block_size_tokens, its.lookahead_tokens) if interval else 0
        )
        return due_tokens(its, index, retention.replay_boundary(self.geometry, prompt), self.junction_tokens, following)

    return only(name, story, "kvreference.retention:Sparse.due_tokens", by)


class _AnyKind:
    """A group of any kind: which blocks a hit reads is any function of its boundary."""

    def __init__(self, u: Any) -> None:
        self._u = u
        self.block_size_tokens, self.lookahead_tokens = u.block, u.lookahead

    def blocks_needed(self, boundary: Any) -> tuple[Any, Any]:
        """Any range for each boundary."""
        return self._u.first[boundary], self._u.end[boundary]

    @property
    def is_sparse(self) -> bool:
        """Whether the interval counts."""
        return bool(self._u.sparse == 1)

    @property
    def keeps_states(self) -> bool:
        """Whether it keeps states, which the code that runs does not ask."""
        return bool(self._u.states == 1)


def _due_at_the_first(u: Any) -> Any:
    its: Any = _AnyKind(u)
    when = retention.Sparse(geometry_of(u), u.interval, u.junction).due_tokens(its, u.index, u.prompt)
    admitted = [replay(u), u.junction]
    every = u.interval if its.is_sparse else u.alignment
    if every:
        admitted.append(retention.next_boundary(u.index, every, u.block, u.lookahead))
    if when is None:
        return not_any(reads(its, boundary, u.index) for boundary in admitted)
    no_later: Any = True
    is_one: Any = False
    for boundary in admitted:
        its_time = (when == boundary) & (boundary >= full(u)) | (when == full(u)) & (full(u) >= boundary)
        no_later = implies(reads(its, boundary, u.index), by(when, boundary, full(u))) & no_later
        is_one = reads(its, boundary, u.index) & its_time | is_one
    return no_later & is_one


def not_any(conditions: Iterable[Any]) -> Any:
    """That none of them is so."""
    none: Any = True
    for each in conditions:
        none = negated(each) & none
    return none


DUE = Obligation(
    id="retention.due-at-the-first-that-reads",
    statements=("KV-OP-15", "KV-OP-16", "KV-OP-27"),
    title="In a group of any kind, a block is due as soon as it is full and the first boundary is reached that reads "
    "it, of the replay boundary, the junction and the next multiple of the interval, or of the alignment where the "
    "interval does not count; and never if none of them reads it.",
    unknowns={
        **PROMPT,
        **{name: Count(0) for name in ("lookahead", "interval", "junction", "index")},
        "block": Count(1),
        "sparse": Count(0, 1),
        "states": Count(0, 1),
        "first": AMap(),
        "end": AMap(),
    },
    claim=_due_at_the_first,
    witnesses={
        "for the junction, before the replay boundary": lambda u: (
            (u.sparse == 1)
            & (u.first[u.junction] <= u.index)
            & (u.index < u.end[u.junction])
            & (u.junction < replay(u))
            & (u.junction >= 2)
            & (u.interval == 0)
            & (u.index >= 2)
        )
    },
    mutants=(
        _due_mutant(
            "junction-forgotten",
            "The junction is not admitted.",
            lambda its, index, replayed, _junction, following: _at(its, index, replayed, following),
        ),
        _due_mutant(
            "junction-alone",
            "A request with a junction keeps that boundary, and not the replay boundary.",
            lambda its, index, replayed, parts_at, following: _at(its, index, parts_at or replayed, following),
        ),
        _due_mutant(
            "replay-forgotten",
            "The replay boundary is not admitted.",
            lambda its, index, _replayed, parts_at, following: _at(its, index, parts_at, following),
        ),
        _due_mutant(
            "interval-for-all",
            "Where the interval does not count, only the replay boundary and the junction are admitted.",
            lambda its, index, replayed, parts_at, following: _at(
                its, index, replayed, parts_at, following if its.is_sparse else 0
            ),
        ),
        only(
            "due-before-it-is-full",
            "A block is due when a boundary inside it is reached.",
            "kvreference.retention:max",
            lambda first, second: first if isinstance(first, Term) else max(first, second),
        ),
    ),
)


KINDS: Mapping[Kind, tuple[str, str, Mapping[str, Unknown]]] = {
    Kind.SLIDING_WINDOW: ("window", "a sliding window", {"window": Count(2), "lookahead": Count(0, 1)}),
    Kind.CHUNKED_LOCAL: ("chunk", "chunked local attention", {"window": Count(2), "lookahead": Count(0, 1)}),
    Kind.FULL: ("full", "full attention", {"unit": Count(1), "lookahead": Count(0, 1)}),
    Kind.MAMBA: ("states", "states", {"drafts": Count(0)}),
}
_READ_OF_A_GROUP = {"unit": "unit", "lookahead": "lookahead", "drafts": "draft_states"}


def of_kind(kind: Kind, u: Any) -> Group:
    """A group of ``kind``."""
    if kind is Kind.MAMBA:
        return group(kind, u.block, states=StateMode.ALL, draft_states=u.drafts)
    if kind is Kind.FULL:
        return group(kind, u.block, unit_tokens=u.unit, lookahead=bool(u.lookahead))
    return group(kind, u.block, u.window, lookahead=bool(u.lookahead))


def _binds(kind: Kind) -> Any:
    own = {name: _READ_OF_A_GROUP[name] for name in KINDS[kind][2] if name in _READ_OF_A_GROUP}
    return sizes(kind, *([StateMode.ALL] if kind is Kind.MAMBA else []), **own)


def _following(kind: Kind, u: Any) -> Any:
    """The first boundary at which the block at ``index`` may be read, by the code that runs."""
    return retention.next_boundary(u.index, u.interval, u.block, of_kind(kind, u).lookahead_tokens)


def _first_reads(kind: Kind, u: Any) -> Any:
    its, first = of_kind(kind, u), _following(kind, u)
    reads_first = (first <= u.boundary) & reads(its, first, u.index)
    is_read = (u.boundary % u.interval == 0) & reads(its, u.boundary, u.index)
    return (first >= 1) & (first % u.interval == 0) & implies(is_read, reads_first)


def first_boundary(kind: Kind) -> Obligation:
    """Before the next multiple no multiple of the interval reads a block."""
    name, words, unknowns = KINDS[kind]
    prefix = "" if kind is Kind.SLIDING_WINDOW else f"{name}-"
    # A state is read at one boundary only.
    later: Any = (
        (lambda u: u.boundary == u.interval) if kind is Kind.MAMBA else lambda u: _following(kind, u) < u.boundary
    )
    return Obligation(
        id=f"retention.{prefix}first-boundary-reads",
        statements=("KV-OP-15", "KV-OP-16"),
        title=f"With {words}, if a hit at any multiple of the interval reads a block, a hit at the first multiple "
        "after it does: with the alignment as interval, exactly the blocks that no hit could read are left out.",
        unknowns={"block": Count(1), **unknowns, "index": Count(0), "interval": Count(1), "boundary": Count(1)},
        claim=lambda u: _first_reads(kind, u),
        witnesses={
            "of several tokens": lambda u: (
                later(u)
                & reads(of_kind(kind, u), u.boundary, u.index)
                & (u.boundary % u.interval == 0)
                & (u.block >= 2)
                & (u.interval >= 2)
            )
        },
        mutants=(
            *((WITHOUT_SHIFT,) if "lookahead" in unknowns else ()),
            only(
                "at-the-end-of-every-block",
                "The end of a block counts as a boundary.",
                "kvreference.retention:next_boundary",
                lambda index, interval, block, lookahead: (index + 1) * block,
            ),
        ),
        binds=_binds(kind),
    )


def _in_order(kind: Kind, u: Any) -> Any:
    its = of_kind(kind, u)
    early = reads(its, u.boundary, u.later)
    none_is_skipped = implies(
        early & reads(its, u.other, u.index) & (u.boundary < u.other), reads(its, u.boundary, u.index)
    )
    end = (u.later + 1) * u.block
    is_there = implies(early & ((u.boundary > u.computed) | (end > u.computed)), u.later >= its.blocks_dead(u.computed))
    return none_is_skipped & is_there & implies(early, end <= u.boundary + its.lookahead_tokens)


def in_order(kind: Kind) -> Obligation:
    """What is read at an earlier boundary is due earlier."""
    name, words, unknowns = KINDS[kind]
    return Obligation(
        id=f"retention.{name}-boundaries-in-order",
        statements=("KV-OP-08", "KV-OP-15", "KV-OP-16", "KV-OP-27"),
        title=f"With {words}, if a boundary reads a block, it reads every block before it that a later boundary reads: "
        "so no block is due before one that stands before it and is due, too. When that boundary and its look-ahead "
        "are reached, the block is full; and it is not released before.",
        unknowns={
            "block": Count(1),
            **unknowns,
            "index": Count(0),
            "later": Count(0),
            "boundary": Count(1),
            "other": Count(1),
            "computed": Count(0),
        },
        assumes=lambda u: u.later >= u.index,
        claim=lambda u: _in_order(kind, u),
        witnesses={
            "read at both": lambda u: (
                reads(of_kind(kind, u), u.boundary, u.later)
                & reads(of_kind(kind, u), u.other, u.index + (1 if kind is Kind.MAMBA else 0))
                & (u.boundary < u.other)
                & (u.block >= 2)
            )
        },
        mutants=(
            only(
                "read-before-it-is-full",
                "A hit reads a block more than it must match.",
                "kvreference.geometry:Group.blocks_needed",
                lambda self, hit_tokens: (
                    self.blocks_unread(hit_tokens),
                    self.tokens_matched(hit_tokens) // self.block_size_tokens + 1,
                ),
            ),
            only(
                "released-while-it-fills",
                "The block in which the next token stands is released.",
                "kvreference.geometry:Group.blocks_dead",
                lambda self, tokens_computed: tokens_computed // self.block_size_tokens + 1,
            ),
        ),
        binds=_binds(kind),
    )


_begins: Any = tables.tables_of_hit
"""What it does, where nothing is broken."""


class _OfHit:
    """The blocks of a hit in one group."""

    def __init__(self, length: Any) -> None:
        self.length = length

    def __getitem__(self, which: slice) -> list[Stretch]:
        assert which.stop is None, "all after some"
        return [Stretch(self.length - which.start)]


def _hit_covers(kind: Kind, u: Any) -> Any:
    its = of_kind(kind, u)

    def unread(hit_tokens: Any) -> Any:
        blocks = its.blocks_unread(hit_tokens)
        return times(blocks) if isinstance(blocks, Term) else blocks

    geometry: Any = SimpleNamespace(groups=[SimpleNamespace(blocks_unread=unread)])
    hit: Any = Hit(u.hit, (_OfHit(u.hit // u.block),))  # type: ignore[arg-type]  # it stands for them
    with patch.object(tables, "len", lambda parts: Parts(parts).length, create=True):
        (table,) = tables.tables_of_hit(geometry, hit, u.hit)
    fine = (table.registered == u.hit // u.block) & (table.boundary_tokens == u.hit)
    passed_over = (u.index < table.registered) & reads(its, u.boundary, u.index)
    return fine & implies(passed_over, reads(its, u.hit, u.index))


def hit_covers(kind: Kind) -> Obligation:
    """What a request passes over since it begins with a hit is cached."""
    name, words, unknowns = KINDS[kind]
    return Obligation(
        id=f"retention.{name}-hit-covers",
        statements=("KV-OP-16", "KV-OP-27"),
        title=f"With {words}, a request that begins with a hit looks at all blocks after those of the hit, and its hit "
        "reads every block of these that a hit at a later boundary reads.",
        unknowns={"block": Count(1), **unknowns, "hit": Count(0), "boundary": Count(1), "index": Count(0)},
        assumes=lambda u: (u.boundary > u.hit) & (u.hit % of_kind(kind, u).unit == 0),
        claim=lambda u: _hit_covers(kind, u),
        witnesses={
            "a hit": lambda u: (u.block >= 2) & (u.hit >= 2 * u.block) & reads(of_kind(kind, u), u.boundary, u.index)
        },
        mutants=(
            only(
                "a-block-after-the-hit-is-passed-over",
                "A request does not look at the first block after its hit.",
                "kvreference.tables:tables_of_hit",
                lambda *arguments: [evolve(each, registered=each.registered + 1) for each in _begins(*arguments)],
            ),
            only(
                "every-other-boundary-reads-all",
                "A hit at every other boundary reads all blocks.",
                "kvreference.geometry:Group.blocks_needed",
                lambda self, hit: (
                    hit // self.block_size_tokens % 2 * (hit // self.block_size_tokens - 1),
                    hit // self.block_size_tokens,
                ),
            ),
        ),
    )


def parts(u: Any) -> Any:
    """The junction, by the code that runs."""
    return retention.junction(geometry_of(u), u.known, u.readable, u.hit)


def _longest(u: Any) -> Any:
    """Whether the junction is the last boundary that what is known, and may be read, has room for, or the hit is."""
    most = min(u.known, u.readable)
    last = max(0, most - u.lookahead_most) // u.alignment * u.alignment
    is_last = last + u.alignment + u.lookahead_most > most
    if parts(u) == 0:
        return is_last & (last <= u.hit)
    return is_last & (parts(u) == last) & (last % u.alignment == 0) & (last > u.hit) & (last + u.lookahead_most <= most)


JUNCTION = Obligation(
    id="retention.junction-is-the-longest",
    statements=("KV-OP-27",),
    title="A junction is a boundary after the hit, all that must match there is known to full attention and before the "
    "last token, and at the next boundary it is not.",
    unknowns={
        **{name: PROMPT[name] for name in ("alignment", "lookahead_most")},
        **{"known": Count(0), "readable": Count(0), "hit": Count(0)},
    },
    claim=_longest,
    lemmas=lambda u: (
        Lemma(MULTIPLE, {"factor": parts(u) // u.alignment, "multiple": u.alignment, "unit": u.alignment}),
    ),
    witnesses={"after a hit": lambda u: (parts(u) > u.hit) & (u.hit >= 1) & (u.alignment >= 2)},
    mutants=(
        only(
            "junction-without-lookahead",
            "What must match after a junction is taken to be nothing.",
            "kvreference.retention:last_boundary",
            lambda geometry, tokens: max(0, tokens) // geometry.alignment_tokens * geometry.alignment_tokens,
        ),
        only(
            "no-junction",
            "A request has a junction only where it hits nothing.",
            "kvreference.retention:junction",
            lambda geometry, known, readable, hit: (
                0 if hit else retention.last_boundary(geometry, min(known, readable))
            ),
        ),
        only(
            "junction-an-alignment-late",
            "The first boundary after what is known is kept.",
            "kvreference.retention:last_boundary",
            lambda geometry, tokens: (
                (max(0, tokens - geometry.lookahead_tokens) // geometry.alignment_tokens + 1)
                * geometry.alignment_tokens
            ),
        ),
    ),
    binds=_of_geometry,
)


def _state_is_due(u: Any) -> Any:
    """When a state is due, in a cache of either kind."""
    its = group(Kind.MAMBA, u.block, states=tuple(StateMode)[u.mode.__index__()], draft_states=u.draft_states)
    # In this geometry every number is a boundary, so that of this prompt may be any.
    geometry = any_geometry()
    dense = retention.Dense(geometry).due_tokens(its, u.index, u.replay + 1)
    sparse = retention.Sparse(geometry, u.interval, u.junction).due_tokens(its, u.index, u.replay + 1)
    return (dense == full(u)) & (True if sparse is None else sparse == full(u))


STATE_IS_DUE = Obligation(
    id="retention.state-is-due-at-its-end",
    statements=("KV-MEM-01", "KV-OP-26"),
    title="A state is due when its block is full, or never.",
    unknowns={
        **PLACE,
        "block": Count(1),
        "mode": Count(0, len(StateMode) - 1),
        **{name: Count(0) for name in ("draft_states", "interval", "junction")},
    },
    claim=_state_is_due,
    witnesses={"at a multiple": lambda u: (u.block == 16) & (u.interval == 64) & (u.index == 3) & (u.junction == 0)},
    mutants=(
        only(
            "due-at-the-next-boundary",
            "A block is due when a boundary after it is reached.",
            "kvreference.retention:_reads",
            lambda its, boundary, index: True,
        ),
    ),
)
OBLIGATIONS = (
    *KEPT,
    REPLAY,
    REPLAY_DUE,
    DUE,
    STATE_IS_DUE,
    *(make(kind) for make in (first_boundary, in_order, hit_covers) for kind in KINDS),
    JUNCTION,
)
