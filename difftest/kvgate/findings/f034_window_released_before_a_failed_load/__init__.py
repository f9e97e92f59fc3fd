"""Finding 034: Blocks of a window are released for a load that then fails, and are read when it is computed again."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from kvgate.findings.finding import Acts, Finding
from kvgate.kernel.difference import Divergence
from kvgate.monitors.slot_memory import Misread, first_read
from kvreference.block_pool import NULL
from kvreference.geometry import Group
from kvreference.manager import lacks_blocks
from kvreference.rules import Delta
from kvreference.settings import Settings
from kvreference.tables import Tables

_WRITTEN = re.compile(r"group (\d+), token (\d+)")


def _never(_rule: Callable[..., bool], _groups: Sequence[Group], _tables: Tables, _tokens: int) -> bool:
    """A request that a failed load sets back continues in its blocks."""
    return False


def _of_a_window(_ideal: bool, _answered: bool, groups: Sequence[Group], tables: Tables, tokens: int) -> bool:
    released = zip(groups, tables, strict=True)
    return any(
        group.window_tokens is not None and first_read(group, tokens) < table.dead * group.block_size_tokens
        for group, table in released
    )


def _acts(settings: Settings, _release: str) -> Acts:
    def released_for_the_load(misread: Misread) -> bool:
        """The block has left a window, and would not be read if the load of the request had not failed."""
        has_window = settings.geometry.groups[misread.reader.group].window_tokens is not None
        return has_window and misread.block == NULL and misread.token < misread.reader.unread_after_load

    return Acts([Delta(lacks_blocks.__name__, _never)], misreads=released_for_the_load)


def _released_for_the_load(divergence: Divergence, engine: Any) -> bool:
    """A failed load has set a request back to tokens that read, or are written, where its window was released."""
    found, shown = divergence.difference, engine.memory.shown_by
    written = _WRITTEN.fullmatch(found.subject) if found.statement == "KV-MEM-02" else None
    if engine.stage.failed_loads_end or not (written or (found.statement == "KV-MEM-01" and shown)):
        return False
    number, token = (int(written[1]), int(written[2])) if written else (shown.group, None)
    group = engine.settings.geometry.groups[number]
    place = shown.place * group.block_size_tokens if token is None else token
    before = [tokens for name, tokens in engine.set_back.items() if written or name == shown.request]
    return group.window_tokens is not None and any(place < first_read(group, tokens) for tokens in before)


FINDING = Finding(
    id="034-window-released-before-a-failed-load",
    rank=34,
    statement="KV-MEM-01",
    condition="a window, a connector, and a load that fails",
    where=lambda settings: any(group.window_tokens is not None for group in settings.geometry.groups),
    on=lambda stage: stage.connector and not stage.failed_loads_end,
    acts=_acts,
    explains_tiers=_released_for_the_load,
    holds=_of_a_window,
)
