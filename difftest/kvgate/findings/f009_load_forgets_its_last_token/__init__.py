"""Finding 009: After a whole prompt was loaded, its last token is computed without what it reads."""

from __future__ import annotations

from collections.abc import Callable

from kvgate.findings.finding import Acts, Finding
from kvgate.monitors.slot_memory import Misread
from kvreference.block_pool import NULL
from kvreference.manager import tokens_computed
from kvreference.rules import Delta


def _counts_the_last_token(computed: Callable[[int, int], int], end: int, tokens: int) -> int:
    """What is loaded counts as computed, though of a whole request the last token is computed again."""
    return computed(end, tokens) + (end == tokens)


def _given_up_before_the_last(misread: Misread) -> bool:
    """The last token, computed again, reads or writes a block that is given up as if it were computed."""
    return misread.block == NULL and misread.reader.again


FINDING = Finding(
    id="009-load-forgets-its-last-token",
    rank=10,
    statement="KV-OP-24",
    condition="a request of which all tokens are loaded",
    acts=lambda *_run: Acts(
        [Delta(tokens_computed.__name__, _counts_the_last_token)], misreads=_given_up_before_the_last
    ),
    holds=lambda _ideal, _answered, end, tokens: end == tokens,
)
