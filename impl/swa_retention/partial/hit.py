"""A hit that ends inside a block, on its way from the look-up to the admission.

vLLM's scheduler takes what the look-up found, and hands it to the admission as it is: per group, a list of blocks. A
list that knows the source of a copy as well goes the same way, and nothing between has to know of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from attrs import frozen


@frozen
class Source:
    """The block of which a beginning is copied."""

    group: int
    block: Any
    tokens: int
    """How many tokens are copied: those of the hit after its full blocks."""
    key: bytes
    """What must be computed for the hit: with a draft layer, a unit more than is copied."""


class HitBlocks(list[Any]):
    """The full blocks of a hit in one group, and the source of the copy after them."""

    def __init__(self, blocks: Iterable[Any], source: Source) -> None:
        super().__init__(blocks)
        self.source = source

    def __bool__(self) -> bool:
        """A hit without any full block is a hit: vLLM would take an empty list for none."""
        return True


def sources_of(hit: Sequence[Sequence[Any]]) -> Iterator[Source]:
    """The sources of the copies that serve ``hit``, group by group."""
    for blocks in hit:
        if isinstance(blocks, HitBlocks):
            yield blocks.source
