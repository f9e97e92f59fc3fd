"""Chapter 06: what a replay can hit, and that it is kept; and what is kept where no window slides."""

from __future__ import annotations

from typing import Any

from kvreference import retention
from kvreference.attention import Kind
from kvreference.geometry import Group
from kvreference.mamba import StateMode
from kvspec.obligation import Count, Lemma, Mutant, Obligation, only
from kvspec.proofs.multiples import MULTIPLE
from kvspec.proofs.retention import PLACE, WINDOW, by, due, full, reads, window_of
from kvspec.stand_in import any_geometry, group, sizes

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
    "A replay is taken to match nothing behind its hit.",
    lambda geometry, prompt: prompt - 1,
)

REPLAY = Obligation(
    id="retention.replay-is-the-longest",
    statements=("KV-OP-16",),
    sentence="The replay boundary is the longest hit that a replay can have: a multiple of the alignment, before the "
    "prompt's last token with all that must match behind it, and the next multiple is not.",
    unknowns=PROMPT,
    shows=lambda u: (
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
    sentence="Whatever a hit at the replay boundary reads in a sliding window is cached before the prompt's last token "
    "is computed, whatever the interval.",
    unknowns={**WINDOW, **PLACE, "interval": Count(0), "prompt": Count(1), "lookahead_most": Count(0)},
    given=lambda u: (
        (window_of(u).lookahead_tokens <= u.lookahead_most)
        & (u.replay + u.lookahead_most <= u.prompt - 1)
        & reads(window_of(u), u.replay, u.index)
    ),
    shows=lambda u: by(due(u, u.interval), u.prompt - 1),
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


# Groups without a sliding window

OTHERS = {
    Kind.FULL: ("full", "full attention", {"unit": Count(1), "lookahead": Count(0, 1)}),
    Kind.CHUNKED_LOCAL: ("chunk", "chunked local attention", {"window": Count(2), "lookahead": Count(0, 1)}),
    Kind.MAMBA: ("states", "states", {"drafts": Count(0)}),
}


def _other(kind: Kind, u: Any) -> Group:
    if kind is Kind.FULL:
        return group(kind, u.block, unit_tokens=u.unit, lookahead=bool(u.lookahead))
    if kind is Kind.MAMBA:
        return group(kind, u.block, states=StateMode.ALL, draft_states=u.drafts)
    return group(kind, u.block, u.window, lookahead=bool(u.lookahead))


def kept_elsewhere(kind: Kind) -> Obligation:
    """Where no window slides, every multiple of the alignment is admitted."""
    name, words, unknowns = OTHERS[kind]
    read = {"unit": "unit", "lookahead": "lookahead", "drafts": "draft_states"}
    return Obligation(
        id=f"retention.{name}-at-every-boundary",
        statements=("KV-OP-15", "KV-OP-16"),
        sentence=f"With {words}, whatever a hit at any multiple of the alignment reads is cached as soon as it is "
        "reached and full, whatever the retention interval.",
        unknowns={
            "block": Count(1),
            **unknowns,
            **PROMPT,
            "interval": Count(0),
            "index": Count(0),
            "boundary": Count(1),
        },
        given=lambda u: (u.boundary % u.alignment == 0) & reads(_other(kind, u), u.boundary, u.index),
        shows=lambda u: by(
            retention.Sparse(geometry_of(u), u.interval).due_tokens(_other(kind, u), u.index, u.prompt),
            u.boundary,
            full(u),
        ),
        witnesses={
            "behind other boundaries": lambda u: (u.boundary >= 2 * u.alignment) & (u.block >= 2) & (u.index > 1)
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
            StateMode.ALL,
            StateMode.ALIGN,
            alignment="alignment_tokens",
            lookahead_most="lookahead_tokens",
            **{u: read[u] for u in unknowns if u in read},
        ),
    )


OBLIGATIONS = (REPLAY, REPLAY_DUE, *(kept_elsewhere(kind) for kind in OTHERS))
