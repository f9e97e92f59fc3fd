"""A queue of which the code may take the first or the last, or go through all: it has no length, and no other places.

Its entries are the requests that are looked at. Some of them stand for any number of requests. So what is proved over
such a queue holds however many wait: code that asks how many there are, or that goes through a part, fails here.
"""

from __future__ import annotations

from kvspec.sequences import Met


class Queued(Met):
    """Requests in the order of a queue; the first and the last are requests, and not parts."""

    def append(self, number: int) -> None:
        """One more, behind all others."""
        self._elements.append(number)

    def insert(self, place: int, number: int) -> None:
        """One more, before all others."""
        assert place == 0, "before all others"
        self._elements.insert(0, number)

    def remove(self, number: int) -> None:
        """One less, wherever it stands."""
        self._elements.remove(number)

    def reverse(self) -> None:
        """In the other order."""
        self._elements.reverse()

    def pop(self) -> int:
        """Take the last away."""
        last: int = self._elements.pop()
        return last

    def __radd__(self, others: list[int]) -> list[int]:
        """Those that run, and then those that wait."""
        return [*others, *self]

    def __getitem__(self, which: slice) -> list[int]:
        assert (which.start, which.stop, which.step) == (None, 1, None), "the first"
        return self._elements[:1]
