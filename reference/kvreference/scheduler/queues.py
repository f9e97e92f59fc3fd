"""The two queues: running requests and waiting requests. Concatenated, they are one queue. Admission takes the first
waiting request, preemption the last running one, so both only move the border between the two, and no request passes
another. There is one exception: a loading request keeps its place, and later requests pass it until its transfer is
over.
"""

from __future__ import annotations

from attrs import evolve, frozen

from kvreference.state import State


@frozen
class Terms:
    """The constants of one accepted request."""

    limit_tokens: int
    """How long it may become: its prompt and the tokens that it is answered."""
    external_tokens: int = 0
    """How many tokens after its hit another node still offers."""
    parks: bool = False
    """Whether it loads those before it runs, and so holds blocks that cannot be taken back."""
    sends: bool = False
    """Whether another node reads its blocks once it has ended."""
    entered: bool = False
    """Whether it ever got blocks."""


class Queues(State, changing=("running", "waiting", "terms")):
    """The requests that have not ended, by number, in the order of the two queues."""

    def __init__(self) -> None:
        self.running: list[int] = []
        """In the order in which they were admitted."""
        self.waiting: list[int] = []
        """In the order in which they will be."""
        self.terms: dict[int, Terms] = {}

    def submit(self, number: int, terms: Terms) -> None:
        """A request waits after all others."""
        self.waiting.append(number)
        self.terms[number] = terms

    def admit(self, number: int, runs: bool) -> bool:
        """A waiting request got blocks: it runs after all others, or keeps its place and loads.

        Returns whether it was admitted for the first time.
        """
        terms = self.terms[number]
        self.terms[number] = evolve(terms, external_tokens=0, parks=False, entered=True)
        if runs:
            self.waiting.remove(number)
            self.running.append(number)
        return not terms.entered

    def preempt(self) -> int:
        """The last that runs waits again, before all others."""
        number = self.running.pop()
        self.waiting.insert(0, number)
        return number

    def leave(self, number: int) -> None:
        """A request ends; it may have ended before."""
        self.running = [other for other in self.running if other != number]
        self.waiting = [other for other in self.waiting if other != number]
        self.terms.pop(number, None)

    def ahead_of(self, number: int) -> list[int]:
        """The requests that a request may have to wait for: all before it in the queue."""
        line = self.running + self.waiting
        return line[: line.index(number)]
