"""Chapter 06: what is kept is exactly what a hit at an admitted boundary reads, and a replay finds it.

The blocks that a hit reads come from the look-up's own formula, ``Group.blocks_needed``. Which boundaries are admitted
is written anew here. Where the replay boundary does not matter it may be any number: that is more than what is needed.
The second half proves what a replay can hit, that it is kept, and what is kept where no window slides and no state is
kept. The last part is about junctions, and about states.
"""

from __future__ import annotations

from typing import Any

from kvreference import retention
from kvreference.attention import Kind
from kvreference.geometry import Group
from kvreference.mamba import StateMode
from kvspec.obligation import Count, Lemma, Mutant, Obligation, only
from kvspec.proofs.lemmas import MULTIPLE
from kvspec.stand_in import any_geometry, group, sizes
from kvspec.symbolic import negated

WINDOW = {"block": Count(1), "window": Count(2), "lookahead": Count(0, 1)}
PLACE = {"index": Count(0), "replay": Count(0)}

WITHOUT_SHIFT = only(
    "mask-without-shift",
    "The mask does not know the look-ahead after a boundary.",
    "kvreference.retention:next_boundary",
    lambda index, interval, block, lookahead: -(-((index + 1) * block) // interval) * interval,
)
ALWAYS_READ = only(
    "whole-segments",
    "Every block before a boundary is taken to be read there.",
    "kvreference.retention:_reads",
    lambda its, boundary, index: index < its.blocks_needed(boundary)[1],
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


def following(u: Any) -> Any:
    """The first boundary at which the block at ``index`` may be read, by the code that runs."""
    return retention.next_boundary(u.index, u.interval, u.block, window_of(u).lookahead_tokens)


FIRST = Obligation(
    id="retention.first-boundary-reads",
    statements=("KV-OP-15",),
    title="If a hit at any multiple of the interval reads a block of a sliding window, a hit at the first multiple "
    "after it does: with the alignment as interval, exactly the blocks that no hit could read are left out.",
    unknowns={**WINDOW, "index": Count(0), "interval": Count(1), "boundary": Count(1)},
    assumes=lambda u: (u.boundary % u.interval == 0) & reads(window_of(u), u.boundary, u.index),
    claim=lambda u: (
        (following(u) >= 1)
        & (following(u) <= u.boundary)
        & (following(u) % u.interval == 0)
        & reads(window_of(u), following(u), u.index)
    ),
    witnesses={"a later one reads it too": lambda u: (following(u) < u.boundary) & (u.block >= 2) & (u.interval >= 2)},
    mutants=(
        WITHOUT_SHIFT,
        only(
            "boundary-before",
            "The last multiple before the end of a block is taken, where a hit does not read it.",
            "kvreference.retention:next_boundary",
            lambda index, interval, block, lookahead: (
                max((index + 1) * block - lookahead, interval) // interval * interval
            ),
        ),
    ),
    binds=sizes(Kind.SLIDING_WINDOW, lookahead="lookahead"),
)

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


def _some_boundary_reads(u: Any) -> Any:
    when = due(u, u.interval)
    if when is None:
        return True
    its = window_of(u)
    first = following(u)
    multiple = (first % u.interval == 0) & (first >= 1) & reads(its, first, u.index)
    return (multiple & (when >= first) | reads(its, u.replay, u.index) & (when >= u.replay)) & (when >= full(u))


TIGHT = Obligation(
    id="retention.mask-tight",
    statements=("KV-OP-15",),
    title="A block of a sliding window is cached only if a hit at a multiple of the retention interval, or at the "
    "replay boundary, reads it, and neither before that boundary is reached nor before it is full.",
    unknowns={**WINDOW, **PLACE, "interval": Count(1)},
    claim=_some_boundary_reads,
    witnesses={
        "kept": lambda u: due(u, u.interval) is not None and (u.index >= 1) & (u.block >= 2),
        "left out": lambda u: due(u, u.interval) is None and (u.window >= 4) & (u.lookahead == 1),
    },
    mutants=(
        ALWAYS_READ,
        only(
            "tail-starts-early",
            "One block more is kept before every boundary than a hit there reads.",
            "kvreference.retention:_reads",
            lambda its, boundary, index: reads(its, boundary, index) | reads(its, boundary, index + 1),
        ),
    ),
    binds=sizes(Kind.SLIDING_WINDOW, lookahead="lookahead"),
)

NONE_BUT_REPLAY = Obligation(
    id="retention.interval-zero",
    statements=("KV-OP-15", "KV-OP-16"),
    title="With an interval of 0 exactly the blocks of a sliding window are cached that a hit at the replay "
    "boundary reads, once it is reached and they are full.",
    unknowns={**WINDOW, **PLACE},
    claim=lambda u: (
        due(u, 0) == max(u.replay, full(u)) if reads(window_of(u), u.replay, u.index) else due(u, 0) is None
    ),
    witnesses={"kept": lambda u: reads(window_of(u), u.replay, u.index) & (u.index >= 1) & (u.block >= 2)},
    mutants=(ALWAYS_READ,),
    binds=sizes(Kind.SLIDING_WINDOW, lookahead="lookahead"),
)

DENSE = Obligation(
    id="retention.dense-keeps-all",
    statements=("KV-OP-08",),
    title="Without an interval every block of a sliding window is cached as soon as it is full, and not before.",
    unknowns={**WINDOW, **PLACE, "prompt": Count(1), "computed": Count(0)},
    claim=lambda u: (
        (retention.Dense(any_geometry()).due_tokens(window_of(u), u.index, u.prompt) <= u.computed)
        == (u.index < u.computed // u.block)
    ),
    witnesses={"some are full, some not": lambda u: (u.block >= 2) & (u.computed > 2 * u.block)},
    mutants=(
        only(
            "a-block-early",
            "A block is cached when the one before it is full.",
            "kvreference.retention:Dense.due_tokens",
            lambda self, its, index, prompt_tokens: index * its.block_size_tokens,
        ),
    ),
    binds=sizes(Kind.SLIDING_WINDOW, lookahead="lookahead"),
)


KEPT = (FIRST, SOUND, TIGHT, NONE_BUT_REPLAY, DENSE)


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


# Groups of full and of chunked local attention

OTHERS = {
    Kind.FULL: ("full", "full attention", {"unit": Count(1), "lookahead": Count(0, 1)}),
    Kind.CHUNKED_LOCAL: ("chunk", "chunked local attention", {"window": Count(2), "lookahead": Count(0, 1)}),
}


def _other(kind: Kind, u: Any) -> Group:
    if kind is Kind.FULL:
        return group(kind, u.block, unit_tokens=u.unit, lookahead=bool(u.lookahead))
    return group(kind, u.block, u.window, lookahead=bool(u.lookahead))


def kept_elsewhere(kind: Kind) -> Obligation:
    """Where no window slides and no state is kept, every multiple of the alignment is admitted."""
    name, words, unknowns = OTHERS[kind]
    read = {"unit": "unit", "lookahead": "lookahead"}
    return Obligation(
        id=f"retention.{name}-at-every-boundary",
        statements=("KV-OP-15", "KV-OP-16"),
        title=f"With {words}, all that a hit at any multiple of the alignment reads is cached as soon as it is "
        "reached and full, at any retention interval.",
        unknowns={
            "block": Count(1),
            **unknowns,
            **PROMPT,
            "interval": Count(0),
            "index": Count(0),
            "boundary": Count(1),
        },
        assumes=lambda u: (u.boundary % u.alignment == 0) & reads(_other(kind, u), u.boundary, u.index),
        claim=lambda u: by(
            retention.Sparse(geometry_of(u), u.interval).due_tokens(_other(kind, u), u.index, u.prompt),
            u.boundary,
            full(u),
        ),
        witnesses={
            "after other boundaries": lambda u: (u.boundary >= 2 * u.alignment) & (u.block >= 2) & (u.index > 1)
        },
        mutants=(
            only(
                "interval-for-all",
                "Only the replay boundary is admitted in such a group.",
                "kvreference.retention:next_boundary",
                lambda index, interval, block, lookahead: 0,
            ),
        ),
        binds=sizes(
            kind,
            alignment="alignment_tokens",
            lookahead_most="lookahead_tokens",
            **{u: read[u] for u in unknowns if u in read},
        ),
    )


# Junctions


def due_with(u: Any, junction: Any) -> Any:
    """The same as ``due`` for a request with that junction."""
    return retention.Sparse(any_geometry(), u.interval, junction).due_tokens(window_of(u), u.index, u.replay + 1)


def _at(its: Group, index: Any, *boundaries: Any) -> Any:
    """When a block is due if only these boundaries are admitted."""
    serving = [boundary for boundary in boundaries if reads(its, boundary, index)]
    return max(min(serving), (index + 1) * its.block_size_tokens) if serving else None


JUNCTION_FORGOTTEN = only(
    "junction-forgotten",
    "The junction is not admitted.",
    "kvreference.retention:Sparse.due_tokens",
    lambda self, its, index, prompt: _at(its, index, retention.replay_boundary(self.geometry, prompt)),
)
JUNCTION_ALONE = only(
    "junction-alone",
    "A request with a junction keeps that boundary, and not the replay boundary.",
    "kvreference.retention:Sparse.due_tokens",
    lambda self, its, index, prompt: _at(
        its, index, self.junction_tokens or retention.replay_boundary(self.geometry, prompt)
    ),
)


def _no_later(u: Any) -> Any:
    without, kept = due_with(u, 0), due_with(u, u.junction)
    if without is None:
        return True
    return False if kept is None else kept <= without


LOSES_NOTHING = Obligation(
    id="retention.junction-loses-nothing",
    statements=("KV-OP-15", "KV-OP-27"),
    title="All that is cached of a sliding window without a junction is cached with one too, and no later, at any "
    "interval and any junction.",
    unknowns={**WINDOW, **PLACE, "interval": Count(0), "junction": Count(0)},
    claim=_no_later,
    witnesses={
        "more is cached": lambda u: due_with(u, 0) is None and due_with(u, u.junction) is not None and (u.block >= 2),
    },
    mutants=(JUNCTION_ALONE,),
    binds=sizes(Kind.SLIDING_WINDOW, lookahead="lookahead"),
)

JUNCTION_KEPT = Obligation(
    id="retention.junction-is-kept",
    statements=("KV-OP-27",),
    title="All that a hit at the junction reads in a sliding window, look-ahead included, is cached as soon as the "
    "junction is reached and it is full, at any interval.",
    unknowns={**WINDOW, **PLACE, "interval": Count(0), "junction": Count(1)},
    assumes=lambda u: reads(window_of(u), u.junction, u.index),
    claim=lambda u: by(due_with(u, u.junction), u.junction, full(u)),
    witnesses={"before the replay boundary": lambda u: (u.junction < u.replay) & (u.block >= 2) & (u.lookahead == 1)},
    mutants=(JUNCTION_FORGOTTEN,),
    binds=sizes(Kind.SLIDING_WINDOW, lookahead="lookahead"),
)


def _read_or_not(u: Any) -> Any:
    when = retention.Sparse(any_geometry(), 0, u.junction).due_tokens(window_of(u), u.index, u.replay + 1)
    if when is None:
        return True
    its = window_of(u)
    at_replay = reads(its, u.replay, u.index) & (when >= u.replay)
    return (at_replay | reads(its, u.junction, u.index) & (when >= u.junction)) & (when >= full(u))


JUNCTION_TIGHT = Obligation(
    id="retention.junction-tight",
    statements=("KV-OP-15",),
    title="With an interval of 0, a block of a sliding window is cached only if a hit at the replay boundary or at the "
    "junction reads it, and neither before that boundary is reached nor before it is full.",
    unknowns={**WINDOW, **PLACE, "junction": Count(0)},
    claim=_read_or_not,
    witnesses={
        "kept for the junction": lambda u: reads(window_of(u), u.junction, u.index) & (u.junction < u.replay),
    },
    mutants=(ALWAYS_READ,),
    binds=sizes(Kind.SLIDING_WINDOW, lookahead="lookahead"),
)


# States


def _exactly(u: Any) -> Any:
    state = group(Kind.MAMBA, u.block, states=StateMode.ALL, draft_states=u.drafts)
    when = retention.Sparse(any_geometry(), u.interval, u.junction).due_tokens(state, u.index, u.replay + 1)
    admitted = (full(u) == u.replay) | (full(u) == u.junction)
    if u.interval:
        admitted = admitted | (full(u) % u.interval == 0)
    if when is None:
        return negated(admitted)
    return admitted & (when == full(u))


STATES = Obligation(
    id="retention.states-at-admitted-boundaries",
    statements=("KV-OP-15", "KV-OP-16", "KV-OP-27"),
    title="A state is cached if and only if the tokens before it end at a multiple of the retention interval, at the "
    "replay boundary or at the junction, and as soon as its block is full.",
    unknowns={"block": Count(1), "drafts": Count(0), **PLACE, "interval": Count(0), "junction": Count(0)},
    claim=_exactly,
    witnesses={
        "for the junction": lambda u: (
            (full(u) == u.junction) & (u.junction < u.replay) & (u.block >= 2) & (u.interval == 0)
        ),
        "for the interval": lambda u: (
            (full(u) == 3 * u.interval) & (full(u) > u.replay) & (u.interval >= 2 * u.block) & (u.block >= 2)
        ),
        "left out": lambda u: (full(u) < u.interval) & (full(u) < u.replay) & (u.junction == 0) & (u.block >= 2),
    },
    mutants=(
        ALWAYS_READ,
        JUNCTION_FORGOTTEN,
        only(
            "states-at-every-boundary",
            "An interval is only for windows, and states stay at every boundary.",
            "kvreference.retention:next_boundary",
            lambda index, interval, block, lookahead: (index + 1) * block,
        ),
    ),
    binds=sizes(Kind.MAMBA, StateMode.ALL, StateMode.ALIGN, drafts="draft_states"),
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


JUNCTIONS = (LOSES_NOTHING, JUNCTION_KEPT, JUNCTION_TIGHT, STATES, JUNCTION)
REPLAYS = (REPLAY, REPLAY_DUE, *(kept_elsewhere(kind) for kind in OTHERS))
OBLIGATIONS = (*KEPT, *REPLAYS, *JUNCTIONS)
