"""Finding 009: After a whole prompt was loaded, its last token is computed without what it reads."""

from __future__ import annotations

from collections.abc import Callable

from kvgate.findings.finding import Acts, Finding
from kvgate.monitors.slot_memory import Misread
from kvreference.block_pool import NULL
from kvreference.manager import tokens_computed
from kvreference.rules import Delta
from kvreference.settings import Settings


def _counts_the_last_token(computed: Callable[[int, int], int], end: int, tokens: int) -> int:
    """What is loaded counts as computed, though of a whole request the last token is computed again."""
    return computed(end, tokens) + (end == tokens)


def _acts(settings: Settings, _release: str) -> Acts:
    def given_up_before_the_last(misread: Misread) -> bool:
        """The last token, computed again, reads or writes a block that was freed as if the token were computed."""
        gives_up = not settings.geometry.groups[misread.reader.group].keeps_all
        return gives_up and misread.block == NULL and misread.reader.again

    return Acts([Delta(tokens_computed.__name__, _counts_the_last_token)], misreads=given_up_before_the_last)


FINDING = Finding(
    id="009-load-forgets-its-last-token",
    rank=10,
    statement="KV-OP-24",
    condition="a request of which all tokens are loaded",
    acts=_acts,
    holds=lambda _ideal, _answered, end, tokens: end == tokens,
)
