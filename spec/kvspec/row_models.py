"""Small models of which it is not known what is cached: as rows for the scan, and as the reference sees them.

A model is a list of groups. What is cached of one request, block by block, and how long the request is, are unknowns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from attrs import frozen

from kvreference.attention import blocks_occupied
from kvreference.geometry import Geometry, Group
from kvreference.hit_lookup import _Found
from kvreference.manager import Manager
from kvspec.merging import number_of, truth_of
from kvspec.obligation import Count, Unknown
from kvspec.rows import Row
from kvspec.scan import scanned
from kvspec.symbolic import Condition, Number, either

MakeRow = Callable[..., Row]


def missing(groups: int, blocks: Sequence[int]) -> dict[str, Unknown]:
    """Unknowns: per group and block whether it is missing, 0 or 1. A smaller counterexample misses fewer."""
    return {f"missing_{group}_{block}": Count(0, 1) for group in range(groups) for block in range(blocks[group])}


def present(u: Any, group: int, blocks: int) -> tuple[Number, ...]:
    """Per block of a group, whether it is cached."""
    return tuple(1 - getattr(u, f"missing_{group}_{block}") for block in range(blocks))


@frozen
class RowModel:
    """Groups, and of each what is cached of a request of ``tokens`` tokens."""

    geometry: Geometry
    cached: tuple[tuple[Number, ...], ...]
    tokens: Number

    @property
    def tokens_max(self) -> int:
        """For how many tokens there are blocks."""
        return min(
            len(cached) * group.block_size_tokens
            for group, cached in zip(self.geometry.groups, self.cached, strict=True)
        )

    def fits(self) -> Condition:
        """There is a token, and there are blocks for all but the last; and a block is cached or it is not."""
        so: Condition = (self.tokens >= 1) & (self.tokens <= self.tokens_max + 1)
        for block in (block for cached in self.cached for block in cached):
            so = so & (block >= 0) & (block <= 1)
        return so

    def rows(self, make: MakeRow = Row) -> list[Row]:
        """A row per group, none of them asked before."""
        rows = [
            make(
                cached=cached,
                block_tokens=group.block_size_tokens,
                alignment_tokens=self.geometry.alignment_tokens,
                tokens=self.tokens,
                window_blocks=_window_blocks(group),
                lookahead=group.lookahead,
            )
            for group, cached in zip(self.geometry.groups, self.cached, strict=True)
        ]
        for row in rows:
            row.rows = rows
        return rows

    def found(self, make: MakeRow = Row) -> Number:
        """The hit length that the scan comes to, on numbers."""
        return scanned(self.rows(make), self.tokens, self.geometry.alignment_tokens)

    def by_scan(self, make: MakeRow = Row) -> Number:
        """The same on whatever is not known, all ways at once."""
        return number_of(partial(self.found, make), self.fits())

    def group_satisfied(self, index: int, hit_tokens: int) -> Condition:
        """Whether the reference says that one group can resume at ``hit_tokens``."""
        found = _AsFound(self.geometry, index, self.cached[index])
        tokens: Any = self.tokens
        return truth_of(partial(found.satisfies, hit_tokens, tokens), self.tokens <= self.tokens_max + 1)

    def satisfied(self, hit_tokens: int) -> Condition:
        """Whether it says so of all."""
        so: Condition = hit_tokens <= self.tokens - 1
        for index in range(len(self.cached)):
            so = so & self.group_satisfied(index, hit_tokens)
        return so

    def by_reference(self) -> Number:
        """The largest multiple of the alignment at which every group is satisfied."""
        longest: Number = 0
        for hit_tokens in range(0, self.tokens_max + 1, self.geometry.alignment_tokens):
            longest = either(self.satisfied(hit_tokens), hit_tokens, longest)
        return longest


def as_cached(manager: Manager, request: int) -> RowModel:
    """What ``manager`` has cached of a request."""
    geometry, maps = manager.geometry, (manager.pool.cached, manager.pool.partial)
    found = (_Found(geometry, index, maps, manager.prefixes[request]) for index in range(len(geometry.groups)))
    cached = tuple(tuple(int(block is not None) for block in group.blocks) for group in found)
    return RowModel(geometry, cached, len(manager.population[request].tokens))


def _window_blocks(group: Group) -> int | None:
    """How many blocks before a boundary a window reads."""
    if group.window_tokens is None:
        return None
    return blocks_occupied(group.window_tokens - 1, group.block_size_tokens)


class _AsFound(_Found):
    """What is cached of one request in one group, as the reference holds it."""

    def __init__(self, geometry: Geometry, index: int, cached: Sequence[Any]) -> None:
        self.group = geometry.groups[index]
        self.index = index
        self.grain_tokens = geometry.grain_tokens
        self.absent = list(accumulate((1 - block for block in cached), initial=0))
