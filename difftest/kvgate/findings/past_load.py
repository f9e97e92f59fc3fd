"""Tables that continue past what is loaded: a negative number of blocks is taken. Findings 013 and 014."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kvreference.admission import blocks_said_free
from kvreference.block_pool import BlockPool
from kvreference.geometry import Geometry
from kvreference.holdings import rounds_of_admission
from kvreference.rules import Delta


class TablesPastLoad:
    """The pool is asked for that number and counts it: it says that it has that many more free blocks than it has."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.blocks = 0
        """How many blocks too many it says that it has."""

    def deltas(self) -> list[Delta]:
        """Those of the count. They take what other deltas have made of a hit as it is."""
        return [
            Delta(rounds_of_admission.__name__, self._admit),
            Delta(blocks_said_free.__name__, self._said),
        ]

    def _admit(
        self,
        rounds: Callable[..., list[range]],
        tables: Sequence[Sequence[int]],
        counts: Sequence[int],
        free: Iterable[int],
        provided: int,
    ) -> list[range]:
        if provided:
            self.blocks += sum(
                max(0, len(table) - group.blocks_occupied(provided))
                for group, table in zip(self.geometry.groups, tables, strict=True)
                if group.keeps_all
            )
        return rounds(tables, counts, free, provided)

    def _said(self, said: Callable[[BlockPool], int], pool: BlockPool) -> int:
        return said(pool) + self.blocks
