"""Block tables: which blocks hold the tokens of one request in one group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from attrs import define

from kvreference.answers import Hit
from kvreference.attention import Layout, grown
from kvreference.block_pool import NULL
from kvreference.cached_map import Content
from kvreference.content import Prefix
from kvreference.geometry import Geometry
from kvreference.state import State

Tables: TypeAlias = "list[Table]"
"""One request's table in every group."""
Plan: TypeAlias = list[Layout | None]
"""Per group, a table as it must become; None if it stays as it is."""


@define(slots=False)
class Table(State, changing=("blocks",)):
    """The blocks of one request in one group, in token order."""

    blocks: list[int]
    registered: int
    """How many leading blocks were looked at: each is cached, or passed over, once."""
    boundary_tokens: int
    """Up to where, in tokens, boundaries inside blocks were offered to the cache: each is offered once."""
    dead: int = 0
    """How many leading entries were released: null blocks, permanently."""
    fresh: bool = True
    """Whether it holds nothing but a hit."""

    def live(self) -> list[int]:
        """The blocks it names, without the null block."""
        return [block for block in self.blocks if block != NULL]


def tables_of_hit(geometry: Geometry, hit: Hit, computed: int) -> Tables:
    """First tables: the hit, with the null block where no token after the first ``computed`` reads."""
    tables = []
    for group, blocks in zip(geometry.groups, hit.blocks, strict=True):
        dead = group.blocks_unread(computed)
        kept = [*(NULL,) * dead, *blocks[dead:]]
        tables.append(Table(kept, registered=len(kept), boundary_tokens=hit.tokens, dead=dead))
    return tables


def plan_provided(geometry: Geometry, tables: Tables, provided: int) -> Plan:
    """The tables as they must become for another node to write the first ``provided`` tokens; 0: it writes none."""
    wanted = (group.blocks_occupied(provided) for group in geometry.groups)
    return [
        grown(table.blocks, entries) if entries > len(table.blocks) else None
        for table, entries in zip(tables, wanted, strict=True)
    ]


def plan(geometry: Geometry, tables: Tables, before: Plan, tokens: int, slots: int) -> Plan:
    """The tables as they must become after ``before`` to hold ``tokens`` tokens in ``slots`` slots, look-ahead too."""
    layouts: Plan = []
    for group, table, layout in zip(geometry.groups, tables, before, strict=True):
        blocks = table.blocks if layout is None else layout
        entries = group.entries(tokens, slots)
        layouts.append(group.layout(blocks, entries, table.fresh) if entries > len(blocks) else None)
    return layouts


def blocks_new(layouts: Plan, before: Plan) -> int:
    """How many new blocks ``layouts`` take over all groups, with those that were planned ``before``."""
    last = (after if after is not None else first for after, first in zip(layouts, before, strict=True))
    return sum(layout.count(None) for layout in last if layout is not None)


def keeps_all(layout: Layout, blocks: Sequence[int]) -> bool:
    """Whether ``layout`` names the same as ``blocks``, each block as often, besides null blocks and new ones."""
    after: Counter[int | None] = Counter(layout)
    before: Counter[int | None] = Counter(blocks)
    for nothing in (None, NULL):
        del after[nothing], before[nothing]
    return after == before


def content_up_to(geometry: Geometry, group: int, prefixes: Sequence[Prefix], tokens: int) -> Content:
    """The content of the block of ``group`` that ends, or has a boundary, after the first ``tokens`` tokens."""
    return group, prefixes[tokens // geometry.grain_tokens - 1]
