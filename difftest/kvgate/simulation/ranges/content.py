"""Content without tokens: where a prefix is on a line, which rows of blocks hold it, and which of those serve it.

A *line* is a sequence of tokens, written as runs. A prompt that leaves a line somewhere continues along a branch, which
is a line of its own. A line is never cut, so a place on it always means the same. The *path* of a request is the lines
that it follows, each up to where it leaves it. Two requests have the same first ``n`` tokens if and only if their paths
pass the same place there: equal content is the same line and position, different content never is.

A *row* is the blocks that one request was given in one group. A block is the place ``index`` of a row: its id is never
asked for. The row says what it holds if it is cached: the first ``index + 1`` blocks of the path. A *piece* is
a run of cached blocks of one row of which everything else is equal as well: how many requests hold them, whether they
are pinned, where they queue. In a queue the blocks of a piece follow each other, the later ones first, as they were
released. Blocks that are not cached are not worth an object.

Several rows may hold the same content, computed at the same time. So which rows *serve* a line in a group is kept in
layers. The first names, for every index, the row that was registered first and serves the hits, the next one the row
registered after it, and so on. When a row loses a block, those registered after it move up.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from kvreference.operations import Run


class Line:
    """Tokens from position ``start`` on, those before it being on the lines that lead here."""

    __slots__ = ("_at", "_firsts", "branches", "end", "serving", "start")

    def __init__(self, start: int, serving: tuple[Serving, ...]) -> None:
        self.start = start
        self.end = start
        self.branches: dict[tuple[int, int], Line] = {}
        """By where a branch leaves, and the token that it leaves with."""
        self.serving = serving
        """Per group, which blocks serve the content on this line."""
        self._at: list[int] = []
        self._firsts: list[int] = []

    def append(self, first: int, length: int) -> None:
        """Append ``length`` consecutive tokens to the line."""
        self._at.append(self.end)
        self._firsts.append(first)
        self.end += length

    def agreeing(self, position: int, first: int, length: int) -> int:
        """How many of ``length`` tokens from ``first`` on, at ``position``, are what the first run there says."""
        if position >= self.end:
            return 0
        place = bisect_right(self._at, position) - 1
        if self._firsts[place] + position - self._at[place] != first:
            return 0
        end = self._at[place + 1] if place + 1 < len(self._at) else self.end
        return min(length, end - position)


class Path:
    """The lines that one request follows: the first from 0 on, each up to where the next begins."""

    __slots__ = ("end", "lines", "starts")

    def __init__(self, root: Line) -> None:
        self.lines = [root]
        self.starts = [0]
        self.end = 0
        """How many tokens the request has."""

    def segments(self, block_size_tokens: int, first: int, end: int) -> Iterator[tuple[Line, int, int]]:
        """The blocks ``[first, end)`` by the line on which their last token lies, in order."""
        if len(self.lines) == 1:
            yield self.lines[0], first, end
            return
        place = bisect_right(self.starts, (first + 1) * block_size_tokens - 1) - 1
        while first < end:
            last = place + 1 == len(self.starts)
            until = end if last else min(end, self.starts[place + 1] // block_size_tokens)
            if until > first:
                yield self.lines[place], first, until
                first = until
            place += 1

    def segment_of(self, block_size_tokens: int, index: int) -> tuple[Line, int, int | None]:
        """The line on which the block at ``index`` ends, with the range of blocks that end on it; None: to its end."""
        place = bisect_right(self.starts, (index + 1) * block_size_tokens - 1) - 1
        first = self.starts[place] // block_size_tokens
        end = None if place + 1 == len(self.starts) else self.starts[place + 1] // block_size_tokens
        return self.lines[place], first, end

    def agrees_with(self, other: Path, tokens: int) -> bool:
        """Whether both have the same first ``tokens`` tokens."""
        if min(self.end, other.end) < tokens:
            return False
        ours, theirs = (bisect_right(path.starts, tokens - 1) - 1 for path in (self, other))
        return self.lines[ours] is other.lines[theirs]


class Lines:
    """All content seen so far, for so many ``groups``."""

    def __init__(self, groups: int) -> None:
        self._groups = groups
        self._root = self._new_line(0)

    def path(self) -> Path:
        """The path of a request without tokens."""
        return Path(self._root)

    def extend(self, path: Path, run: Run) -> None:
        """The request of ``path`` continues with ``run``."""
        line, position = path.lines[-1], path.end
        first, left = run.first, run.length
        while left:
            agreed = line.agreeing(position, first, left)
            if not agreed and position == line.end:
                line.append(first, left)
                agreed = left
            if not agreed:
                line = self._branch(line, position, first)
                path.lines.append(line)
                path.starts.append(position)
            position, first, left = position + agreed, first + agreed, left - agreed
        path.end = position

    def _branch(self, line: Line, position: int, first: int) -> Line:
        branch = line.branches.get((position, first))
        if branch is None:
            branch = line.branches[position, first] = self._new_line(position)
        return branch

    def _new_line(self, start: int) -> Line:
        return Line(start, tuple(Serving() for _ in range(self._groups)))


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
    """The blocks ``[first, end)`` of ``row``, all cached. They queue if and only if no request holds them."""

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
        """The blocks ``[first, end)``, after all cached ones, are cached and held by one request."""
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


class Layer:
    """Disjoint ranges of indices, each with a row."""

    __slots__ = ("ends", "firsts", "rows")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.ends: list[int] = []
        self.rows: list[Row] = []

    def put(self, first: int, end: int, row: Row) -> None:
        """From now on ``row`` stands at ``[first, end)``, where nothing stood."""
        firsts, ends = self.firsts, self.ends
        place = bisect_right(firsts, first)
        if place and ends[place - 1] == first and self.rows[place - 1] is row:
            ends[place - 1] = end
            return
        firsts.insert(place, first)
        ends.insert(place, end)
        self.rows.insert(place, row)

    def overlapping(self, first: int, end: int) -> list[tuple[int, int, Row]]:
        """What stands in ``[first, end)``, cut to it, in order."""
        firsts, ends = self.firsts, self.ends
        place = max(0, bisect_right(firsts, first) - 1)
        found = []
        while place < len(firsts) and firsts[place] < end:
            if ends[place] > first:
                found.append((max(first, firsts[place]), min(end, ends[place]), self.rows[place]))
            place += 1
        return found

    def remove(self, first: int, end: int) -> None:
        """Nothing stands at ``[first, end)`` any more, which lay within one range."""
        place = bisect_right(self.firsts, first) - 1
        before, after = self.firsts[place] < first, end < self.ends[place]
        if before and after:
            self.firsts.insert(place + 1, end)
            self.ends.insert(place + 1, self.ends[place])
            self.rows.insert(place + 1, self.rows[place])
            self.ends[place] = first
        elif before:
            self.ends[place] = first
        elif after:
            self.firsts[place] = end
        else:
            del self.firsts[place], self.ends[place], self.rows[place]


class Serving:
    """The layers of one line and one group."""

    __slots__ = ("layers",)

    def __init__(self) -> None:
        self.layers: list[Layer] = []

    def register(self, first: int, end: int, row: Row) -> None:
        """``row`` holds the content of ``[first, end)``, after the rows that already do."""
        self._register(0, first, end, row)

    def _register(self, depth: int, first: int, end: int, row: Row) -> None:
        if depth == len(self.layers):
            self.layers.append(Layer())
        layer = self.layers[depth]
        if not layer.ends or layer.ends[-1] <= first:
            layer.put(first, end, row)
            return
        free = first
        for start, stop, _row in layer.overlapping(first, end):
            if free < start:
                layer.put(free, start, row)
            self._register(depth + 1, start, stop, row)
            free = stop
        if free < end:
            layer.put(free, end, row)

    def forget(self, first: int, end: int, row: Row) -> None:
        """``row`` does not hold the content of ``[first, end)`` any more, all of which it held."""
        self._forget(0, first, end, row)

    def _forget(self, depth: int, first: int, end: int, row: Row) -> None:
        for start, stop, found in self.layers[depth].overlapping(first, end):
            if found is row:
                self._drop(depth, start, stop)
            else:
                self._forget(depth + 1, start, stop, row)

    def _drop(self, depth: int, first: int, end: int) -> None:
        """Take ``[first, end)`` out of a layer, and move up what stands after it."""
        self.layers[depth].remove(first, end)
        if depth + 1 == len(self.layers):
            return
        for start, stop, row in self.layers[depth + 1].overlapping(first, end):
            self.layers[depth].put(start, stop, row)
            self._drop(depth + 1, start, stop)

    def locate(self, index: int) -> tuple[int, int | None, Row | None]:
        """The range around ``index`` that one row serves, and that row; or the gap there, and None."""
        layer = self.layers[0] if self.layers else _NOTHING
        place = bisect_right(layer.firsts, index)
        if place and index < layer.ends[place - 1]:
            return layer.firsts[place - 1], layer.ends[place - 1], layer.rows[place - 1]
        return (
            layer.ends[place - 1] if place else 0,
            layer.firsts[place] if place < len(layer.firsts) else None,
            None,
        )


_NOTHING = Layer()
