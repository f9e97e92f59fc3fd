"""Who waits for whom: the wait-for graph of an engine at one moment.

Whoever can get on only after somebody else is joined to it by an edge. Some waits end by themselves: a transfer ends, a
grammar is compiled, the worker returns a step. From whom no such wait can be reached, for whom nobody will do anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum

from attrs import field, frozen


class Reason(Enum):
    """Why a request does not get on."""

    BLOCKS = "blocks"
    """It was refused blocks, and somebody else holds some."""
    LINE = "line"
    """Somebody before it in line was refused."""
    PLACE = "place"
    """As many run as may run."""
    TURN = "turn"
    """The step is full."""
    TRANSFER = "transfer"
    """Another node reads or writes its blocks."""
    READER = "reader"
    """Another node has still to read its blocks, and has not begun."""
    GRAMMAR = "grammar"
    """Its grammar is being compiled."""
    ANSWER = "answer"
    """Another node has yet to say what it offers."""
    NO_REQUEST = "nobody"
    """Nothing holds it up: it could be brought on."""


ENDS_BY_ITSELF = frozenset({Reason.TRANSFER, Reason.GRAMMAR, Reason.ANSWER})
"""Waits that somebody outside ends."""


Naming = Callable[[int], str]
"""What a request is called, by its number."""


def by_number(request: int) -> str:
    """The name of a request where there is one engine."""
    return f"request {request}"


@frozen
class Wait:
    """One edge: a request, what it waits for, and who has it."""

    request: int
    reason: Reason
    holder: int | None = None
    """The request that it waits for, if it is one."""
    blocks: int = 0
    """How many blocks that one holds."""
    lost: bool = False
    """Whether whoever would end it is gone."""

    def describe(self, name_of: Naming = by_number) -> str:
        """The edge in words."""
        holder = "" if self.holder is None else name_of(self.holder)
        what = {
            Reason.BLOCKS: f"for blocks: {holder} holds {self.blocks}",
            Reason.LINE: f"behind {holder}, which comes first",
            Reason.PLACE: f"for a place among those that run: {holder} has one",
            Reason.TURN: f"for its turn: {holder} fills the step",
            Reason.TRANSFER: "for a transfer that never ends" if self.lost else "for its transfer to end",
            Reason.READER: f"for its blocks to be read by {holder}",
            Reason.GRAMMAR: "for its grammar",
            Reason.ANSWER: "for what other nodes offer",
            Reason.NO_REQUEST: "for nobody",
        }
        return f"{name_of(self.request)} waits {what[self.reason]}"


@frozen
class WaitFor:
    """The graph. Requests are named by number."""

    edges: tuple[Wait, ...]
    blocks_free: int = 0
    standing: tuple[str, ...] = field(default=())
    """Where each request stands, in words."""

    def of(self, request: int) -> tuple[Wait, ...]:
        """What a request waits for."""
        return tuple(edge for edge in self.edges if edge.request == request)

    def reached(self, request: int) -> frozenset[int]:
        """Everybody for whom a request waits, at any distance; itself only if it waits in a circle."""
        found: set[int] = set()
        queue = [request]
        while queue:
            for edge in self.of(queue.pop()):
                if edge.holder is not None and edge.holder not in found:
                    found.add(edge.holder)
                    queue.append(edge.holder)
        return frozenset(found)

    def ends(self, request: int) -> bool:
        """Whether somebody outside will bring a request on, or one for whom it waits."""
        return any(
            edge.reason in ENDS_BY_ITSELF and not edge.lost
            for other in (request, *self.reached(request))
            for edge in self.of(other)
        )

    def stuck(self) -> tuple[int, ...]:
        """The requests for whom nobody will do anything."""
        requests = dict.fromkeys(edge.request for edge in self.edges)
        return tuple(request for request in requests if not self.ends(request))

    def is_held_up(self) -> bool:
        """Whether a transfer is under way: what goes round in circles meanwhile may stop when it ends."""
        return any(edge.reason is Reason.TRANSFER and not edge.lost for edge in self.edges)

    def circle(self) -> tuple[int, ...]:
        """Requests that wait for one another in turn: the shortest such circle, if there is any."""
        circles = (found for request in dict.fromkeys(e.request for e in self.edges) if (found := self._back(request)))
        return min(circles, key=len, default=())

    def _back(self, start: int) -> tuple[int, ...]:
        """The shortest way from a request back to itself."""
        ways: list[tuple[int, ...]] = [(start,)]
        seen: set[int] = set()
        for way in ways:
            for edge in self.of(way[-1]):
                if edge.holder == start:
                    return way
                if edge.holder is not None and edge.holder not in seen:
                    seen.add(edge.holder)
                    ways.append((*way, edge.holder))
        return ()

    def describe(self, name_of: Naming = by_number) -> str:
        """Who holds what, who waits for whom, and where it closes."""
        return "; ".join((f"{self.blocks_free} blocks are free", *self.standing, *self.describe_waits(name_of)))

    def describe_waits(self, name_of: Naming = by_number) -> Iterator[str]:
        """Who waits for whom, and where it closes."""
        yield from _each_once(edge.describe(name_of) for edge in self.edges)
        circle = self.circle()
        if circle:
            yield "in a circle: " + " → ".join(map(name_of, (*circle, circle[0])))


def _each_once(sentences: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(sentences))
