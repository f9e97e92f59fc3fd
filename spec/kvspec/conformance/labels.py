"""Labels: what was recorded, told as transitions, with the table entry or the copy that each of them is about.

A call names blocks alone. For whom it was follows from the tables and copies before and behind the operation: a request
names no block twice (KV-INV-04), so the block tells the entry. Which content a hit asks for follows from the entry, or
from the copy, and not from what the block holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from kvreference.answers import Answer, Copy
from kvreference.cached_map import Content
from kvreference.manager import Manager
from kvreference.operations import Dispatch, OfRequest, Operation
from kvspec.conformance.identity import ForeignPrefixError, content_of_block, content_of_source
from kvspec.conformance.picture import Entry, Picture
from kvspec.conformance.recording import Call, Did
from kvspec.pool.contents import Begin, Demote, Forget, Pin, Register, Reset
from kvspec.pool.holders import Aim, Drop, Hold, Move, Read, ReadDone, Take
from kvspec.pool.state import Operands
from kvspec.pool.transition import Transition

Labelled: TypeAlias = tuple[type[Transition], Operands]

_OF_BLOCK: Mapping[Did, type[Transition]] = {Did.PIN: Pin, Did.DEMOTE: Demote, Did.EVICT: Forget}


class UnexplainedError(Exception):
    """A call that neither a table nor a copy accounts for."""


class Labels:
    """The labels of one operation."""

    def __init__(self, operation: Operation, answer: Answer, manager: Manager, before: Picture, after: Picture) -> None:
        self._operation = operation
        self._answer = answer
        self._manager = manager
        request = operation.request if isinstance(operation, OfRequest) else None
        self._place: dict[int, Entry] = dict(before.entries(request))
        """Where the request names each block by now."""
        self._will = after.entries(request)
        """Where it names each block in the end."""
        self._dispatched = list(enumerate(before.raw.copies)) if isinstance(operation, Dispatch) else []
        self._unread = list(enumerate(after.raw.copies))[len(before.raw.copies) :]
        self._copies = list(self._unread)
        """The copies that are new."""
        self._is_settled = False

    def of(self, calls: Sequence[Call]) -> Iterator[Labelled | Call]:
        """The transitions that ``calls`` stand for, in order; what is no transition is told as it is.

        Raises:
            UnexplainedError: nobody accounts for a call.
        """
        for call in calls:
            if call.did in (Did.REGISTER, Did.BEGIN):
                # All tables stand by then.
                yield from self._settled()
            yield self._label(call)
        yield from self._settled()

    def _label(self, call: Call) -> Labelled | Call:
        block = call.block
        if call.did in _OF_BLOCK:
            return _OF_BLOCK[call.did], Operands(block)
        if call.did is Did.TAKE:
            return Take, Operands(block, self._named(call))
        if call.did is Did.TOUCH:
            if block in self._will and block not in self._place:
                entry = self._named(call)
                return Hold, Operands(block, entry, content=self._asked(entry))
            place, copy = _of_source(self._unread, call)
            return Read, Operands(block, copy=place, content=self._begins(copy))
        if call.did is Did.RELEASE:
            if self._dispatched:
                return ReadDone, Operands(block, copy=_of_source(self._dispatched, call)[0])
            if block not in self._place:
                raise UnexplainedError(f"block {block} is released, and no table of the request names it")
            return Drop, Operands(block, self._place.pop(block))
        if call.did is Did.REGISTER:
            return Register, Operands(block, content=call.content)
        if call.did is Did.RESET and call.answer:
            return Reset, Operands()
        return call

    def _named(self, call: Call) -> Entry:
        if call.block not in self._will:
            raise UnexplainedError(f"{call.did.value}: block {call.block}, and no table of the request names it then")
        self._place[call.block] = self._will[call.block]
        return self._place[call.block]

    def _asked(self, entry: Entry) -> Content:
        """What a block must hold to serve a hit at ``entry``."""
        try:
            return content_of_block(self._manager, *entry)
        except ForeignPrefixError as error:
            raise UnexplainedError(f"a hit at {entry}: {error}") from error

    def _begins(self, copy: Copy) -> Content | Literal[0]:
        """What the source of ``copy`` must hold or begin with; 0 if nothing was granted."""
        assert isinstance(self._operation, OfRequest), "copies are made for a request"
        try:
            return content_of_source(self._manager, self._operation.request, copy.group, self._answer) or 0
        except ForeignPrefixError as error:
            raise UnexplainedError(f"a copy in group {copy.group}: {error}") from error

    def _settled(self) -> Iterator[Labelled]:
        """What no call tells, once: a block that stands at another place of a table, and where a copy goes."""
        if self._is_settled:
            return
        self._is_settled = True
        for block, entry in self._place.items():
            other = self._will.get(block)
            if other is not None and other != entry:
                yield Move, Operands(block, entry, other)
        for place, copy in self._copies:
            yield Aim, Operands(copy.destination, self._will.get(copy.destination, 0), copy=place)


def _of_source(copies: list[tuple[int, Copy]], call: Call) -> tuple[int, Copy]:
    for index, (_, copy) in enumerate(copies):
        if copy.source == call.block:
            return copies.pop(index)
    raise UnexplainedError(f"{call.did.value}: block {call.block}, and no copy that is pending reads it")


def begin(call: Call) -> Labelled:
    """The transition of a boundary that is offered, if it is new."""
    return Begin, Operands(call.block, content=call.content)
