"""The handover: what the two halves of a connector know of each request, and when either must get a message.

A request is prefilled, and its blocks stay held on the prefill node. The decode node gets it, and reads the blocks when
it admits the request; or it continues without them, because it has the prompt cached, or because the client aborted. In
both cases the prefill node then gets a message that the blocks are no longer needed, and frees them. That is the
contract of the connectors of vLLM that read from the decode node; it is written down here, and nothing of theirs is
run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

from attrs import define

from kvgate.levels.scheduler.nodes import one_named

Tables = tuple[tuple[int, ...], ...]


class Stand(Enum):
    """How far the handover of a request is."""

    PREFILLED = "prefilled"
    """Its prompt is computed, and the decode node does not read it yet."""
    READING = "reading"
    """The decode node reads its blocks."""
    READ = "read"
    """The decode node no longer needs its blocks."""


@define
class Handover:
    """The handover of one request."""

    number: int
    """The request on the prefill node."""
    tables: Tables
    """Its blocks there, by group, as the connector got them when the prompt was computed."""
    stand: Stand = Stand.PREFILLED
    there: int | None = None
    """The request on the decode node, once it is there."""
    is_released: bool = False
    """Whether the prefill node knows that its blocks are no longer needed."""
    lost: bool = False
    """Whether the next message about it never comes."""

    @property
    def needed(self) -> bool:
        """Whether the decode node reads its blocks, or may."""
        return self.stand is not Stand.READ


class Handovers:
    """Every request that the prefill node still holds blocks of for the decode node."""

    def __init__(self) -> None:
        self.open: dict[int, Handover] = {}
        """By the request's number on the prefill node, in the order in which they were prefilled."""
        self.named: dict[int, int] = {}
        """Per request of the decode node, its number on the prefill node."""

    def __iter__(self) -> Iterator[Handover]:
        return iter(tuple(self.open.values()))

    def prefilled(self, number: int, tables: Tables) -> None:
        """The prompt of a request is computed, and its blocks are held."""
        self.open[number] = Handover(number, tables)

    def arrived(self, handover: Handover, there: int) -> None:
        """The decode node has got the request."""
        handover.there = there
        self.named[there] = handover.number

    def of_decode(self, there: int) -> Handover | None:
        """The handover of a request of the decode node, if it is not over."""
        number = self.named.get(there)
        return None if number is None else self.open.get(number)

    def begun(self, handover: Handover) -> None:
        """The decode node has let the request in, and reads its blocks."""
        handover.stand = Stand.READING

    def got_on_without(self, handover: Handover) -> None:
        """The decode node has let the request in, and needs nothing of it."""
        handover.stand = Stand.READ

    def abandoned(self, handover: Handover) -> None:
        """The request ended before the decode node began to read it."""
        handover.stand = Stand.READ

    def was_read(self, handover: Handover, succeeded: bool) -> None:
        """The decode node has read the blocks, or failed to: then it computes what is missing."""
        del succeeded
        handover.stand = Stand.READ
        self._close(handover)

    def acknowledged(self, handover: Handover) -> None:
        """The prefill node got the message."""
        handover.is_released = True
        self._close(handover)

    def _close(self, handover: Handover) -> None:
        if handover.is_released and not handover.needed:
            del self.open[handover.number]

    # Whose message a number stands for

    def read_named(self, number: int) -> Handover | None:
        """The read that may end which a number stands for."""
        return self._named(number, self.being_read())

    def acknowledgement_named(self, number: int) -> Handover | None:
        """The acknowledgement that may arrive which a number stands for."""
        return self._named(number, self.unacknowledged())

    def message_named(self, number: int) -> Handover | None:
        """The message of either kind which a number stands for."""
        return self._named(number, self.awaiting_message())

    def _named(self, number: int, candidates: Sequence[int]) -> Handover | None:
        named = one_named(number, candidates)
        return None if named is None else self.open[named]

    def being_read(self) -> list[int]:
        """The requests of which a read may end."""
        return [each.number for each in self if each.stand is Stand.READING and not each.lost]

    def unacknowledged(self) -> list[int]:
        """The requests of which an acknowledgement may arrive."""
        return [each.number for each in self if each.stand is Stand.READ and not each.is_released and not each.lost]

    def awaiting_message(self) -> list[int]:
        """The requests of which a message of either kind may come."""
        expected = {*self.being_read(), *self.unacknowledged()}
        return [number for number in self.open if number in expected]
