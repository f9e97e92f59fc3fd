"""A step: one operation, the transitions that it consisted of, and everything that says what must hold after it.

A recorded call names only blocks. Its request follows from the tables and copies before and after the operation: a
request names no block twice (KV-INV-04), so the block identifies the entry. The content that a hit asks for follows
from the entry or the copy, and not from what the block holds. It is the content of its own request, group and place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from attrs import frozen

from kvreference.answers import Answer, Copy, Granted
from kvreference.cached_map import Content
from kvreference.manager import Manager
from kvreference.operations import Dispatch, OfRequest, Operation, Transferred
from kvreference.population import Request
from kvspec.pool.state import Operands, State, Transition
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
    TakeBack,
)
from kvspec.refinement.picture import Entry, Parts, Picture, counted
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

    def __init__(
        self,
        operation: Operation,
        answer: Answer,
        manager: Manager,
        before: Picture,
        after: Picture,
        now: Callable[[], State],
    ) -> None:
        self._operation = operation
        self._answer = answer
        self._manager = manager
        request = operation.request if isinstance(operation, OfRequest) else None
        self._place: dict[int, Entry] = dict(before.entries(request))
        """Where the request names each block by now."""
        self._will = {**after.given_up_since(before), **after.entries(request)}
        """Where it names each block in the end, or what it freed and waits for steps in flight."""
        self._loaded = _loaded(manager, request, answer, before.state.part)
        arrives = isinstance(operation, Transferred)
        self._filled = [block for block in self._place if arrives and before.state.filled[block]]
        self._dispatched = list(enumerate(before.raw.copies)) if isinstance(operation, Dispatch) else []
        self._unread = list(enumerate(after.raw.copies))[len(before.raw.copies) :]
        self._copies = list(self._unread)
        """The copies that are new."""
        self._is_settled = False
        self._now = now
        """The state that the labels so far have led to."""

    def of(self, calls: Sequence[Call]) -> Iterator[Labelled | Call]:
        """The transitions that ``calls`` stand for, in order; a call that is not a transition is yielded as it is.

        Raises:
            UnexplainedError: nothing accounts for a call.
        """
        yield from self._provided(calls)
        yield from ((Filled, Operands(block)) for block in self._filled)
        for call in calls:
            if call.did in (Did.REGISTER, Did.BEGIN):
                # All tables stand by then.
                yield from self._settled()
                if self._is_new_state(call):
                    yield Compute, Operands(call.block, self._will.get(call.block, 0), content=call.content)
            yield self._label(call)
        yield from self._settled()
        yield from self._taken_back()

    def _is_new_state(self, call: Call) -> bool:
        """Whether a state becomes known that is computed by now, or is computed in the step that is scheduled.

        The request's record says so: external tokens count as computed once they have arrived.
        """
        assert isinstance(self._operation, OfRequest), "it becomes known for a request"
        assert call.content is not None, "it is the content that becomes known"
        group, prefix = call.content
        if not self._manager.geometry.groups[group].keeps_states or self._now().owed[call.block] == call.content:
            return False
        # The last token that arrives counts as computed only later.
        if isinstance(self._operation, Transferred):
            return False
        return prefix.tokens <= self._manager.population[self._operation.request].tokens_computed

    def _provided(self, calls: Sequence[Call]) -> Iterator[Labelled]:
        """What arrives in the blocks that another node has written: the tokens of the request, and states."""
        parts = self._parts
        for block in self._filled:
            number, index, place = self._place[block]
            group, prefixes = self._manager.geometry.groups[index], self._manager.prefixes.get(number, [])
            if group.keeps_states:
                content = next((call.content for call in calls if call.block == block and call.content), None)
            else:
                end = place * group.block_size_tokens + parts.end(group)
                content = (index, prefixes[end // parts.grain - 1]) if end <= len(prefixes) * parts.grain else None
            if content is not None:
                yield Provide, Operands(block, self._place[block], content=content)

    @property
    def _parts(self) -> Parts:
        parts: Parts = self._now().part
        return parts

    def _counted(self) -> Iterator[Labelled]:
        """What the request counts as computed that it did not count before.

        A hit was there before, its copies bring what they want, and so does what arrives.
        """
        if not isinstance(self._operation, OfRequest):
            return
        counts, state = counted(self._manager, self._operation.request, self._parts), self._now()
        if counts is None:
            return
        hit = self._answer.hit_tokens if isinstance(self._answer, Granted) else 0
        for block, entry in self._will.items():
            content = counts.get(entry)
            if content is None or block in self._filled:
                continue
            if state.counts[entry] == 0 and content[1].tokens > hit:
                yield Compute, Operands(block, entry, content=content)

    def _taken_back(self) -> Iterator[Labelled]:
        """What it counts no longer: by now the cache knows what has arrived, and forgot what has not."""
        if not isinstance(self._operation, OfRequest):
            return
        counts = counted(self._manager, self._operation.request, self._parts)
        if counts is None:
            return
        for block, entry in self._will.items():
            if entry not in counts and self._takes_back(entry) and self._now().counts[entry] != 0:
                yield TakeBack, Operands(block, entry)

    def _takes_back(self, entry: Entry) -> bool:
        return entry[0] >= 0 and not self._manager.geometry.groups[entry[1]].keeps_states

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
            return Register, Operands(block, self._will.get(block, 0), content=call.content)
        if call.did is Did.BEGIN and self._now().begins[call.content, block] == 0:
            # To offer a boundary again changes nothing.
            return Begin, Operands(block, self._will.get(block, 0), content=call.content)
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
            reaches = self._parts.end(self._manager.geometry.groups[copy.group]) <= copy.tokens
            brings = self._now().wants[place] if reaches else 0
            yield Aim, Operands(copy.destination, self._will.get(copy.destination, 0), copy=place, content=brings)
        yield from self._counted()


def _loaded(manager: Manager, request: int | None, answer: Answer, parts: Parts) -> Mapping[int, range]:
    """Per group, the positions that another node writes from this operation on, in the range that is looked at.

    Where a hit ends inside a block, that node writes what comes after the hit.
    """
    if request is None or not (isinstance(answer, Granted) and answer.loads):
        return {}
    end = manager.population[request].tokens_computed
    begin = end - answer.external_tokens
    return {
        index: range(
            (begin + group.block_size_tokens - parts.end(group)) // group.block_size_tokens
            if group.copies
            else begin // group.block_size_tokens,
            group.blocks_occupied(end),
        )
        for index, group in enumerate(manager.geometry.groups)
    }


def _of_source(copies: list[tuple[int, Copy]], call: Call) -> tuple[int, Copy]:
    for index, (_, copy) in enumerate(copies):
        if copy.source == call.block:
            return copies.pop(index)
    raise UnexplainedError(f"{call.did.value}: block {call.block}, and no copy that is pending reads it")


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
