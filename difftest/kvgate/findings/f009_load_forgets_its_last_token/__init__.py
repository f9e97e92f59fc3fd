"""Finding 009: After a whole prompt was loaded, its last token is computed without what it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvgate.findings.finding import Acts, Finding
from kvgate.kernel.difference import Divergence
from kvgate.monitors.slot_memory import Misread, first_read
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


def _last_of_a_loaded_prompt(divergence: Divergence, engine: Any) -> bool:
    """With a second tier: all tokens were loaded, and the last one reads what the one after it would not."""
    misread = engine.memory.shown_by
    if divergence.difference.statement != "KV-MEM-01" or misread is None or misread.block != NULL:
        return False
    group, loaded = engine.settings.geometry.groups[misread.group], engine.memory.loaded.get(misread.request)
    if loaded is None:
        return False
    last, after = (first_read(group, token) // group.block_size_tokens for token in (loaded - 1, loaded))
    return bool(misread.place == last == after - 1)


FINDING = Finding(
    id="009-load-forgets-its-last-token",
    rank=10,
    statement="KV-OP-24",
    condition="a request of which all tokens are loaded",
    acts=_acts,
    explains_tiers=_last_of_a_loaded_prompt,
    holds=lambda _ideal, _answered, end, tokens: end == tokens,
)
