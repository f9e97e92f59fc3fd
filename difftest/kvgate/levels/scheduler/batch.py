"""The worker's batch: what a worker knows of the requests that it computes for, from the steps' outputs alone.

A scheduler sends the whole table of a request once, and then what was added to it. Here the table is put together
again, and compared with what was granted: so what is checked elsewhere by the block manager's tables is what a worker
reads and writes. A worker's table may still name blocks that the window has left; it must not miss one that is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import field, frozen

from kvgate.kernel.difference import Difference
from kvgate.levels.scheduler.clients import Rest, differs
from kvreference.block_pool import NULL

Table = tuple[tuple[int, ...], ...]
Masked = tuple[tuple[int, tuple[int, ...]], ...]
"""Requests, each with the drafts before its next token."""
STATEMENT = "KV-SYS-03"


@frozen
class SentRequest:
    """What a step sends of one request."""

    tokens: int
    """How many are computed."""
    start: int
    """After how many computed ones."""
    blocks: Table | None
    """In every group: all of its blocks if it is new or comes back, the further ones otherwise."""
    whole: bool
    """Whether ``blocks`` are all, and not further ones."""
    new: bool
    """Whether it is sent as one that the worker does not know."""
    drafts: tuple[int, ...] = ()
    prompt: tuple[int, ...] | None = None
    """Its prompt, if it is new."""
    answered: int | None = None
    """How many tokens of it are answers, if it is not new."""
    every: tuple[int, ...] | None = None
    """All of its tokens, if they are sent."""
    more: tuple[int, ...] | None = None
    """The tokens to compute, if they are sent: only a worker in several stages does not know them."""
    rest: Rest = field(factory=dict)
    """What else is sent with a new one, by vLLM's field."""


@frozen
class Due:
    """What a step should send of one request."""

    tokens: int
    start: int
    table: Table
    drafts: tuple[int, ...] | None = None
    """None if they are not known when the step is sent."""
    prompt: tuple[int, ...] | None = None
    answered: int | None = None
    """None where the scheduler cannot know yet."""
    every: tuple[int, ...] | None = None
    """All tokens of it that are known: sent if the request was not in the step before."""
    rest: Rest = field(factory=dict)
    """What else it was submitted with."""
    more: bool = False
    """Whether the tokens to compute are sent, if it is not new."""


@frozen
class All:
    """What a step sends of all requests together, or should."""

    tokens: int
    """How many are computed in all."""
    shared: tuple[int, ...]
    """By group: how many blocks all that run have in common."""
    preempted: frozenset[int]
    """Who lost its blocks in this step."""
    zeroed: tuple[int, ...] = ()
    """Blocks of full attention that were allocated, where the worker clears them first."""
    follows_grammar: bool = False
    """Whether an answer to this step must follow a grammar."""
    rest: Rest = field(factory=dict)
    """What else it sends, by vLLM's field."""
    masked: Masked = ()
    """The requests whose next tokens the worker masks by their grammars, in the order of the step."""


class Batch:
    """What one worker knows."""

    def __init__(self, tokens_max: int, requests_max: int) -> None:
        self.tokens_max = tokens_max
        self.requests_max = requests_max
        self._tables: dict[int, list[list[int]]] = {}
        self.anew: set[int] = set()
        """The requests that the worker knows, and is to be sent next as if they were new."""
        self._before: frozenset[int] = frozenset()
        """Who was in the step before."""
        self._ended: set[int] = set()
        """Those that ended, as steps have said."""

    def tables(self, number: int) -> Table:
        """What the worker takes for the table of a request."""
        return tuple(map(tuple, self._tables.get(number, ())))

    def step(
        self, sent: Mapping[int, SentRequest], due: Mapping[int, Due], ended: Sequence[int], strays: Sequence[str] = ()
    ) -> Difference | None:
        """A step's output: what it computes for which requests, and which ended; ``due`` is what was granted.

        ``strays`` is what the output has of requests that are not in the step.
        """
        if strays:
            return Difference(STATEMENT, "what a step has of requests that are not in it", "nothing", ", ".join(strays))
        again = self._ended.intersection(ended)
        if again:
            return Difference(STATEMENT, "requests that ended since the step before", "each once", f"{sorted(again)}")
        self._ended.update(ended)
        for number in ended:
            self._tables.pop(number, None)
        for number, each in sent.items():
            found = self._learn(number, each)
            if found is not None:
                return found
        before, self._before = self._before, frozenset(sent)
        return self._limits(sent) or self._compare(sent, due, before)

    def together(self, sent: All, due: All) -> Difference | None:
        """Compare what a step sends of all together with what was granted."""
        if sent == due:
            return None
        return Difference(STATEMENT, "a step, as sent to the worker (of all together)", str(due), str(sent))

    def remembered(self, alive: Sequence[int]) -> Difference | None:
        """The requests that the worker knows are alive; the end of any other was not sent."""
        gone = sorted(set(self._tables) - set(alive))
        if not gone:
            return None
        return Difference(STATEMENT, "ends sent to the worker", "every request that ended", f"not {gone}")

    def _learn(self, number: int, sent: SentRequest) -> Difference | None:
        where = f"request {number}, as sent to the worker"
        known = number in self._tables and number not in self.anew
        self.anew.discard(number)
        if sent.new == known:
            expected = "an old one" if known else "a new one"
            return Difference(STATEMENT, where, expected, "a new one" if sent.new else "an old one")
        if sent.whole:
            self._tables[number] = [list(blocks) for blocks in sent.blocks or ()]
        elif sent.blocks is not None:
            for blocks, more in zip(self._tables[number], sent.blocks, strict=True):
                blocks += more
        return None

    def _limits(self, sent: Mapping[int, SentRequest]) -> Difference | None:
        tokens = sum(each.tokens for each in sent.values())
        if tokens > self.tokens_max:
            return Difference(STATEMENT, "tokens of a step", f"at most {self.tokens_max}", str(tokens))
        if len(sent) > self.requests_max:
            return Difference(STATEMENT, "requests of a step", f"at most {self.requests_max}", str(len(sent)))
        return None

    def _compare(
        self, sent: Mapping[int, SentRequest], due: Mapping[int, Due], before: frozenset[int]
    ) -> Difference | None:
        if set(sent) != set(due):
            return Difference(STATEMENT, "requests of a step", str(sorted(due)), str(sorted(sent)))
        for number, ours in due.items():
            theirs = sent[number]
            where = f"request {number}, as sent to the worker"
            expected, got = (ours.start, ours.tokens), (theirs.start, theirs.tokens)
            if expected != got:
                return Difference(STATEMENT, f"{where} (start, tokens)", str(expected), str(got))
            if ours.drafts is not None and ours.drafts != theirs.drafts:
                return Difference(STATEMENT, f"{where} (drafts)", str(ours.drafts), str(theirs.drafts))
            table = self.tables(number)
            if not _covers(table, ours.table):
                return Difference(STATEMENT, f"{where} (blocks by group)", str(ours.table), str(table))
            found = _tokens(where, theirs, ours, again=number not in before)
            if found is not None:
                return found
        return None


def _tokens(where: str, sent: SentRequest, due: Due, again: bool) -> Difference | None:
    """Compare what is sent of a request's tokens; ``again``: it was not in the step before."""
    if sent.new:
        if due.prompt is not None and due.prompt != sent.prompt:
            return Difference(STATEMENT, f"{where} (prompt)", str(due.prompt), str(sent.prompt))
        return differs(STATEMENT, where, due.rest, sent.rest)
    if due.answered is not None and due.answered != sent.answered:
        return Difference(STATEMENT, f"{where} (tokens answered)", str(due.answered), str(sent.answered))
    if due.every is None:
        return None
    every = due.every if sent.whole or again else None
    if every != sent.every:
        return Difference(STATEMENT, f"{where} (all tokens)", str(every), str(sent.every))
    more = due.every[sent.start : sent.start + sent.tokens - len(sent.drafts)] if due.more else None
    if more != sent.more:
        return Difference(STATEMENT, f"{where} (tokens to compute)", str(more), str(sent.more))
    return None


def _covers(sent: Table, granted: Table) -> bool:
    """Whether a table names every block that was granted, and nothing after them."""
    return len(sent) == len(granted) and all(
        len(ours) == len(theirs) and all(mine in (NULL, their) for mine, their in zip(ours, theirs, strict=True))
        for ours, theirs in zip(granted, sent, strict=True)
    )
