"""Chapter 05: the scan ends, and where it ends is the longest hit, for any groups and any number of them.

Hits end where a unit of every group ends, and never reach the last token. Over rows of blocks, the scan finds the same
hit as the reference: up to a size, for every cached set. The reference's own function, whether a group can be resumed
at a length, is asked for every length. A row, and the scan over all rows, must find the longest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm, prod
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import validators

from kvreference import geometry, hit_lookup, retention
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvspec import hit_scan
from kvspec.hit_scan import RowModel, Scan, missing, present
from kvspec.obligation import AMap, Count, Lemma, Obligation, Unknown, only
from kvspec.proofs.lemmas import MULTIPLE
from kvspec.stand_in import any_geometry, group
from kvspec.symbolic import Term, current_path, either, formula_of, implies


def _common(u: Any, units: Sequence[Any]) -> Any:
    """The least common multiple of ``units``, by what it means: of the lengths, it is asked of ``tokens``."""
    if not isinstance(u.tokens, Term):
        return lcm(*units)
    path = current_path()
    least = Term(path.fresh("least"))
    path.fact(least.z3 >= 1)
    path.fact(formula_of(all_of(least % unit == 0 for unit in units)))
    path.fact(formula_of(implies(all_of(u.tokens % unit == 0 for unit in units), u.tokens % least == 0)))
    return least


def _least(u: Any) -> Any:
    """One group is looked at. Of all others that serve hits, ``others`` is the least common multiple."""
    groups: Any = tuple(
        SimpleNamespace(unit=unit, attention=SimpleNamespace(serves_hits=bool(serves == 1)))
        for unit, serves in ((u.unit, u.serves), (u.others, 1))
    )
    # It is a loop in the standard library, for which no formula stands: it is taken to do what it is for.
    meant = vars(geometry)["lcm"]
    asked = (lambda *units: _common(u, units)) if meant is lcm else meant
    with validators.disabled(), patch.object(geometry, "lcm", asked):
        alignment = Geometry(groups).alignment_tokens
    whole = ((u.serves == 0) | (alignment % u.unit == 0)) & (alignment % u.others == 0)
    common = ((u.serves == 0) | (u.tokens % u.unit == 0)) & (u.tokens % u.others == 0)
    return whole & implies(common, u.tokens % alignment == 0)


def all_of(conditions: Any) -> Any:
    """That all are so, without a fork."""
    every: Any = True
    for condition in conditions:
        every = condition & every
    return every


LEAST = Obligation(
    id="hit-lookup.least-common-multiple",
    statements=("KV-OP-01",),
    title="The alignment is whole units of every group that serves hits, however many, and any length that is whole "
    "units of every one of them is a multiple of it.",
    unknowns={"unit": Count(1), "others": Count(1), "serves": Count(0, 1), "tokens": Count(0)},
    claim=_least,
    witnesses={"none divides another": lambda u: (u.unit == 4) & (u.others == 6) & (u.tokens == 24) & (u.serves == 1)},
    mutants=(
        only(
            "product-of-units",
            "The alignment is taken to be the product of the units.",
            "kvreference.geometry:lcm",
            lambda *units: prod(units),
        ),
        only(
            "largest-unit",
            "The alignment is taken to be the largest unit.",
            "kvreference.geometry:lcm",
            lambda *units: max(units),
        ),
        only(
            "units-that-serve-nothing",
            "Groups that serve no hits count, too.",
            "kvreference.geometry:Geometry.alignment_tokens",
            property(lambda self: vars(geometry)["lcm"](*(group.unit for group in self.groups))),
        ),
    ),
)

WHOLE = Obligation(
    id="hit-lookup.hits-are-whole-units",
    statements=("KV-OP-01", "KV-OP-16"),
    title="If the alignment is whole units of a group, every multiple of it is, and the longest hit of a replay "
    "with it: no hit ends where a unit of some group does not.",
    unknowns={
        "unit": Count(1),
        "alignment": Count(1),
        "times": Count(0),
        "prompt": Count(1),
        "lookahead_most": Count(0),
    },
    assumes=lambda u: u.alignment % u.unit == 0,
    claim=lambda u: (_replay(u) % u.unit == 0) & ((u.times * u.alignment) % u.unit == 0),
    lemmas=lambda u: tuple(
        Lemma(MULTIPLE, {"factor": factor, "multiple": u.alignment, "unit": u.unit})
        for factor in (u.times, _replay(u) // u.alignment)
    ),
    witnesses={"a replay hits": lambda u: (_replay(u) > 2 * u.alignment) & (u.alignment > u.unit) & (u.unit >= 2)},
    mutants=(
        only(
            "replay-to-the-token",
            "The longest hit of a replay is not cut to the alignment.",
            "kvreference.retention:replay_boundary",
            lambda geometry, prompt: max(0, prompt - 1 - geometry.lookahead_tokens),
        ),
    ),
    binds=lambda geometry, its: (
        {
            "unit": its.unit,
            "alignment": geometry.alignment_tokens,
            "lookahead_most": geometry.lookahead_tokens,
        }
        if its.attention.serves_hits
        else None
    ),
)


def _replay(u: Any) -> Any:
    its = any_geometry(alignment_tokens=u.alignment, lookahead_tokens=u.lookahead_most)
    return retention.replay_boundary(its, u.prompt)


class AnythingFound(hit_lookup._Found):
    """All that may be cached of one request in one group: counts of what is missing that are not known."""

    def __init__(self, its: Group, absent: Any, begins: Any) -> None:
        self.group = its
        self.absent = absent
        self.begins = begins

    def _beginning(self, _matched_tokens: int) -> int | None:
        return 1 if self.begins else None


def full_of(u: Any) -> Group:
    """A compressed group, inside of whose blocks hits may end, with a draft layer or not."""
    return group(Kind.FULL, u.block, unit_tokens=u.unit, lookahead=bool(u.lookahead))


def accepts(u: Any) -> Any:
    """Whether the group accepts the hit, by the code that runs."""
    return AnythingFound(full_of(u), u.absent, u.begins == 1).satisfies(u.hit, u.tokens)


ACCEPTED: dict[str, Unknown] = {
    "block": Count(1),
    "unit": Count(1),
    "lookahead": Count(0, 1),
    "hit": Count(0),
    "tokens": Count(1),
    "absent": AMap(),
    "begins": Count(0, 1),
}


def binds(_geometry: Geometry, its: Group) -> dict[str, int] | None:
    """A group of full attention, compressed or not."""
    if its.kind is not Kind.FULL:
        return None
    return {"block": its.block_size_tokens, "unit": its.unit, "lookahead": int(its.lookahead)}


LAST = Obligation(
    id="hit-lookup.last-token-is-computed",
    statements=("KV-OP-01",),
    title="No group accepts a hit that reaches the last token of a request, nor one after which the "
    "look-ahead does, for every cached set.",
    unknowns=ACCEPTED,
    assumes=accepts,
    claim=lambda u: (u.hit == 0) | (full_of(u).tokens_matched(u.hit) < u.tokens),
    witnesses={"all but the last": lambda u: (u.hit + u.unit == u.tokens - 1) & (u.hit > u.block) & (u.lookahead == 1)},
    mutants=(
        only(
            "last-token-served",
            "A hit may serve every token of a request.",
            "kvreference.hit_lookup:_Found.satisfies",
            lambda self, hit_tokens, tokens: hit_tokens == 0 or self.group.tokens_matched(hit_tokens) <= tokens,
        ),
    ),
    binds=binds,
)

ALIGNMENT = (LEAST, WHOLE, LAST)


MODULE = "kvspec.hit_scan"

# The answers of a group


def _not_served_above(u: Any, above: Any) -> Any:
    """No multiple of the alignment after ``above``, up to where the search began, is served: seen at ``other``."""
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
    after = hit_scan.lowered(u.tried * u.alignment, u.alignment)
    aligned = after == (u.tried - 1) * u.alignment
    return aligned & (after >= 0) & (after < u.tried * u.alignment) & _not_served_above(u, after)


SEARCH_STEP = Obligation(
    id="hit-lookup.search-skips-nothing",
    statements=("KV-OP-01",),
    title="A group that searches downwards passes over no length that it can serve, and never goes below 0.",
    unknowns=SEARCH,
    assumes=lambda u: (
        (u.tried <= u.start)
        & _not_served_above(u, u.tried * u.alignment)
        & (u.serves[u.tried * u.alignment] == 0)
        & (u.serves[0] != 0)
    ),
    claim=_lower,
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
    return hit_scan.asked(_state(u), u.groups, u.answer * u.alignment)


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
    title="However often groups are asked, no length that all of them can serve is passed over.",
    unknowns=SCAN,
    assumes=lambda u: _is_scanning(u) & _answers(u),
    claim=_keeps,
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
    title="A group that counts as agreeing can serve the length so far; so when the scan is over, every group can.",
    unknowns=SCAN,
    assumes=lambda u: _is_scanning(u) & _answers(u),
    claim=_agrees,
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
    """Either the hit is shorter by an alignment and more, or one group more agrees: neither continues endlessly."""
    before, after = _state(u), _after(u)
    shorter = (after.hit_tokens <= before.hit_tokens - u.alignment) & (after.hit_tokens >= 0)
    agreed = (after.hit_tokens == before.hit_tokens) & (after.agreeing == before.agreeing + 1)
    return shorter | agreed


SCAN_ENDS = Obligation(
    id="hit-lookup.scan-ends",
    statements=("KV-OP-01",),
    title="Each question makes the hit at least an alignment shorter or brings one more group to agree, so it ends.",
    unknowns=SCAN,
    assumes=lambda u: _is_scanning(u) & _answers(u),
    claim=_is_shorter,
    witnesses={"it becomes shorter": lambda u: (u.answer == 1) & (u.aligned == 4) & (u.alignment == 16)},
    mutants=(
        only(
            "nobody-counts",
            "A group that agrees is not counted: the scan never ends.",
            f"{MODULE}:asked",
            _asked_and_counted_from_none,
        ),
    ),
)


SCAN_IS_SERVED = Obligation(
    id="hit-lookup.scan-ends-where-all-serve",
    statements=("KV-OP-01",),
    title="When all have been asked since the length last changed, it is one that all can serve.",
    unknowns=SCAN,
    assumes=lambda u: (
        (u.turn < u.groups)
        & (u.agreeing <= u.groups)
        & (u.group < u.groups)
        & _agreement(u, _state(u), u.groups, u.group)
    ),
    claim=lambda u: implies(hit_scan.is_over(_state(u), u.groups), u.serves[(u.group, u.aligned * u.alignment)] != 0),
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
    """No multiple of the alignment that leaves the last token out is longer, and no group counts as agreeing."""
    state, other = hit_scan.begun(u.tokens, u.alignment), u.other * u.alignment
    sound = (state.hit_tokens % u.alignment == 0) & (state.hit_tokens >= 0) & (state.hit_tokens <= u.tokens - 1)
    return sound & implies(other <= u.tokens - 1, other <= state.hit_tokens) & (state.agreeing == 0)


SCAN_BEGINS = Obligation(
    id="hit-lookup.scan-begins-at-the-top",
    statements=("KV-OP-01",),
    title="The scan begins at the largest multiple of the alignment that leaves the request's last token out.",
    unknowns={"tokens": Count(1), "alignment": Count(1), "other": Count(0)},
    claim=_begins,
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

# Which groups need not be asked again


def _needs_no_more(u: Any) -> Any:
    """At a shorter length full attention needs no block, and no token, that it does not need at a longer one."""
    full = group(Kind.FULL, u.block, lookahead=bool(u.drafts == 1))
    shorter, longer = (full.blocks_needed(blocks * u.block) for blocks in (u.shorter, u.longer))
    tokens = full.tokens_matched(u.shorter * u.block) <= full.tokens_matched(u.longer * u.block)
    return (shorter[0] >= longer[0]) & (shorter[1] <= longer[1]) & tokens


FULL_IS_CLOSED = Obligation(
    id="hit-lookup.full-serves-every-shorter-hit",
    statements=("KV-OP-01",),
    title="If full attention can serve a length, it can serve every shorter one.",
    unknowns={"block": Count(1), "drafts": Count(0, 1), "shorter": Count(1), "longer": Count(1)},
    assumes=lambda u: u.shorter <= u.longer,
    claim=_needs_no_more,
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

SCANS = (SEARCH_STEP, SCAN_BEGINS, SCAN_KEEPS, SCAN_AGREES, SCAN_ENDS, SCAN_IS_SERVED, FULL_IS_CLOSED)


TOKENS = 12
"""For how many tokens there are blocks."""
BLOCKS = ((2, 2), (4, 2), (2, 4))
"""Block sizes of full attention and of the window, in tokens."""
BLOCKS_OF_THREE = ((2, 2, 2), (4, 2, 2))
WINDOWS = ((3, 5), (5, 3))
"""Two windows, in tokens: one that reads a block before its last, and one that reads two."""
DRAFTS = Count(0, 1)
"""Whether a group has a draft layer."""
WHY = "the paths through the code grow with the blocks"


def _window(block_tokens: int, window_tokens: Any, drafts: Any) -> Group:
    return Group("sliding_window", block_tokens, range(64)[window_tokens], lookahead=bool(drafts == 1))


def _model(u: Any, *groups: Group) -> RowModel:
    cached = tuple(present(u, index, TOKENS // group.block_size_tokens) for index, group in enumerate(groups))
    return RowModel(Geometry(groups), cached, u.tokens)


def _with_one_window(u: Any) -> RowModel:
    full, window = BLOCKS[u.blocks]
    groups = Group("full", full, lookahead=bool(u.drafts == 1)), _window(window, u.window, u.window_drafts)
    return _model(u, *groups)


def _with_two_windows(u: Any) -> RowModel:
    full, first, second = BLOCKS_OF_THREE[u.blocks]
    windows = WINDOWS[u.windows]
    return _model(
        u,
        Group("full", full, lookahead=bool(u.drafts == 1)),
        _window(first, windows[0], u.first_drafts),
        _window(second, windows[1], u.second_drafts),
    )


ONE_WINDOW: dict[str, Unknown] = {
    "blocks": Count(0, len(BLOCKS) - 1),
    "drafts": DRAFTS,
    "window_drafts": DRAFTS,
    "window": Count(2, 7),
    "tokens": Count(1, TOKENS + 1),
    **missing(2, [TOKENS // 2] * 2),
}
TWO_WINDOWS: dict[str, Unknown] = {
    "blocks": Count(0, len(BLOCKS_OF_THREE) - 1),
    "drafts": DRAFTS,
    "first_drafts": DRAFTS,
    "second_drafts": DRAFTS,
    "windows": Count(0, len(WINDOWS) - 1),
    "tokens": Count(1, TOKENS + 1),
    **missing(3, [TOKENS // 2] * 3),
}


def _scan_is_right(model: RowModel) -> Any:
    return model.by_scan() == model.by_reference()


def _row_is_right(u: Any) -> Any:
    """A row's answer is at most what it was asked, is served, and nothing between the two is."""
    model = _with_one_window(u)
    index = 1 if u.of_window == 1 else 0
    hit_tokens = u.alignments * model.geometry.alignment_tokens
    answer = model.rows()[index](hit_tokens)
    right = answer <= hit_tokens
    for length in range(0, TOKENS + 1, model.geometry.alignment_tokens):
        served = model.group_satisfied(index, length)
        right = right & implies(answer == length, served) & implies((answer < length) & served, length > hit_tokens)
    return right


def _matched_without_the_drop(_group: Any, hit_tokens: Any) -> Any:
    return hit_tokens


WINDOW_SHORT = only(
    "window-a-token-short",
    "The reference takes a window to be a token shorter than it is.",
    "kvreference.attention:tokens_skipped",
    lambda tokens_computed, window_tokens: max(0, tokens_computed - window_tokens + 2),
)
NO_LOOK_AHEAD = only(
    "look-ahead-not-asked-for",
    "The reference does not ask for the look-ahead block.",
    "kvreference.geometry:Group.tokens_matched",
    _matched_without_the_drop,
)
OVER_EARLY = only(
    "over-too-early",
    "The scan is over when all but one agree.",
    "kvspec.hit_scan:is_over",
    lambda state, groups: state.agreeing >= groups - 1,
)

ROW = Obligation(
    id="hit-lookup.row-answers-with-the-longest",
    statements=("KV-OP-01",),
    title="For every cached set, a group that counts blocks in a row finds the longest hit that it can serve.",
    unknowns={**ONE_WINDOW, "of_window": Count(0, 1), "alignments": Count(0, TOKENS // 2)},
    assumes=lambda u: (u.alignments * 2 < u.tokens) & implies(u.blocks > 0, u.alignments * 4 < u.tokens),
    claim=_row_is_right,
    witnesses={
        "a gap in the middle": lambda u: (
            (u.of_window == 1) & (u.missing_1_2 == 1) & (u.alignments == 4) & (u.window == 5)
        )
    },
    mutants=(
        WINDOW_SHORT,
        only(
            "cut-without-the-beginning",
            "What is left after the drop is cut, though the window of the shorter hit was not looked at.",
            "kvspec.hit_scan:Row.needed",
            lambda row, end: end if row.window_blocks is None else min(end, row.window_blocks + row.lookahead),
        ),
    ),
    bound=f"rows of {TOKENS} tokens, windows of up to 7; {WHY}",
)

SCAN_ONE = Obligation(
    id="hit-lookup.scan-is-the-longest-hit-with-one-window",
    statements=("KV-OP-01",),
    title="With full attention and a window, with draft layers or not, the scan comes to the longest hit.",
    unknowns=ONE_WINDOW,
    claim=lambda u: _scan_is_right(_with_one_window(u)),
    witnesses={
        "a gap in the middle": lambda u: (
            (u.blocks == 1)
            & (u.window_drafts == 1)
            & (u.missing_1_2 == 1)
            & (u.tokens == TOKENS + 1)
            & (_with_one_window(u).by_reference() >= 4)
        ),
    },
    mutants=(WINDOW_SHORT, NO_LOOK_AHEAD, OVER_EARLY),
    bound=f"{TOKENS} tokens in blocks of 2 and 4, windows of up to 7; {WHY}",
)

SCAN_TWO = Obligation(
    id="hit-lookup.scan-is-the-longest-hit-with-two-windows",
    statements=("KV-OP-01",),
    title="With full attention and two windows, with draft layers or not, the scan comes to the longest hit.",
    unknowns=TWO_WINDOWS,
    claim=lambda u: _scan_is_right(_with_two_windows(u)),
    witnesses={
        "each window has a gap": lambda u: (
            (u.first_drafts == 1)
            & (u.second_drafts == 1)
            & (u.missing_1_1 + u.missing_2_2 == 2)
            & (u.tokens == TOKENS + 1)
            & (_with_two_windows(u).by_reference() >= 4)
        ),
    },
    mutants=(NO_LOOK_AHEAD, OVER_EARLY),
    bound=f"{TOKENS} tokens in blocks of 2 and 4, windows of 3 and 5; {WHY}",
)

ROWS = (ROW, SCAN_ONE, SCAN_TWO)
OBLIGATIONS = (*ALIGNMENT, *SCANS, *ROWS)
