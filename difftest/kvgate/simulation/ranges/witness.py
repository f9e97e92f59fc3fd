"""A witness: whether the blocks that serve a hit hold what the request would have computed.

It looks at no index of what is cached. A block is a place of a row, and the row's own tokens say what was written
there. A block that was taken for something else is not a place of a piece any more. So a stale entry of the index, or
one under the wrong content, is seen when it serves.
"""

from __future__ import annotations

from kvgate.simulation.ranges.content import Path
from kvgate.simulation.ranges.pool import Span
from kvreference.settings import Settings


class Witness:
    """What was seen so far."""

    def __init__(self, settings: Settings) -> None:
        self._sizes_tokens = [group.block_size_tokens for group in settings.geometry.groups]
        self.reads = 0
        """How many blocks were checked."""
        self.hits = 0
        """How many hits."""
        self.unsound: str | None = None
        """The first block that was not what it should have been."""

    def check(self, path: Path, spans: list[list[Span]]) -> None:
        """The request of ``path`` begins after a hit that ``spans`` serve, per group."""
        self.hits += any(spans)
        for index, group in enumerate(spans):
            for row, first, end in group:
                self.reads += end - first
                tokens = end * self._sizes_tokens[index]
                kept = sum(blocks for blocks, _ in row.overlapping(first, end))
                if row.group != index or not row.path.agrees_with(path, tokens):
                    self._found(f"group {index}: blocks [{first}, {end}) hold other tokens than the first {tokens}")
                elif kept != end - first:
                    self._found(f"group {index}: of the blocks [{first}, {end}) only {kept} still hold what they held")

    def _found(self, sentence: str) -> None:
        self.unsound = self.unsound or sentence
