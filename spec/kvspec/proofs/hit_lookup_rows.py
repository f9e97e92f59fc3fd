"""Chapter 05: over rows of blocks, the scan comes to the hit that the reference comes to.

Up to a size, and there for whatever is cached: the reference's own question, whether a group can be resumed at a
length, is asked of every length, and the longest is what a row, and the scan over all rows, must find.
"""

from __future__ import annotations

from typing import Any

from kvreference.geometry import Geometry, Group
from kvspec.obligation import Count, Obligation, Unknown, only
from kvspec.row_models import RowModel, missing, present
from kvspec.symbolic import implies

TOKENS = 12
"""For how many tokens there are blocks."""
BLOCKS = ((2, 2), (4, 2), (2, 4))
"""Block sizes of full attention and of the window, in tokens."""
BLOCKS_OF_THREE = ((2, 2, 2), (4, 2, 2))
WINDOWS = ((3, 5), (5, 3))
"""Two windows, in tokens: one that reads a block before its last, and one that reads two."""
DRAFTS = Count(0, 1)
"""Whether a draft layer lives in a group."""
WHY = "the ways through the code grow with the blocks"


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
    "kvspec.scan:is_over",
    lambda state, groups: state.agreeing >= groups - 1,
)

ROW = Obligation(
    id="hit-lookup.row-answers-with-the-longest",
    statements=("KV-OP-01",),
    sentence="Whatever is cached, a group that counts blocks in a row finds the longest hit that it can serve.",
    unknowns={**ONE_WINDOW, "of_window": Count(0, 1), "alignments": Count(0, TOKENS // 2)},
    given=lambda u: (u.alignments * 2 < u.tokens) & implies(u.blocks > 0, u.alignments * 4 < u.tokens),
    shows=_row_is_right,
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
            "kvspec.rows:Row.needed",
            lambda row, end: end if row.window_blocks is None else min(end, row.window_blocks + row.lookahead),
        ),
    ),
    bound=f"rows of {TOKENS} tokens, windows of up to 7; {WHY}",
)

SCAN_ONE = Obligation(
    id="hit-lookup.scan-is-the-longest-hit-with-one-window",
    statements=("KV-OP-01",),
    sentence="With full attention and a window, with draft layers or not, the scan comes to the longest hit.",
    unknowns=ONE_WINDOW,
    shows=lambda u: _scan_is_right(_with_one_window(u)),
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
    sentence="With full attention and two windows, with draft layers or not, the scan comes to the longest hit.",
    unknowns=TWO_WINDOWS,
    shows=lambda u: _scan_is_right(_with_two_windows(u)),
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

OBLIGATIONS = (ROW, SCAN_ONE, SCAN_TWO)
