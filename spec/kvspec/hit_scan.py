"""The longest hit as production code looks for it: by asking the groups in turn, not by trying every length.

The scan begins at the longest possible length. It asks each group in turn, repeatedly, for the longest hit that it can
serve within the length so far; that becomes the length. When all have been asked since it last became shorter, it is
the hit. The code is written from these sentences, in small steps that also run on unknown numbers.

A *row* is what one group has cached of one request. Full attention counts the blocks that are there from the first one
on. A window looks for as many in a row as it reads. With a draft layer, both look for one more block, the look-ahead
block, drop it, and only then cut the rest to the alignment. A *row model* is a list of groups with unknown cached
blocks and an unknown length of the request, both as rows for the scan and as the reference sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from attrs import define, frozen

from kvreference.attention import blocks_occupied
from kvreference.geometry import Geometry, Group
from kvreference.hit_lookup import _Found
from kvreference.manager import Manager
from kvspec.obligation import Count, Unknown
from kvspec.symbolic import Condition, Number, either, expression_of, formula_of, number_of, remembered, truth_of


@frozen
class Scan:
    """Where a scan stands."""

    hit_tokens: Number
    agreeing: Number
    """How many groups in a row, the last of them the one asked last, can serve this length."""
    turn: Any
    """Which group to ask next."""


def begun(tokens: Number, alignment_tokens: Number) -> Scan:
    """No group was asked yet. The request's last token is never served."""
    return Scan((tokens - 1) // alignment_tokens * alignment_tokens, 0, 0)


def asked(scan: Scan, groups: Number, served_tokens: Number) -> Scan:
    """One of so many ``groups`` was asked, and can serve so many tokens at most."""
    agreeing = either(served_tokens == scan.hit_tokens, scan.agreeing + 1, 1)
    return Scan(served_tokens, agreeing, either(scan.turn + 1 == groups, 0, scan.turn + 1))


def is_over(scan: Scan, groups: Number) -> Condition:
    """Whether all have been asked since the length last changed."""
    over: Condition = scan.agreeing >= groups
    return over


def scanned(groups: Sequence[Callable[[Number], Number]], tokens: Number, alignment_tokens: Number) -> Number:
    """The hit length of a request of ``tokens`` tokens; each group answers with the longest hit of at most a length."""
    scan = begun(tokens, alignment_tokens)
    while not is_over(scan, len(groups)):
        scan = asked(scan, len(groups), groups[scan.turn](scan.hit_tokens))
    return scan.hit_tokens


def searched(serves: Callable[[Number], Condition], hit_tokens: Number, alignment_tokens: Number) -> Number:
    """The longest hit that is served, of at most ``hit_tokens``: the plain way to answer. 0 is always served."""
    while not serves(hit_tokens):
        hit_tokens = lowered(hit_tokens, alignment_tokens)
    return hit_tokens


def lowered(hit_tokens: Number, alignment_tokens: Number) -> Number:
    """The next length to be tried."""
    return hit_tokens - alignment_tokens


@define
class Row:
    """The row of one group."""

    cached: Sequence[Number]
    """Per block, whether it is cached: 0 or 1."""
    block_tokens: int
    alignment_tokens: int
    tokens: Number
    """How long the request is. Its last token is neither served nor matched."""
    window_blocks: int | None = None
    """How many blocks before a hit's end it reads; None: all."""
    lookahead: bool = False
    """Whether the group has a draft layer."""
    asked_before: bool = False
    rows: Sequence[Row] = ()
    """The rows of all groups, where one must know of the others."""

    @property
    def drop_tokens(self) -> int:
        """How many of the tokens that match are not served."""
        return self.block_tokens if self.lookahead else 0

    def __call__(self, hit_tokens: Number) -> Number:
        """The longest hit of at most ``hit_tokens`` that can be served here."""
        served = self.served(hit_tokens)
        self.asked_before = True
        return served

    def served(self, hit_tokens: Number) -> Number:
        """The longest hit: the look-ahead block after it is looked for at each length that is asked for."""
        return self.found(self.reach(hit_tokens + self.drop_tokens))

    def reach(self, tokens: Number) -> Number:
        """How far it may look: nothing matches the request's last token."""
        return either(tokens < self.tokens, tokens, self.tokens - 1)

    def found(self, reach: Number) -> Number:
        """The longest hit of which all that it needs, the look-ahead block too, ends within ``reach``."""
        longest: Number = 0
        in_a_row: Number = 0
        for index, cached in enumerate(self.cached):
            end = index + 1
            in_a_row = either(cached == 1, in_a_row + 1, 0)
            matches = (in_a_row >= self.needed(end)) & (end * self.block_tokens <= reach)
            longest = either(matches, self.cut(end), longest)
        return longest

    def needed(self, end: int) -> int:
        """How many blocks in a row before block ``end`` make a match that ends there, the dropped one among them.

        A shorter hit reads further back. So if what is left is cut, all blocks must be there, from the first one on.
        """
        exact = self.cut(end) == end * self.block_tokens - self.drop_tokens
        if self.window_blocks is None or not exact:
            return end
        return min(end, self.window_blocks + self.lookahead)

    def cut(self, end: int) -> int:
        """The hit that is served when the blocks before ``end`` match."""
        return self.aligned(end * self.block_tokens - self.drop_tokens)

    def aligned(self, tokens: int) -> int:
        """The longest hit that is not longer than ``tokens``."""
        return max(0, tokens // self.alignment_tokens * self.alignment_tokens)


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
        """The same on unknowns, all paths at once."""
        return number_of(partial(self.found, make), self.fits())

    def group_satisfied(self, index: int, hit_tokens: int) -> Condition:
        """Whether the reference says that one group can resume at ``hit_tokens``; the same on every path."""
        found = _AsFound(self.geometry, index, self.cached[index])
        tokens: Any = self.tokens
        fits = self.tokens <= self.tokens_max + 1
        read = map(expression_of, (*self.cached[index], tokens))
        key = (found.group, found.grain_tokens, hit_tokens, formula_of(fits), *read)
        return remembered(key, lambda: truth_of(partial(found.satisfies, hit_tokens, tokens), fits))

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
    """The content that ``manager`` has cached of a request."""
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
    """The cached content of one request in one group, as the reference holds it."""

    def __init__(self, geometry: Geometry, index: int, cached: Sequence[Any]) -> None:
        self.group = geometry.groups[index]
        self.index = index
        self.grain_tokens = geometry.grain_tokens
        self.absent = list(accumulate((1 - block for block in cached), initial=0))
