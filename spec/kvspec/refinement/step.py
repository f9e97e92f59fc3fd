"""A step: one operation, the transitions that it consisted of, and everything that says what must hold after it.

A recorded call names only blocks. Its request follows from the tables and copies before and after the operation: a
request names no block twice (KV-INV-04), so the block identifies the entry. The content that a hit asks for follows
from the entry or the copy, and not from what the block holds. It is the content of its own request, group and place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from attrs import frozen

from kvreference.answers import Answer, Copy, Granted
from kvreference.cached_map import Content
from kvreference.manager import Manager
from kvreference.operations import Dispatch, OfRequest, Operation, Transferred
from kvreference.population import Request
from kvspec.pool.state import Operands, Transition
from kvspec.pool.transitions import (
    Aim,
    Begin,
    Compute,
    Demote,
    Drop,
    Fill,
    Filled,
    Forget,
    Hold,
    Move,
    Pin,
    Provide,
    Read,
    ReadDone,
    Register,
    Reset,
    Take,
)
from kvspec.refinement.picture import Entry, Picture
from kvspec.refinement.recording import Call, Did


@frozen
class Drift:
    """One difference, and where it was seen."""

    operation: Operation | None
    """None if it is wrong before anything happened."""
    where: str
    """A transition that cannot happen, a map of the state, or an invariant."""
    key: Any
    """Which block, entry, copy or content."""
    expected: Any
    got: Any

    def __str__(self) -> str:
        return f"{self.operation}: {self.where} at {self.key}: expected {self.expected}, got {self.got}"


class ForeignPrefixError(LookupError):
    """Where a prefix should stand there is none, or one of another length."""


def content_up_to(manager: Manager, request: int, group: int, tokens: int) -> Content:
    """The content of a block of ``group`` that ends, or in which a boundary lies, at the first ``tokens`` tokens.

    A prefix knows its own length, so that one that stands at a wrong place is not taken.

    Raises:
        ForeignPrefixError: the request has no prefix of that length.
    """
    place = tokens // manager.geometry.grain_tokens - 1
    prefixes = manager.prefixes[request]
    if not 0 <= place < len(prefixes) or prefixes[place].tokens != tokens:
        raise ForeignPrefixError(f"request {request} has no prefix of {tokens} tokens")
    return group, prefixes[place]


def content_of_block(manager: Manager, request: int, group: int, index: int) -> Content:
    """The content of the full block at ``index``."""
    return content_up_to(manager, request, group, (index + 1) * manager.geometry.groups[group].block_size_tokens)


def content_of_source(manager: Manager, request: int, group: int, answer: Answer) -> Content | None:
    """The content that a block must hold, or begin with if a beginning is copied; None if nothing was granted."""
    if not isinstance(answer, Granted):
        return None
    matched = manager.geometry.groups[group].tokens_matched(answer.hit_tokens)
    return content_up_to(manager, request, group, matched)


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
        self._will = {**after.given_up_since(before), **after.entries(request)}
        """Where it names each block in the end, or what it freed and waits for steps in flight."""
        self._loaded = _loaded(manager, request, answer)
        arrives = isinstance(operation, Transferred)
        self._filled = [block for block in self._place if arrives and before.state.filled[block]]
        self._dispatched = list(enumerate(before.raw.copies)) if isinstance(operation, Dispatch) else []
        self._unread = list(enumerate(after.raw.copies))[len(before.raw.copies) :]
        self._copies = list(self._unread)
        """The copies that are new."""
        self._is_settled = False
        self._before = before.state

    def of(self, calls: Sequence[Call]) -> Iterator[Labelled | Call]:
        """The transitions that ``calls`` stand for, in order; a call that is not a transition is yielded as it is.

        Raises:
            UnexplainedError: nothing accounts for a call.
        """
        known = [call for call in calls if call.did in (Did.REGISTER, Did.BEGIN) and self._is_there(call)]
        yield from (
            (Provide, Operands(call.block, content=call.content)) for call in known if call.block in self._filled
        )
        yield from ((Filled, Operands(block)) for block in self._filled)
        for call in calls:
            if call.did in (Did.REGISTER, Did.BEGIN) and not self._is_settled:
                # All tables stand by then.
                yield from self._settled()
                yield from (
                    (Compute, Operands(call.block, self._will.get(call.block, 0), content=call.content))
                    for call in known
                    if call.block not in self._filled
                )
            yield self._label(call)
        yield from self._settled()

    def _is_there(self, call: Call) -> bool:
        """Whether what becomes known is computed by now, or is computed in the step that is scheduled, and is new.

        The request's record says so: external tokens count as computed once they have arrived.
        """
        assert isinstance(self._operation, OfRequest), "it becomes known for a request"
        assert call.content is not None, "it is the content that becomes known"
        request = self._manager.population[self._operation.request]
        # The last token that arrives counts as computed only later.
        arrives = isinstance(self._operation, Transferred)
        computed = len(request.tokens) if arrives else request.tokens_computed
        return call.content[1].tokens <= computed and self._before.begins[call.content, call.block] == 0

    def _label(self, call: Call) -> Labelled | Call:
        block = call.block
        if call.did in _OF_BLOCK:
            return _OF_BLOCK[call.did], Operands(block)
        if call.did is Did.TAKE:
            entry = self._named(call)
            return (Fill if entry[-1] in self._loaded.get(entry[-2], ()) else Take), Operands(block, entry)
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
        """The content that a block must hold to serve a hit at ``entry``."""
        try:
            return content_of_block(self._manager, *entry)
        except ForeignPrefixError as error:
            raise UnexplainedError(f"a hit at {entry}: {error}") from error

    def _begins(self, copy: Copy) -> Content | Literal[0]:
        """The content that the source of ``copy`` must hold or begin with; 0 if nothing was granted."""
        assert isinstance(self._operation, OfRequest), "copies are made for a request"
        try:
            return content_of_source(self._manager, self._operation.request, copy.group, self._answer) or 0
        except ForeignPrefixError as error:
            raise UnexplainedError(f"a copy in group {copy.group}: {error}") from error

    def _settled(self) -> Iterator[Labelled]:
        """Transitions without a call, each once: a block moves to another place of a table, or a copy gets its
        destination."""
        if self._is_settled:
            return
        self._is_settled = True
        for block, entry in self._place.items():
            other = self._will.get(block)
            if other is not None and other != entry:
                yield Move, Operands(block, entry, other)
        for place, copy in self._copies:
            yield Aim, Operands(copy.destination, self._will.get(copy.destination, 0), copy=place)


def _loaded(manager: Manager, request: int | None, answer: Answer) -> Mapping[int, range]:
    """Per group, the positions that another node writes from this operation on."""
    if request is None or not (isinstance(answer, Granted) and answer.loads):
        return {}
    end = manager.population[request].tokens_computed
    return {
        index: range((end - answer.external_tokens) // group.block_size_tokens, group.blocks_occupied(end))
        for index, group in enumerate(manager.geometry.groups)
    }


def _of_source(copies: list[tuple[int, Copy]], call: Call) -> tuple[int, Copy]:
    for index, (_, copy) in enumerate(copies):
        if copy.source == call.block:
            return copies.pop(index)
    raise UnexplainedError(f"{call.did.value}: block {call.block}, and no copy that is pending reads it")


def begin(call: Call) -> Labelled:
    """The transition of a boundary that is offered, if it is new."""
    return Begin, Operands(call.block, content=call.content)


Blocks: TypeAlias = Sequence[Sequence[int]]
"""Per group, the blocks that a request's table names, in token order."""


@frozen(eq=False)
class Step:
    """An operation that was performed."""

    operation: Operation
    answer: Answer
    manager: Manager
    """As it is now."""
    was: Request | None
    """The request that it is about, as it was before."""
    before: Picture
    after: Picture
    happened: Sequence[Labelled]
    """The transitions that it consisted of."""
    undispatched: frozenset[Content]
    """Content that the worker had yet to compute before, if it cannot serve every hit."""

    @property
    def number(self) -> int:
        """The request that it is about."""
        assert isinstance(self.operation, OfRequest)
        return self.operation.request

    @property
    def named(self) -> Blocks | None:
        """What the request named before; None if it held nothing."""
        return _named(self.before, self.number)

    @property
    def names(self) -> Blocks | None:
        """What it names now."""
        return _named(self.after, self.number)


def _named(picture: Picture, number: int) -> Blocks | None:
    known = picture.raw.tables.get(number)
    return None if known is None else known[0]
