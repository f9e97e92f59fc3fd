"""Chapter 05: the scan ends, and where it ends is the longest hit, whatever the groups are and however many."""

from __future__ import annotations

from typing import Any

from kvreference.attention import Kind
from kvspec import scan
from kvspec.obligation import AMap, Count, Obligation, Unknown, only
from kvspec.scan import Scan
from kvspec.stand_in import group
from kvspec.symbolic import either, implies

MODULE = "kvspec.scan"

# What a group answers


def _not_served_above(u: Any, above: Any) -> Any:
    """No multiple of the alignment behind ``above``, up to where the search began, is served: seen at ``other``."""
    other = u.other * u.alignment
    return implies((other > above) & (other <= u.start * u.alignment), u.serves[other] == 0)


SEARCH: dict[str, Unknown] = {
    "serves": AMap(),
    "alignment": Count(1),
    "start": Count(0),
    "tried": Count(0),
    "other": Count(0),
}


def _lower(u: Any) -> Any:
    after = scan.lowered(u.tried * u.alignment, u.alignment)
    aligned = after == (u.tried - 1) * u.alignment
    return aligned & (after >= 0) & (after < u.tried * u.alignment) & _not_served_above(u, after)


SEARCH_STEP = Obligation(
    id="hit-lookup.search-skips-nothing",
    statements=("KV-OP-01",),
    sentence="A group that searches downwards passes over no length that it can serve, and never goes below 0.",
    unknowns=SEARCH,
    given=lambda u: (
        (u.tried <= u.start)
        & _not_served_above(u, u.tried * u.alignment)
        & (u.serves[u.tried * u.alignment] == 0)
        & (u.serves[0] != 0)
    ),
    shows=_lower,
    witnesses={"some were tried": lambda u: (u.tried == 3) & (u.start == 5) & (u.alignment == 4) & (u.other == 4)},
    mutants=(
        only(
            "two-at-once",
            "Every second length is passed over.",
            f"{MODULE}:lowered",
            lambda hit_tokens, alignment_tokens: hit_tokens - 2 * alignment_tokens,
        ),
    ),
)


# The scan, of any number of groups

SCAN: dict[str, Unknown] = {
    "serves": AMap(2),
    "groups": Count(1),
    "turn": Count(0),
    "agreeing": Count(0),
    "alignment": Count(1),
    "aligned": Count(0),
    "answer": Count(0),
    "group": Count(0),
    "other": Count(0),
}
"""``aligned`` and ``answer`` are the length so far and that of the group asked, ``other`` any length, in alignments."""


def _state(u: Any) -> Scan:
    return Scan(u.aligned * u.alignment, u.agreeing, u.turn)


def _after(u: Any) -> Scan:
    return scan.asked(_state(u), u.groups, u.answer * u.alignment)


def _agreement(u: Any, state: Scan, groups: Any, group: Any) -> Any:
    """``group`` can serve the length if it was asked since the length last changed."""
    ago = either(group < state.turn, state.turn - 1 - group, state.turn - 1 - group + groups)
    return implies((group < groups) & (ago < state.agreeing), u.serves[(group, state.hit_tokens)] != 0)


def _is_scanning(u: Any) -> Any:
    return (u.turn < u.groups) & (u.agreeing < u.groups) & _agreement(u, _state(u), u.groups, u.group)


def _answers(u: Any) -> Any:
    """The group whose turn it is answers with the longest length, of at most the one so far, that it can serve."""
    answer, so_far, other = u.answer * u.alignment, u.aligned * u.alignment, u.other * u.alignment
    longest = implies((other > answer) & (other <= so_far), u.serves[(u.turn, other)] == 0)
    return (u.answer <= u.aligned) & (u.serves[(u.turn, answer)] != 0) & longest


def _keeps(u: Any) -> Any:
    """A length that all groups can serve, and that was not too long before, is not too long now."""
    after, other = _after(u), u.other * u.alignment
    common = (u.serves[(u.turn, other)] != 0) & (other <= u.aligned * u.alignment)
    return implies(common, other <= after.hit_tokens) & (after.turn >= 0) & (after.turn < u.groups)


def _asked_too_low(state: Scan, groups: Any, served_tokens: Any) -> Scan:
    agreeing = either(served_tokens == state.hit_tokens, state.agreeing + 1, 1)
    return Scan(served_tokens - 1, agreeing, either(state.turn + 1 == groups, 0, state.turn + 1))


def _asked_and_counted_on(state: Scan, groups: Any, served_tokens: Any) -> Scan:
    return Scan(served_tokens, state.agreeing + 1, either(state.turn + 1 == groups, 0, state.turn + 1))


def _asked_and_counted_from_none(state: Scan, groups: Any, served_tokens: Any) -> Scan:
    agreeing = either(served_tokens == state.hit_tokens, state.agreeing, 0)
    return Scan(served_tokens, agreeing, either(state.turn + 1 == groups, 0, state.turn + 1))


def _asked_the_same_again(state: Scan, _groups: Any, served_tokens: Any) -> Scan:
    return Scan(served_tokens, either(served_tokens == state.hit_tokens, state.agreeing + 1, 1), state.turn)


SCAN_KEEPS = Obligation(
    id="hit-lookup.scan-loses-no-common-length",
    statements=("KV-OP-01",),
    sentence="However often groups are asked, no length that all of them can serve is passed over.",
    unknowns=SCAN,
    given=lambda u: _is_scanning(u) & _answers(u),
    shows=_keeps,
    witnesses={
        "a common length is left": lambda u: (
            (u.aligned == 3) & (u.answer == 2) & (u.other == 1) & (u.serves[(u.turn, u.alignment)] != 0)
        ),
    },
    mutants=(
        only("a-token-too-low", "The length becomes a token shorter than asked.", f"{MODULE}:asked", _asked_too_low),
    ),
)


def _agrees(u: Any) -> Any:
    after = _after(u)
    return _agreement(u, after, u.groups, u.group) & (after.agreeing <= u.groups)


SCAN_AGREES = Obligation(
    id="hit-lookup.scan-knows-who-agrees",
    statements=("KV-OP-01",),
    sentence="Whoever counts as agreeing can serve the length so far, so that when the scan is over every group can.",
    unknowns=SCAN,
    given=lambda u: _is_scanning(u) & _answers(u),
    shows=_agrees,
    witnesses={
        "the last one agrees": lambda u: (u.groups == 3) & (u.agreeing == 2) & (u.answer == u.aligned),
        "one shortens it": lambda u: (u.groups == 3) & (u.agreeing == 2) & (u.answer < u.aligned) & (u.answer > 0),
    },
    mutants=(
        only(
            "counted-on",
            "A group that shortens the hit is counted with those that agreed on a longer one.",
            f"{MODULE}:asked",
            _asked_and_counted_on,
        ),
        only("one-asked-twice", "The same group is asked again.", f"{MODULE}:asked", _asked_the_same_again),
    ),
)


def _is_shorter(u: Any) -> Any:
    """Either the hit is shorter by an alignment and more, or one group more agrees: neither goes on for ever."""
    before, after = _state(u), _after(u)
    shorter = (after.hit_tokens <= before.hit_tokens - u.alignment) & (after.hit_tokens >= 0)
    agreed = (after.hit_tokens == before.hit_tokens) & (after.agreeing == before.agreeing + 1)
    return shorter | agreed


SCAN_ENDS = Obligation(
    id="hit-lookup.scan-ends",
    statements=("KV-OP-01",),
    sentence="Each question makes the hit at least an alignment shorter or brings one more group to agree, so it ends.",
    unknowns=SCAN,
    given=lambda u: _is_scanning(u) & _answers(u),
    shows=_is_shorter,
    witnesses={"it becomes shorter": lambda u: (u.answer == 1) & (u.aligned == 4) & (u.alignment == 16)},
    mutants=(
        only(
            "nobody-counts",
            "A group that agrees is not counted: they go round for ever.",
            f"{MODULE}:asked",
            _asked_and_counted_from_none,
        ),
    ),
)


SCAN_IS_SERVED = Obligation(
    id="hit-lookup.scan-ends-where-all-serve",
    statements=("KV-OP-01",),
    sentence="When all have been asked since the length last changed, it is one that all can serve.",
    unknowns=SCAN,
    given=lambda u: (
        (u.turn < u.groups)
        & (u.agreeing <= u.groups)
        & (u.group < u.groups)
        & _agreement(u, _state(u), u.groups, u.group)
    ),
    shows=lambda u: implies(scan.is_over(_state(u), u.groups), u.serves[(u.group, u.aligned * u.alignment)] != 0),
    witnesses={"all agree": lambda u: (u.agreeing == u.groups) & (u.groups == 3) & (u.aligned == 2) & (u.turn == 1)},
    mutants=(
        only(
            "over-too-early",
            "It is over when all but one agree.",
            f"{MODULE}:is_over",
            lambda state, groups: state.agreeing >= groups - 1,
        ),
    ),
)


def _begins(u: Any) -> Any:
    """No multiple of the alignment that leaves the last token out is longer, and nobody counts as agreeing."""
    state, other = scan.begun(u.tokens, u.alignment), u.other * u.alignment
    sound = (state.hit_tokens % u.alignment == 0) & (state.hit_tokens >= 0) & (state.hit_tokens <= u.tokens - 1)
    return sound & implies(other <= u.tokens - 1, other <= state.hit_tokens) & (state.agreeing == 0)


SCAN_BEGINS = Obligation(
    id="hit-lookup.scan-begins-at-the-top",
    statements=("KV-OP-01",),
    sentence="The scan begins at the largest multiple of the alignment that leaves the request's last token out.",
    unknowns={"tokens": Count(1), "alignment": Count(1), "other": Count(0)},
    shows=_begins,
    witnesses={"several alignments": lambda u: (u.tokens == 50) & (u.alignment == 16) & (u.other == 3)},
    mutants=(
        only(
            "last-token-served",
            "The request's last token is served too.",
            f"{MODULE}:begun",
            lambda tokens, alignment_tokens: Scan(tokens // alignment_tokens * alignment_tokens, 0, 0),
        ),
    ),
)

# Who need not be asked again


def _needs_no_more(u: Any) -> Any:
    """At a shorter length full attention needs no block, and no token, that it does not need at a longer one."""
    full = group(Kind.FULL, u.block, lookahead=bool(u.drafts == 1))
    shorter, longer = (full.blocks_needed(blocks * u.block) for blocks in (u.shorter, u.longer))
    tokens = full.tokens_matched(u.shorter * u.block) <= full.tokens_matched(u.longer * u.block)
    return (shorter[0] >= longer[0]) & (shorter[1] <= longer[1]) & tokens


FULL_IS_CLOSED = Obligation(
    id="hit-lookup.full-serves-every-shorter-hit",
    statements=("KV-OP-01",),
    sentence="What full attention can serve at a length it can serve at every shorter one.",
    unknowns={"block": Count(1), "drafts": Count(0, 1), "shorter": Count(1), "longer": Count(1)},
    given=lambda u: u.shorter <= u.longer,
    shows=_needs_no_more,
    witnesses={"with a draft layer": lambda u: (u.drafts == 1) & (u.shorter == 2) & (u.longer == 5) & (u.block == 16)},
    mutants=(
        only(
            "full-as-a-window",
            "Full attention reads no more than the last 8 tokens.",
            "kvreference.attention:Full.tokens_unread",
            lambda _full, hit_tokens: max(0, hit_tokens - 8),
        ),
    ),
)

OBLIGATIONS = (SEARCH_STEP, SCAN_BEGINS, SCAN_KEEPS, SCAN_AGREES, SCAN_ENDS, SCAN_IS_SERVED, FULL_IS_CLOSED)
