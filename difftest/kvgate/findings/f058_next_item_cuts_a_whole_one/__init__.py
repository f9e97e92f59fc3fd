"""Finding 058: An item that is to be read in one step is cut by its last token, if the next one has no room."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvgate.findings.finding import Acts, Finding
from kvreference.content import Media
from kvreference.rules import Delta

RULE = "tokens_read_whole"
"""A rule of the scheduler's level, which knows what its encoder has room for."""


def _as_if_uncut(
    whole: Callable[..., int], tokens: int, uncut: int, computed: int, items: Sequence[Media], shift: int
) -> int:
    """Items are looked at one by one, and what is left out for a later one is not known yet."""
    return min(tokens, whole(uncut, uncut, computed, items, shift))


FINDING = Finding(
    id="058-next-item-cuts-a-whole-one",
    rank=58,
    statement="KV-SYS-06",
    condition="a draft layer, items that are read in one step, and one right after another that has no room",
    where=lambda settings: settings.geometry.lookahead_tokens > 0,
    on=lambda stage: stage.options.whole_items,
    acts=lambda *_run: Acts([Delta(RULE, _as_if_uncut)]),
    holds=lambda _ideal, answered, tokens, uncut, *_rest: answered == tokens < uncut,
)
