"""Which blocks serve a content: for one line and one group, block indices to the row that holds them.

Several rows may hold the same content, computed side by side. So there are layers: the first names, for every index,
the row that was registered first and serves the hits, the next one the row registered after it, and so on. When a row
loses a block, those behind it move up.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvgate.simulation.ranges.rows import Row


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
        """``row`` holds the content of ``[first, end)``, behind whoever does already."""
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
        """Take ``[first, end)`` out of a layer, and move up what stands behind it."""
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
