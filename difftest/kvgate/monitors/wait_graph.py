"""The wait-for graph of an engine at one moment.

An edge joins a request to the request that it waits for. Some waits end by themselves: a transfer ends, a grammar is
compiled, the worker returns a step. A request that reaches no such wait is stuck.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum

from attrs import field, frozen


class Reason(Enum):
    """Why a request makes no progress."""

    BLOCKS = "blocks"
    """Its blocks were rejected, and another request holds some."""
    LINE = "line"
    """A request before it in the queue was rejected."""
    PLACE = "place"
    """As many run as may run."""
    TURN = "turn"
    """The step is full, or has no slot left for its adapter."""
    TRANSFER = "transfer"
    """Another node reads or writes its blocks."""
    READER = "reader"
    """Another node has still to read its blocks, and has not begun."""
    GRAMMAR = "grammar"
    """Its grammar is being compiled."""
    CLIENT = "client"
    """Its client has yet to send the next part."""
    RESUMED = "resumed"
    """The engine is paused, and admits no request."""
    ANSWER = "answer"
    """Another node has yet to say what it offers."""
    NO_REQUEST = "nobody"
    """Nothing holds it up: it could make progress."""


ENDS_BY_ITSELF = frozenset({Reason.TRANSFER, Reason.GRAMMAR, Reason.ANSWER, Reason.CLIENT, Reason.RESUMED})
"""Waits that end from outside the scheduler."""


Naming = Callable[[int], str]
"""What a request is called, by its number."""


def by_number(request: int) -> str:
    """The name of a request where there is one engine."""
    return f"request {request}"


@frozen
class Wait:
    """One edge: a request, what it waits for, and its holder."""

    request: int
    reason: Reason
    holder: int | None = None
    """The request that it waits for, if it is one."""
    blocks: int = 0
    """How many blocks that one holds."""
    lost: bool = False
    """Whether the process that would end it is gone."""
    job: str = ""
    """The job of a connector that it waits for, in words, if it is one."""

    def describe(self, name_of: Naming = by_number) -> str:
        """The edge in words."""
        holder = self.job if self.holder is None else name_of(self.holder)
        ends = ", which never ends" if self.lost else " to end"
        what = {
            Reason.BLOCKS: f"for blocks: {holder} {'uses' if self.job else 'holds'} {self.blocks}",
            Reason.LINE: f"for {holder}, which comes first",
            Reason.PLACE: f"for a place among those that run: {holder} has one",
            Reason.TURN: f"for its turn: {holder} fills the step",
            Reason.TRANSFER: f"for {self.job}{ends}"
            if self.job
            else "for a transfer that never ends"
            if self.lost
            else "for its transfer to end",
            Reason.READER: f"for its blocks to be read by {holder}",
            Reason.GRAMMAR: "for its grammar",
            Reason.CLIENT: "for its client",
            Reason.RESUMED: "for the engine to be resumed",
            Reason.ANSWER: "for what other nodes offer",
            Reason.NO_REQUEST: "for no other request",
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
        """All requests for which a request waits, at any distance; itself only if it waits in a circle."""
        found: set[int] = set()
        queue = [request]
        while queue:
            for edge in self.of(queue.pop()):
                if edge.holder is not None and edge.holder not in found:
                    found.add(edge.holder)
                    queue.append(edge.holder)
        return frozenset(found)

    def ends(self, request: int) -> bool:
        """Whether an outside event ends the wait of a request, or of one that it waits for."""
        return any(
            edge.reason in ENDS_BY_ITSELF and not edge.lost
            for other in (request, *self.reached(request))
            for edge in self.of(other)
        )

    def waits_for_lost(self, request: int) -> bool:
        """Whether a request, or one that it waits for, waits for what never ends."""
        return any(edge.lost for other in (request, *self.reached(request)) for edge in self.of(other))

    def stuck(self) -> tuple[int, ...]:
        """The stuck requests: no event will end their wait."""
        requests = dict.fromkeys(edge.request for edge in self.edges)
        return tuple(request for request in requests if not self.ends(request))

    def is_held_up(self) -> bool:
        """Whether blocks are held for a transfer or a client: what goes round in circles may stop when they are not."""
        return any(edge.reason in (Reason.TRANSFER, Reason.CLIENT) and not edge.lost for edge in self.edges)

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
        """Which request holds what and waits for which other, and any cycle."""
        return "; ".join((f"{self.blocks_free} blocks are free", *self.standing, *self.describe_waits(name_of)))

    def describe_waits(self, name_of: Naming = by_number) -> Iterator[str]:
        """Which request waits for which other, and any cycle."""
        yield from _each_once(edge.describe(name_of) for edge in self.edges)
        circle = self.circle()
        if circle:
            yield "in a circle: " + " → ".join(map(name_of, (*circle, circle[0])))


def _each_once(sentences: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(sentences))
