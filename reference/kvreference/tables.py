"""Block tables: which blocks hold the tokens of one request in one group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from attrs import define, evolve

from kvreference.answers import Hit
from kvreference.attention import Layout, grown
from kvreference.block_pool import NULL
from kvreference.cached_map import Content
from kvreference.content import Prefix
from kvreference.geometry import Geometry

Tables: TypeAlias = "list[Table]"
"""One request's table in every group."""
Plan: TypeAlias = list[Layout]
"""Per group, a table as it must become."""


@define
class Table:
    """The blocks of one request in one group, in token order."""

    blocks: list[int]
    registered: int
    """How many leading blocks were offered to the cache: each is offered once."""
    boundary_tokens: int
    """Up to where boundaries inside blocks were offered: each is offered once."""
    fresh: bool = True
    """Whether it holds nothing but a hit."""

    def copy(self) -> Table:
        """An independent table in the same state."""
        return evolve(self, blocks=list(self.blocks))

    def live(self) -> list[int]:
        """The blocks it names, without the null block."""
        return [block for block in self.blocks if block != NULL]


def tables_of_hit(geometry: Geometry, hit: Hit, computed: int) -> Tables:
    """First tables: the hit, with the null block where no token after the first ``computed`` reads."""
    tables = []
    for group, blocks in zip(geometry.groups, hit.blocks, strict=True):
        dead = group.blocks_dead(computed)
        kept = [*(NULL,) * dead, *blocks[dead:]]
        tables.append(Table(kept, registered=len(kept), boundary_tokens=hit.tokens))
    return tables


def plan(geometry: Geometry, tables: Tables, provided: int, tokens: int, slots: int) -> tuple[Plan, Plan]:
    """The tables as they must become: for what another node provides, then to hold ``tokens`` in ``slots`` slots.

    ``provided`` is the end of what the other node provides, in tokens; 0 if it provides nothing.
    """
    first = [
        grown(table.blocks, group.blocks_occupied(provided))
        for group, table in zip(geometry.groups, tables, strict=True)
    ]
    second = [
        group.layout(layout, group.entries(tokens, slots), table.fresh)
        for group, table, layout in zip(geometry.groups, tables, first, strict=True)
    ]
    return first, second


def blocks_new(layouts: Plan) -> int:
    """How many new blocks a plan takes, over all groups."""
    return sum(layout.count(None) for layout in layouts)


def content_up_to(geometry: Geometry, group: int, prefixes: Sequence[Prefix], tokens: int) -> Content:
    """What a block of ``group`` holds that ends, or in which a boundary lies, at the first ``tokens`` tokens."""
    return group, prefixes[tokens // geometry.grain_tokens - 1]
