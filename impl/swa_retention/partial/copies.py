"""The copies of a step: what the worker does before it computes.

A hit that ends inside a block cannot share that block, for the request will write its own tokens into the rest of it.
So the slots before the hit's end are copied into a block of the request's own. A copy happens when the step is
dispatched. Until then its source is held, and what the step has yet to compute is *fenced*: no copy may read it.
"""

from __future__ import annotations

from typing import Any

from attrs import define, field, frozen


@frozen
class BlockCopy:
    """The first ``tokens`` tokens of one block, to be copied into another; the worker knows how many slots they are."""

    group: int
    """The KV-cache group whose layers are copied."""
    source: int
    destination: int
    tokens: int


@define
class Pending:
    """What was ordered since the last dispatch."""

    copies: list[BlockCopy] = field(factory=list)
    sources: list[Any] = field(factory=list)
    """Per copy, its source: vLLM's block, held."""
    fenced: set[bytes] = field(factory=set)
    """The keys of what this step computes."""

    def order(self, group: int, source: Any, destination: Any, tokens: int) -> None:
        """Copy when the step is dispatched; ``source`` is held already, and is let go of then."""
        self.copies.append(BlockCopy(group, source.block_id, destination.block_id, tokens))
        self.sources.append(source)
