"""The pool in ranges: what is free in the order in which it will be taken, and what is pinned.

The rules are those of ``kvreference.block_pool``, ``free_queue`` and ``pinned_tier``. Blocks that are not cached are
alike, so of them only the number counts: next to each other in the queue they are one node, and where scratch goes
first they are one number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from kvgate.simulation.ranges.content import Node, Piece, Row
from kvreference.settings import Settings

Span: TypeAlias = tuple[Row, int, int]
"""The blocks ``[first, end)`` of a row."""


class Scratch(Node):
    """Free blocks next to each other that are not cached."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks


class Queue:
    """Pieces, and scratch between them, in the order in which they are taken."""

    def __init__(self) -> None:
        self.blocks = 0
        self._ends = Node()
        self._ends.before = self._ends.after = self._ends

    def __iter__(self) -> Iterator[Node]:
        """Every node. The one that was given last may be taken out meanwhile."""
        node = self._ends.after
        while node is not self._ends:
            after = node.after
            yield node
            node = after

    @property
    def front(self) -> Node:
        """What is taken first. There must be something."""
        return self._ends.after

    def append(self, piece: Piece) -> None:
        """``piece`` is taken after all that queue now."""
        piece.link_before(self._ends)
        self.blocks += piece.end - piece.first

    def append_scratch(self, blocks: int) -> None:
        """So are ``blocks`` blocks that are not cached."""
        last = self._ends.before
        if isinstance(last, Scratch):
            last.blocks += blocks
        else:
            Scratch(blocks).link_before(self._ends)
        self.blocks += blocks

    def remove(self, piece: Piece) -> None:
        """Take ``piece`` out, wherever it stands."""
        piece.unlink()
        self.blocks -= piece.end - piece.first


class Pool:
    """All blocks of one system but the null block."""

    def __init__(self, settings: Settings) -> None:
        self._sizes_tokens = [group.block_size_tokens for group in settings.geometry.groups]
        self.scratch_first = settings.scratch_first
        self.drop_blocks_min = settings.pin_drop_blocks_min
        self.scratch = 0
        """Free blocks that are taken before the queue."""
        self.queue = Queue()
        self.pinned = Queue()
        """Pinned pieces that no request holds, the oldest first."""
        self.evictions = 0
        """How many cached blocks were taken for something else."""
        self._put_scratch(settings.blocks - 1)

    @property
    def free(self) -> int:
        """How many blocks can be taken without demotion."""
        return self.scratch + self.queue.blocks

    # Taking

    def take(self, blocks: int) -> None:
        """Take ``blocks`` free blocks from the front; what they held is forgotten."""
        first = min(blocks, self.scratch)
        self.scratch -= first
        blocks -= first
        queue = self.queue
        queue.blocks -= blocks
        while blocks:
            node = queue.front
            if isinstance(node, Scratch):
                taken = min(blocks, node.blocks)
                node.blocks -= taken
                if not node.blocks:
                    node.unlink()
            else:
                assert isinstance(node, Piece)
                taken = min(blocks, node.end - node.first)
                self._evict(node, taken)
            blocks -= taken

    def _evict(self, piece: Piece, blocks: int) -> None:
        row, end = piece.row, piece.end
        group = row.group
        for line, first, stop in row.path.segments(self._sizes_tokens[group], end - blocks, end):
            line.serving[group].forget(first, stop, row)
        row.shorten(piece, blocks)
        self.evictions += blocks

    def hold(self, spans: Iterable[Span]) -> None:
        """One holder more for each of ``spans``; what was free or pinned waits no longer."""
        for row, first, end in spans:
            for piece in row.within(first, end):
                if not piece.references:
                    (self.pinned if piece.pinned else self.queue).remove(piece)
                piece.references += 1

    def count_free(self, spans: Iterable[Span]) -> int:
        """How many blocks of ``spans`` are free."""
        pieces = (each for row, first, end in spans for each in row.overlapping(first, end))
        return sum(blocks for blocks, piece in pieces if not piece.references and not piece.pinned)

    # Releasing

    def release(self, spans: list[Span]) -> None:
        """One holder fewer for each of ``spans``, the later ones first. What no piece covers is scratch."""
        for row, first, end in reversed(spans):
            for piece in reversed(row.within(first, end)):
                if piece.end < end:
                    self._put_scratch(end - piece.end)
                piece.references -= 1
                if not piece.references:
                    (self.pinned if piece.pinned else self.queue).append(piece)
                end = piece.first
            if first < end:
                self._put_scratch(end - first)

    def _put_scratch(self, blocks: int) -> None:
        if self.scratch_first:
            self.scratch += blocks
        else:
            self.queue.append_scratch(blocks)

    # The pinned tier

    def slide(self, spans: list[Span], anchor: list[Span]) -> None:
        """Release what a window slid past; of a long drop, ``anchor`` stays pinned."""
        if self.drop_blocks_min is not None and sum(end - first for _, first, end in spans) >= self.drop_blocks_min:
            self._pin(anchor)
        self.release(spans)

    def end(self, spans: list[Span]) -> None:
        """Release a whole table; cached blocks stay pinned if there is a pinned tier."""
        if self.drop_blocks_min is not None:
            self._pin(spans)
        self.release(spans)

    def _pin(self, spans: list[Span]) -> None:
        for row, first, end in spans:
            for piece in row.within(first, end):
                piece.pinned = True

    def make_room(self, blocks: int, kept: list[Span]) -> bool:
        """Whether ``blocks`` blocks can be taken, after the oldest pinned ones but ``kept`` are demoted as need be."""
        lacking = blocks - self.free
        if lacking <= 0:
            return True
        if self.drop_blocks_min is None:
            return False
        stays = {id(piece) for row, first, end in kept for piece in row.within(first, end)}
        pieces = [node for node in self.pinned if isinstance(node, Piece) and id(node) not in stays]
        if lacking > sum(piece.end - piece.first for piece in pieces):
            return False
        for piece in pieces:
            if lacking <= 0:
                break
            demoted = piece.row.cut_top(piece, min(lacking, piece.end - piece.first))
            lacking -= demoted.end - demoted.first
            self.pinned.remove(demoted)
            demoted.pinned = False
            self.queue.append(demoted)
        return True
