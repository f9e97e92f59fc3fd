"""Content without tokens: a token prefix is a place on a line.

A *line* is a sequence of tokens, written as runs. A prompt that leaves a line somewhere goes on along a branch, which
is a line of its own; a line is never cut, so a place on it means the same for ever. The *path* of a request is the
lines that it follows, each up to where it leaves it. Two requests agree on their first ``n`` tokens exactly if their
paths pass the same place there: equal content is the same line and position, different content never is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kvreference.operations import Run

if TYPE_CHECKING:
    from kvgate.simulation.ranges.serving import Serving


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
        """The line goes on with ``length`` consecutive tokens."""
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
    """All content seen so far, for ``groups`` groups."""

    def __init__(self, new_serving: Iterable[type[Serving]]) -> None:
        self._new_serving = tuple(new_serving)
        self._root = self._new_line(0)

    def path(self) -> Path:
        """The path of a request without tokens."""
        return Path(self._root)

    def extend(self, path: Path, run: Run) -> None:
        """The request of ``path`` goes on with ``run``."""
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
        return Line(start, tuple(new() for new in self._new_serving))
