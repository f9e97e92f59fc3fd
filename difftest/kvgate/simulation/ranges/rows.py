"""Rows and pieces: the blocks that one request was given in one group, the cached ones in runs.

A block is the place ``index`` of a row: nobody asks for its id. Its row tells what it holds if it is cached, namely the
first ``index + 1`` blocks of the row's path. A *piece* is a run of cached blocks of one row of which everything else is
equal as well: how many hold them, whether they are pinned, where they queue. In a queue the blocks of a piece follow
each other, the later ones first, as they were released. What is not cached is not worth an object.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from kvgate.simulation.ranges.lines import Path


class Node:
    """A place in a queue."""

    __slots__ = ("after", "before")

    before: Node
    after: Node

    def unlink(self) -> None:
        """Take it out of its queue."""
        self.before.after = self.after
        self.after.before = self.before

    def link_before(self, node: Node) -> None:
        """Put it into the queue of ``node``, directly before that."""
        self.before = node.before
        self.after = node
        node.before.after = self
        node.before = self


class Piece(Node):
    """The blocks ``[first, end)`` of ``row``, all cached. They queue exactly if nobody holds them."""

    __slots__ = ("end", "first", "pinned", "references", "row")

    def __init__(self, row: Row, first: int, end: int, references: int = 1, pinned: bool = False) -> None:
        self.row = row
        self.first = first
        self.end = end
        self.references = references
        self.pinned = pinned


class Row:
    """What one admission of one request was given in one group."""

    __slots__ = ("_firsts", "group", "path", "pieces")

    def __init__(self, group: int, path: Path) -> None:
        self.group = group
        self.path = path
        self.pieces: list[Piece] = []
        """In the order of their indices."""
        self._firsts: list[int] = []

    def cache(self, first: int, end: int) -> None:
        """The blocks ``[first, end)``, behind all that are cached, are cached and held by one request."""
        if self.pieces:
            last = self.pieces[-1]
            if last.end == first and last.references == 1 and not last.pinned:
                last.end = end
                return
        self.pieces.append(Piece(self, first, end))
        self._firsts.append(first)

    def within(self, first: int, end: int) -> list[Piece]:
        """The pieces of ``[first, end)``, cut so that none reaches beyond."""
        self._cut(first)
        self._cut(end)
        return self.pieces[bisect_left(self._firsts, first) : bisect_left(self._firsts, end)]

    def _cut(self, index: int) -> None:
        place = bisect_right(self._firsts, index) - 1
        if place < 0:
            return
        piece = self.pieces[place]
        if not piece.first < index < piece.end:
            return
        upper = Piece(self, index, piece.end, piece.references, piece.pinned)
        piece.end = index
        self.pieces.insert(place + 1, upper)
        self._firsts.insert(place + 1, index)
        if not piece.references:
            upper.link_before(piece)

    def cut_top(self, piece: Piece, blocks: int) -> Piece:
        """The last ``blocks`` blocks of ``piece``, as a piece of their own."""
        if blocks == piece.end - piece.first:
            return piece
        index = piece.end - blocks
        self._cut(index)
        return self.pieces[bisect_left(self._firsts, index)]

    def shorten(self, piece: Piece, blocks: int) -> None:
        """The last ``blocks`` blocks of ``piece`` were taken for something else."""
        piece.end -= blocks
        if piece.end == piece.first:
            piece.unlink()
            place = bisect_left(self._firsts, piece.first)
            del self.pieces[place], self._firsts[place]

    def overlapping(self, first: int, end: int) -> list[tuple[int, Piece]]:
        """The pieces that reach into ``[first, end)``, each with how many blocks of it lie there. Nothing is cut."""
        place = max(0, bisect_right(self._firsts, first) - 1)
        found = []
        while place < len(self.pieces) and self._firsts[place] < end:
            piece = self.pieces[place]
            if piece.end > first:
                found.append((min(end, piece.end) - max(first, piece.first), piece))
            place += 1
        return found
