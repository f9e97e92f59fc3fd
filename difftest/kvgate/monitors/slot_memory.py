"""Slot memory: what every physical slot would hold, if a worker did what the block tables say.

Every token that is computed writes its state into its slot, and reads the states that its attention covers. For each
slot the memory keeps the state written there last. So, independent of the manager's own state, it sees a stale or
foreign hit, a block that two requests write, a window that was released too early, or a copy from a recycled block.

``States`` gives states numbers, and ``PhysicalSlots`` keeps them by block. ``GhostMemory`` computes a step when it is
dispatched; ``WorkerMemory`` when an engine's worker does, with steps in flight; ``LinkedMemory`` reads the slots of
another node, too. The time per step grows with the tokens that the step's attention reads: long simulations use
``kvgate.simulation.memory``, which keeps ranges of tokens instead.

Where blocks are copied or hold states, the worker's order within a step matters, so nothing is done before the step is
dispatched. The order is: first what another node provides, then the copies, then the states that are read, then the
writes, then what attention reads. Elsewhere each operation is a step of its own.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from attrs import define, evolve, field, frozen

from kvgate.kernel.difference import Difference
from kvgate.kernel.monitor import Step
from kvgate.kernel.protocol import System
from kvreference.answers import Copies, Copy, Granted
from kvreference.attention import Kind
from kvreference.block_pool import NULL
from kvreference.geometry import Group
from kvreference.mamba import StateMode
from kvreference.operations import (
    Abort,
    Admit,
    Continue,
    Dispatch,
    Finish,
    OfRequest,
    Preempt,
    ReleaseSkipped,
    Rewind,
    Sample,
    Schedule,
    Transferred,
)
from kvreference.population import Request, Status
from kvreference.settings import Settings

# States

Origin: TypeAlias = tuple[object, ...]
"""How a state came about: the state before it, the token, and the multimodal item there with the offset in it. The
first state of all has salt and adapter for a token."""

JUNK = -1
"""What a draft layer leaves in a look-ahead slot: nothing that anyone may read."""


_HISTORIES = 4
"""How many are kept: of a state that is read and of the one that is found, and of the states before them."""


class States:
    """Numbers for states: equal numbers exactly for equal origins."""

    def __init__(self) -> None:
        self._numbers: dict[Origin, int] = {}
        self._origins: list[Origin] = []
        self._histories: dict[int, list[Origin]] = {}
        """Of the states that were asked for last: the next one is asked for soon."""

    def number(self, *origin: object) -> int:
        """The number of the state with this origin."""
        number = self._numbers.get(origin)
        if number is None:
            number = self._numbers[origin] = len(self._origins)
            self._origins.append(origin)
        return number

    def extend(self, chain: list[int], request: Request, tokens: Sequence[int]) -> None:
        """Append to ``chain`` the states of the ``tokens`` of ``request`` that it does not hold yet."""
        keys = request.keys
        state = chain[-1] if chain else self.number(None, (keys.salt, keys.adapter), None)
        for position in range(len(chain), len(tokens)):
            media = keys.media_within(position, position + 1) if keys.media else ()
            state = self.number(state, tokens[position], media)
            chain.append(state)

    def history(self, number: int) -> list[Origin]:
        """Everything that went into a state: salt and adapter first, then token by token."""
        origins: list[Origin] = []
        state: object = number
        while isinstance(state, int) and state not in self._histories:
            origins.append(self._origins[state])
            state = self._origins[state][0]
        before = self._histories[state] if isinstance(state, int) else ()
        history = self._histories[number] = [*before, *origins[::-1]]
        if len(self._histories) > _HISTORIES:
            del self._histories[next(iter(self._histories))]
        return history

    def describe(self, number: int | None) -> str:
        """A state in words: which token of which prefix."""
        if number is None:
            return "nothing was ever written there"
        if number == JUNK:
            return "what a draft layer left in a look-ahead slot"
        root, *tokens = self.history(number)
        where = f"token {self._origins[number][1]} at position {len(tokens) - 1}"
        return f"state {number}: {where}, salt and adapter {root[1]}"


# Slots


class Where(NamedTuple):
    """Who reads or writes slots, and in which group."""

    request: int
    group: int
    prompt_tokens: int
    again: bool = False
    """Whether its step begins with the last token of what was loaded, which is computed again."""
    unread_after_load: int = 0
    """If its load failed: the tokens before this one would not be read if it had succeeded."""
    computed_from: int | None = None
    """From this token on the request has written its slots itself, if that is known: hits and loads end there."""

    def __str__(self) -> str:
        return f"request {self.request}, group {self.group}"


Slots: TypeAlias = tuple[int, tuple[int | None, ...]]
"""The group that wrote a block last, and the states in its slots; None where nothing was written."""


def first_read(group: Group, token: int) -> int:
    """The first token that the attention of ``token`` covers."""
    window = group.window_tokens or 0
    if group.kind is Kind.SLIDING_WINDOW:
        return max(0, token - window + 1)
    return token - token % window if group.kind is Kind.CHUNKED_LOCAL else 0


def states_written(group: Group, start: int, end: int, passing: bool) -> Iterator[tuple[int, int]]:
    """The places of the states that a step writes, and after which token each is.

    The last is the running state after ``end``; if ``passing``, there is one at every block's end before it.
    """
    size = group.block_size_tokens
    running = (end - 1) // size
    for place in range(start // size if passing else running, running + 1):
        yield place, min((place + 1) * size, end) - 1


NO_BLOCK = "the block was freed: null block"
"""What is got where a table has the null block in the place of a token."""
NO_ENTRY = "the table has none"
"""What is got where a table is too short for a token."""


@frozen
class Misread:
    """A slot that does not hold what is read from it."""

    reader: Where
    token: int
    block: int
    expected: str
    got: str
    wanted: Sequence[Origin]
    """Everything that went into the state that is read, as in ``States.history``."""
    found: Sequence[Origin]
    """The same for the content that is there; empty if it is not a state."""
    mark: str | None = None
    """Why the block does not hold what was to be written there, if a worker knows."""
    is_shared: bool = False
    """Whether two groups of one request were given the block, when it was admitted with external tokens."""


IsKnown: TypeAlias = Callable[[Misread], bool]
"""Whether a misread follows from a known finding."""
Part: TypeAlias = tuple[int, int, Sequence[int]]
"""What is written into one block of a table: its position, the first slot, and the states."""


def parts_of(group: Group, chain: Sequence[int], start: int, end: int, drafted: int) -> list[Part]:
    """The states of the tokens from ``start`` to ``end``, and junk from there to ``drafted``, block by block.

    Where slots are written when they are complete, the tokens that began the first one are written with it.
    """
    size, start = group.block_size_tokens, group.tokens_stored(start)
    parts: list[Part] = []
    for position in range(start // size, group.blocks_occupied(drafted)):
        first, behind = position * size, (position + 1) * size
        low = max(start, first)
        junk = (JUNK,) * (min(drafted, behind) - max(end, low))
        parts.append((position, low - first, (*chain[low : min(end, behind)], *junk)))
    return parts


@define(eq=False)
class Reading:
    """What one request has read in one group, and nothing has changed since: it need not be read again."""

    table: Sequence[int]
    begin: int
    """The first token read."""
    end: int
    """The token after the last one read."""
    watched: int = 0
    """The first position of the table that no entry of ``PhysicalSlots`` stands for yet."""


class PhysicalSlots:
    """What every block holds."""

    def __init__(self, states: States, is_known: IsKnown = lambda _misread: False) -> None:
        self.states = states
        self.is_known = is_known
        self.shared: set[int] = set()
        """Blocks that two groups of one request were given, when it was admitted with external tokens."""
        self._slots: dict[int, Slots] = {}
        self._readings: dict[tuple[int, int], Reading] = {}
        """By request and group."""
        self._read: dict[int, list[tuple[Reading, int]]] = {}
        """Per block, what was read there: a reading, and which of its tokens comes first in the block."""

    def copy(self) -> PhysicalSlots:
        """Independent slots that hold the same. The numbers of states are shared: they are never given anew."""
        other = PhysicalSlots(self.states, self.is_known)
        other._slots = dict(self._slots)
        other.shared = set(self.shared)
        return other

    def of(self, block: int) -> Slots | None:
        """What a block holds; None if nothing is known to be there."""
        return self._slots.get(block)

    def forget(self, blocks: Iterable[int]) -> None:
        """From now on nothing in ``blocks`` may be relied on, until it is written again."""
        for block in blocks:
            self._slots.pop(block, None)
            self._changed(block, 0)

    def held(self, block: int, index: int) -> tuple[int | None, ...]:
        """The slots of ``block``, if group ``index`` wrote them."""
        writer, slots = self._slots.get(block, (None, ()))
        return slots if writer == index and block != NULL else ()

    def perform(self, copy: Copy, size: int) -> None:
        """Copy the beginning of one block of ``size`` tokens to another."""
        held = [*self.held(copy.source, copy.group), *(None,) * size]
        self.fill(copy.group, size, copy.destination, 0, held[: copy.tokens])

    def fill(self, index: int, size: int, block: int, offset: int, states: Sequence[int | None]) -> None:
        """Write ``states`` into a block of ``size`` tokens, from slot ``offset`` on."""
        if len(states) < size:
            held = self.held(block, index)
            held += (None,) * (size - len(held))
            states = (*held[:offset], *states, *held[offset + len(states) : size])
        self._store(index, block, tuple(states), offset)

    def _store(self, index: int, block: int, slots: tuple[int | None, ...], offset: int = 0) -> None:
        """A block holds ``slots`` from now on; before ``offset`` it held the same, if the same group wrote it."""
        writer, _ = self._slots.get(block, (index, ()))
        self._slots[block] = index, slots
        self._changed(block, offset if writer == index else 0)

    def _changed(self, block: int, offset: int) -> None:
        """What was read in a block from slot ``offset`` on must be read again."""
        read = self._read.get(block)
        if not read:
            return
        kept = []
        for reading, first in read:
            if first + offset < reading.end:
                reading.end = min(reading.end, first)
                reading.watched = 0
            else:
                kept.append((reading, first))
        self._read[block] = kept

    # Attention: a slot per token

    def write(
        self, index: int, group: Group, table: Sequence[int], parts: Iterable[Part], where: Where
    ) -> Difference | None:
        """Write ``parts`` into the blocks of a table."""
        size = group.block_size_tokens
        for position, offset, states in parts:
            if position >= len(table) or table[position] == NULL:
                got = NO_BLOCK if position < len(table) else NO_ENTRY
                found = self.no_slot(where, position * size + offset, states[0], got)
                if found is not None:
                    return found
                continue
            self.fill(index, size, table[position], offset, states)
        return None

    def deliver(self, index: int, group: Group, table: Sequence[int], chain: Sequence[int], start: int) -> None:
        """Another node writes the states of ``chain`` from ``start`` on, wherever the table has a block for them."""
        size, start = group.block_size_tokens, group.tokens_stored(start)
        for position in range(start // size, min(group.blocks_occupied(len(chain)), len(table))):
            if table[position] == NULL:
                continue
            if group.kind is Kind.MAMBA:
                self._store(index, table[position], (chain[min((position + 1) * size, len(chain)) - 1],))
            else:
                self.put(index, size, table[position], position * size, chain, start)

    def put(self, index: int, size: int, block: int, first: int, chain: Sequence[int | None], start: int) -> None:
        """Write the states of ``chain`` from ``start`` on into a block whose first token is ``first``."""
        low = max(start, first)
        self.fill(index, size, block, low - first, chain[low : first + size])

    def read(
        self,
        index: int,
        group: Group,
        table: Sequence[int],
        chain: Sequence[int],
        span: tuple[int, int],
        where: Where,
    ) -> Difference | None:
        """Read what the attention of the tokens from ``start`` to ``end`` covers."""
        start, end = span
        # What is in no slot yet is read from the compressor's state, which is another group.
        size, end = group.block_size_tokens, group.tokens_stored(end)
        begin = first_read(group, start)
        reading = self._reading(where, table, begin, size)
        for position in range(reading.end // size, group.blocks_occupied(end)):
            first = position * size
            low, high = max(reading.end, first), min(end, first + size)
            if position >= len(table):
                return self.no_slot(where, low, chain[low])
            held = self.held(table[position], index)[low - first : high - first]
            expected = chain[low:high]
            if held != tuple(expected):
                found = self._misread(low, list(expected), held, table[position], where)
                if found is not None:
                    return found
            if position >= reading.watched:
                self._read.setdefault(table[position], []).append((reading, first))
                reading.watched = position + 1
        reading.end = max(reading.end, end)
        return None

    def _reading(self, where: Where, table: Sequence[int], begin: int, size: int) -> Reading:
        """What was read before from ``begin`` on, as far as the table still names the same blocks."""
        known = self._readings.get((where.request, where.group))
        if known is None or not known.begin <= begin <= known.end:
            known = None
        elif known.table is not table:
            places = slice(begin // size, -(-known.end // size))
            known = known if table[places] == known.table[places] else None
        if known is None:
            known = self._readings[where.request, where.group] = Reading(table, begin, begin)
        known.table = table
        return known

    # State-space layers: a slot per block

    def write_states(
        self,
        index: int,
        group: Group,
        table: Sequence[int],
        chain: Sequence[int],
        span: tuple[int, int],
        where: Where,
        passing: bool,
    ) -> Difference | None:
        """Write the state after ``end``; if ``passing``, also those after every block's end before it."""
        start, end = span
        running = (end - 1) // group.block_size_tokens
        if running >= len(table) or table[running] == NULL:
            return self.no_slot(where, end - 1, chain[end - 1])
        for position, token in states_written(group, start, end, passing):
            if table[position] != NULL:
                self._store(index, table[position], (chain[token],))
        return None

    def read_state(
        self, index: int, group: Group, table: Sequence[int], chain: Sequence[int], start: int, where: Where
    ) -> Difference | None:
        """Read the state after the token before ``start``."""
        position = (start - 1) // group.block_size_tokens
        if position >= len(table):
            return self.no_slot(where, start - 1, chain[start - 1])
        held = self.held(table[position], index)
        if held == (chain[start - 1],):
            return None
        return self._misread(start - 1, [chain[start - 1]], held, table[position], where)

    def _misread(
        self, low: int, expected: list[int], held: Sequence[int | None], block: int, where: Where
    ) -> Difference | None:
        """The first slot that does not hold what is read from it, unless that is known of all of them."""
        padded = [*held, *[None] * (len(expected) - len(held))]
        for offset, (state, got) in enumerate(zip(expected, padded, strict=False)):
            if got == state:
                continue
            if block == NULL:
                texts = f"token {low + offset} in its slot", NO_BLOCK
            else:
                wanted = f"token {low + offset} in block {block}: {self.states.describe(state)}"
                texts = wanted, self.states.describe(got)
            history = self.states.history(got) if got is not None and got != JUNK else []
            origins, is_shared = self.states.history(state), block in self.shared
            if not self.is_known(Misread(where, low + offset, block, *texts, origins, history, is_shared=is_shared)):
                return Difference("KV-MEM-01", str(where), *texts)
        return None

    def no_slot(self, where: Where, token: int, state: int, got: str = NO_ENTRY) -> Difference | None:
        """Report that a token has no slot, unless that is a known finding."""
        texts = f"a slot for token {token}", got
        history = self.states.history(state) if state != JUNK else []
        if self.is_known(Misread(where, token, NULL, *texts, history, [])):
            return None
        return Difference("KV-MEM-02", str(where), *texts)


# Steps that are computed when they are dispatched


@frozen
class Work:
    """What the worker computes for one request in one step. Positions are in tokens."""

    request: int
    tables: Sequence[Sequence[int]]
    chain: Sequence[int]
    """At least to ``end``."""
    provided: int
    """From here to ``start`` another node provides the states."""
    start: int
    end: int
    verified: int
    """To here the tokens are no drafts."""
    drafted: int
    """To here draft layers write."""
    prompt_tokens: int
    again: bool
    """Whether it begins with the last token of what was loaded."""
    computed_from: int | None
    """As in ``Where``."""


@define
class Kept:
    """The state after the last draft that holds, which the worker keeps when it knows how many do."""

    index: int
    group: Group
    table: Sequence[int]
    chain: Sequence[int]
    span: tuple[int, int]
    where: Where


class GhostMemory:
    """The physical slots of one system, and what they hold."""

    name = "ghost"

    def __init__(self, settings: Settings, is_known: IsKnown = lambda _misread: False) -> None:
        self.settings = settings
        self.groups = settings.geometry.groups
        self.states = States()
        self._physical = PhysicalSlots(self.states, is_known)
        self._chains: dict[int, list[int]] = {}
        """Per request, the states of its tokens."""
        self._computed: dict[int, int] = {}
        self._loaded: dict[int, int] = {}
        """Per request that was admitted with external tokens, where these end."""
        self._computed_from: dict[int, int] = {}
        """Per request, where its hit and its load ended when it was admitted."""
        self._failed: set[int] = set()
        """The requests of which a load failed, and that compute again in the same blocks."""
        self._pending: list[Work] = []
        """What was scheduled and not dispatched."""
        self._transfers: dict[int, Work] = {}
        """Per request, what another node writes, or reads (then ``provided`` is ``end``)."""

    def copy(self) -> GhostMemory:
        """An independent memory that holds the same."""
        other = type(self).__new__(type(self))
        other.settings = self.settings
        other.groups = self.groups
        other.states = self.states
        other._physical = self._physical.copy()
        other._chains = {number: list(chain) for number, chain in self._chains.items()}
        other._computed = dict(self._computed)
        other._loaded = dict(self._loaded)
        other._computed_from = dict(self._computed_from)
        other._failed = set(self._failed)
        other._pending = list(self._pending)
        other._transfers = dict(self._transfers)
        return other

    def slots(self, block: int) -> Slots | None:
        """What a block holds; None if nothing is known to be there."""
        return self._physical.of(block)

    def forget(self, blocks: Iterable[int]) -> None:
        """From now on nothing in ``blocks`` may be relied on, until it is written again."""
        self._physical.forget(blocks)

    def under_way(self) -> tuple[Work, ...]:
        """What was ordered and is not done: steps that were not dispatched, and transfers that are not over."""
        return (*self._pending, *self._transfers.values())

    def observe(self, step: Step) -> Difference | None:
        """Do what the step orders, and check everything that its attention reads."""
        operation = step.operation
        if isinstance(operation, Dispatch):
            return self._dispatch(step.answer.copies if isinstance(step.answer, Copies) else ())
        if not isinstance(operation, OfRequest):
            return None
        number = operation.request
        request = step.population.alive.get(number)
        if isinstance(operation, Transferred):
            found = self._transferred(number, operation.succeeded)
        elif isinstance(operation, (Admit, Schedule)) and isinstance(step.answer, Granted):
            assert request is not None, "a request that was granted blocks is alive"
            found = self._granted(operation, step.answer, request, step.tables(number))
        elif isinstance(operation, Sample):
            found = self._verify(step.population[number], step.tables(number))
        elif isinstance(operation, Finish) and operation.sends and request is not None:
            found = self._send(request, step.tables(number))
        else:
            found = None
        self._settle(operation, request)
        return found

    def _settle(self, operation: OfRequest, request: Request | None) -> None:
        if isinstance(operation, Rewind):
            self._failed.add(operation.request)
            if request is not None:
                # What was answered after it is worth nothing.
                del self._chains.get(request.number, [])[len(request.tokens) :]
        elif isinstance(operation, Continue) and request is not None:
            # The last answer was not computed: another token takes its place.
            self._chains[request.number] = self._chains.get(request.number, [])[: request.tokens_computed]
        elif request is None or request.status is Status.ENDING or isinstance(operation, Preempt):
            self._failed.discard(operation.request)
        if request is None or request.status is Status.ENDING:
            self._chains.pop(operation.request, None)
            self._computed.pop(operation.request, None)
            self._loaded.pop(operation.request, None)
            self._computed_from.pop(operation.request, None)
        else:
            self._computed[request.number] = 0 if isinstance(operation, Preempt) else request.tokens_computed

    def at_rest(self, system: System) -> Iterable[Difference]:
        """Nothing: what no request reads cannot be wrong."""
        del system
        return ()

    def _chain(self, request: Request) -> list[int]:
        """The states of the request's tokens, drafts included."""
        chain = self._chains.setdefault(request.number, [])
        self.states.extend(chain, request, request.tokens)
        if not request.drafts:
            return chain
        with_drafts = list(chain)
        self.states.extend(with_drafts, request, [*request.tokens, *request.drafts])
        return with_drafts

    # Steps

    def _granted(
        self, operation: Admit | Schedule, granted: Granted, request: Request, tables: Sequence[Sequence[int]]
    ) -> Difference | None:
        if len(tables) != len(self.groups):
            return Difference("KV-MEM-02", "tables", "a table in every group", f"{len(tables)} tables")
        before = self._computed.get(request.number, 0)
        hit = before + granted.hit_tokens
        start = hit + granted.external_tokens
        if granted.external_tokens:
            held = [block for table in tables for block in set(table) - {NULL}]
            self._physical.shared |= {block for block, tables_with_it in Counter(held).items() if tables_with_it > 1}
        if isinstance(operation, Admit) and before == 0:
            # A request that has loaded is admitted once more, with what it loaded computed.
            self._loaded[request.number] = start if granted.external_tokens else 0
            self._computed_from[request.number] = start
        # A request without computed tokens drafts nothing in its first step.
        drafts = 0 if isinstance(operation, Admit) and before == 0 else self.settings.lookahead_tokens
        work = self._work(request, tables, provided=hit, start=start, lookahead=drafts)
        if granted.loads:
            self._transfers[request.number] = work
            return None
        self._pending.append(work)
        return None if self.settings.geometry.fences else self._dispatch(())

    def _work(
        self,
        request: Request,
        tables: Sequence[Sequence[int]],
        provided: int = 0,
        start: int = 0,
        lookahead: int = 0,
        sends: bool = False,
    ) -> Work:
        # Drafts never come from another node.
        end = request.tokens_computed - (request.drafts_in_flight if sends else 0)
        chain: Sequence[int] = self._chain(request)
        if sends or provided != start or self._is_delayed:
            # By the time it is done the request may have more tokens, or other tables.
            tables, chain = tuple(map(tuple, tables)), tuple(chain[: max(end, start)])
        return Work(
            request.number,
            tables,
            chain,
            end if sends else provided,
            end if sends else start,
            end,
            min(end, len(request.tokens)),
            min(end + lookahead, self.settings.tokens_max),
            request.prompt_tokens,
            not sends and start + 1 == self._loaded.get(request.number, 0),
            self._computed_from.get(request.number),
        )

    @property
    def _is_delayed(self) -> bool:
        """Whether a step is computed later than it is ordered."""
        return self.settings.geometry.fences

    def _dispatch(self, copies: Iterable[Copy]) -> Difference | None:
        """The worker does one step."""
        pending, self._pending = self._pending, []
        for work in pending:
            self._deliver(work)
        for copy in copies:
            self._physical.perform(copy, self.groups[copy.group].block_size_tokens)
        phases: list[Callable[[Work], Iterator[Difference | None]]] = [self._write, self._read]
        if self.settings.geometry.keeps_states:
            phases.insert(0, self._read_states)
        for phase in phases:
            for work in pending:
                for found in phase(work):
                    if found is not None:
                        return found
        return None

    def _in_groups(self, work: Work) -> Iterator[tuple[int, Group, Sequence[int], Where]]:
        for index, (group, table) in enumerate(zip(self.groups, work.tables, strict=True)):
            loaded = self._loaded.get(work.request, 0) if work.request in self._failed else 0
            unread = first_read(group, loaded)
            yield (
                index,
                group,
                table,
                Where(work.request, index, work.prompt_tokens, work.again, unread, work.computed_from),
            )

    def _drafts_into(self, group: Group) -> bool:
        """Whether a draft layer writes slots of a group: of any that keeps slots, where hashes cover a token more."""
        ahead = self.settings.geometry.hashed_ahead_tokens > 0
        return group.lookahead or (ahead and not group.keeps_states)

    def _deliver(self, work: Work) -> None:
        """Another node writes what it provides."""
        if work.provided == work.start:
            return
        for index, group, table, _ in self._in_groups(work):
            self._physical.deliver(index, group, table, work.chain[: work.start], work.provided)

    def _read_states(self, work: Work) -> Iterator[Difference | None]:
        for index, group, table, where in self._in_groups(work):
            if group.keeps_states and work.start > 0:
                yield self._physical.read_state(index, group, table, work.chain, work.start, where)

    def _write(self, work: Work) -> Iterator[Difference | None]:
        parts: dict[tuple[object, ...], list[Part]] = {}
        for index, group, table, where in self._in_groups(work):
            if group.keeps_states:
                spare = len(table) - group.blocks_occupied(work.verified)
                if spare < work.end - work.verified:
                    expected = f"a state for each of {work.end - work.verified} drafts"
                    yield Difference("KV-MEM-02", str(where), expected, f"the table has {spare} after the running one")
                # If states are kept everywhere, a kernel stores each state that it passes; drafts have states of their
                # own.
                passing = group.states is StateMode.ALL or work.end > work.verified
                computed = work.start, work.end
                yield self._physical.write_states(index, group, table, work.chain, computed, where, passing)
            else:
                # Groups with the same blocks are written the same.
                drafts = self._drafts_into(group)
                like = group.block_size_tokens, group.compress_ratio, group.whole_slots, drafts
                if like not in parts:
                    drafted = work.drafted if drafts else work.end
                    parts[like] = parts_of(group, work.chain, work.start, work.end, drafted)
                yield self._physical.write(index, group, table, parts[like], where)

    def _read(self, work: Work) -> Iterator[Difference | None]:
        for index, group, table, where in self._in_groups(work):
            if not group.keeps_states:
                yield self._physical.read(index, group, table, work.chain, (work.start, work.end), where)

    # Drafts and transfers

    def _verify(self, request: Request, tables: Sequence[Sequence[int]]) -> Difference | None:
        return self._keep(self._kept(request, tables))

    def _kept(self, request: Request, tables: Sequence[Sequence[int]]) -> list[Kept]:
        """Where states are kept, the worker keeps the one after the last accepted draft; a send accepts none."""
        before, end = self._computed.get(request.number, 0), request.tokens_computed - request.drafts_in_flight
        # What comes after its end was computed, and is of no use.
        end = min(end, len(request.tokens))
        # One that has all the tokens it may have ends: no step needs what would be kept.
        has_ended = len(request.tokens) == self.settings.tokens_max
        if before == end or has_ended or len(tables) != len(self.groups):
            return []
        span, chain = (max(0, end - 1), end), self._chain(request)
        return [
            Kept(index, group, tuple(table), chain, span, Where(request.number, index, request.prompt_tokens))
            for index, (group, table) in enumerate(zip(self.groups, tables, strict=True))
            if group.keeps_states
        ]

    def _keep(self, kept: Iterable[Kept]) -> Difference | None:
        for each in kept:
            found = self._physical.write_states(
                each.index, each.group, each.table, each.chain, each.span, each.where, passing=True
            )
            if found is not None:
                return found
        return None

    def _send(self, request: Request, tables: Sequence[Sequence[int]]) -> Difference | None:
        """Another node begins to read."""
        if len(tables) != len(self.groups):
            got = f"{len(tables)} tables"
            return Difference("KV-OP-25", f"request {request.number}", "a table in every group until it is read", got)
        # What steps in flight computed after its end is taken back: none of them had a draft to accept.
        found = self._verify(request, tables) if request.drafts_in_flight else None
        self._transfers[request.number] = self._work(request, tables, sends=True)
        return found

    def _transferred(self, number: int, succeeded: bool) -> Difference | None:
        """What was loaded arrives, wherever its blocks are by now; or another node has read what was sent."""
        work = self._transfers.pop(number, None)
        if work is None:
            return None
        if work.provided < work.start:
            if succeeded:
                self._deliver(work)
            return None
        for index, group, table, where in self._in_groups(work):
            if work.end == 0:
                continue
            if group.keeps_states:
                found = self._physical.read_state(index, group, table, work.chain, work.end, where)
            else:
                found = self._physical.read(index, group, table, work.chain, (work.end, work.end), where)
            if found is not None:
                return found
        return None


# Steps in flight

PREEMPTED = "the request that was to write it was preempted in the same step"
LATE = "a step in flight wrote it after it was freed"
LEFT = "a window left it while a step in flight still read it"
LEFT_LATE = "a step in flight wrote it after a window had left it"
ENDED = "another node reads it, of a request that is over"
FAILED = "a load that it follows from has failed"
FAILED_ELSEWHERE = "a load of another request, of which it has blocks, has failed"
FAILED_LATE = "a load that it follows from has failed, of a request that had given it up by then"


@define
class StepInFlight:
    """What the worker was sent."""

    works: list[Work]
    copies: tuple[Copy, ...]
    kept: list[Kept] = field(factory=list)
    freed: set[int] = field(factory=set)
    """The requests whose blocks were freed since it was dispatched."""
    left: set[tuple[int, int]] = field(factory=set)
    """By request, the blocks that its windows left since then."""


class WorkerMemory(GhostMemory):
    """The physical slots of one engine, and what they hold."""

    def __init__(self, settings: Settings, is_known: IsKnown = lambda _misread: False) -> None:
        super().__init__(settings, lambda misread: is_known(evolve(misread, mark=self._mark_of(misread))))
        self._copies: tuple[Copy, ...] = ()
        self._unread: frozenset[int] = frozenset()
        """The requests of the step that is computed whose answer is not needed."""
        self.in_flight: deque[StepInFlight] = deque()
        self._left: set[tuple[int, int]] = set()
        """What was left of the step that is computed."""
        self._sent: set[int] = set()
        """The request that another node reads just now."""
        self.marks: dict[int, tuple[str, int]] = {}
        """Blocks that do not hold what a request was to write there: why, and which one; until they are written again.
        """

    def observe(self, step: Step) -> Difference | None:
        """Note what is ordered, and check what is read without a step."""
        if isinstance(step.operation, (Preempt, Finish, Abort, Transferred)):
            number = step.operation.request
            # Blocks that another node reads are freed when it has read them.
            frees = isinstance(step.operation, Preempt) or number not in step.population.alive
            for sent in self.in_flight if frees else ():
                sent.freed.add(number)
        if isinstance(step.operation, Preempt):
            number = step.operation.request
            for work in self._pending:
                if work.request == number:
                    self._mark(work, work.start, PREEMPTED)
            self._pending = [work for work in self._pending if work.request != number]
        elif isinstance(step.operation, (Schedule, ReleaseSkipped)) and self.in_flight:
            self._leave(step.operation.request, step.tables(step.operation.request))
        return super().observe(step)

    def _leave(self, number: int, tables: Sequence[Sequence[int]]) -> None:
        """Note which blocks of steps in flight the windows of a request have left."""
        for sent in self.in_flight:
            for work in sent.works:
                if work.request == number:
                    had = {block for table in work.tables for block in table if block != NULL}
                    sent.left |= {(number, block) for block in had.difference(*tables)}

    def _mark_of(self, misread: Misread) -> str | None:
        reader = misread.reader.request
        left = LEFT if (reader, misread.block) in self._left else None
        why, _ = self.marks.get(misread.block, (None, 0))
        return why or left or (ENDED if reader in self._sent else None)

    @property
    def _is_delayed(self) -> bool:
        return True

    def _dispatch(self, copies: Iterable[Copy]) -> Difference | None:
        self._copies += tuple(copies)
        return None

    def dispatched(self) -> None:
        """All that was scheduled since the last time goes to the worker, as one step."""
        self.in_flight.append(StepInFlight(self._pending, self._copies))
        self._pending, self._copies = [], ()

    def compute(self, spoilt: Mapping[int, int], ended: Iterable[int] = ()) -> Difference | None:
        """The worker computes the oldest step in flight.

        Per request of which a load within the step failed, or that shares its blocks, ``spoilt`` has how many of its
        tokens are valid, except in blocks that another one loads. What is computed after them is worth nothing. A
        request that has ``ended`` since is computed as well: what is read for it does not matter, where it writes does.
        """
        step = self.in_flight.popleft()
        self._unread, self._left = frozenset(ended), step.left
        for work in step.works:
            if work.request in spoilt:
                valid = spoilt[work.request]
                loads = work.provided < work.start and work.provided <= valid
                why = FAILED_LATE if work.request in step.freed else FAILED if loads else FAILED_ELSEWHERE
                self._spoil(work, valid, why)
        waiting, self._pending = self._pending, [work for work in step.works if work.request not in spoilt]
        found = super()._dispatch(step.copies)
        self._pending, self._left = waiting, set()
        for work in step.works:
            late = self._written(work) & {block for _, block in step.left}
            self.marks |= dict.fromkeys(late, (LEFT_LATE, work.request))
            if work.request in step.freed:
                self._mark(work, work.start, LATE, replaces=False)
        return found or self._keep(step.kept)

    def _read_states(self, work: Work) -> Iterator[Difference | None]:
        return iter(()) if work.request in self._unread else super()._read_states(work)

    def _read(self, work: Work) -> Iterator[Difference | None]:
        return iter(()) if work.request in self._unread else super()._read(work)

    def _spoil(self, work: Work, valid: int, why: str) -> None:
        valid = min(max(valid, work.provided), work.start)
        for group, table in zip(self.groups, work.tables, strict=True):
            self._physical.forget(table[-(-work.provided // group.block_size_tokens) :])
        self._deliver(evolve(work, start=valid))
        self._mark(work, valid, why)

    def _mark(self, work: Work, start: int, why: str, replaces: bool = True) -> None:
        """The blocks that a step writes from ``start`` on do not hold what they should."""
        for group, table in zip(self.groups, work.tables, strict=True):
            end = work.drafted if self._drafts_into(group) else work.end
            for block in table[start // group.block_size_tokens : group.blocks_occupied(end)]:
                if block != NULL and (replaces or block not in self.marks):
                    self.marks[block] = why, work.request

    def _written(self, work: Work) -> set[int]:
        """The blocks that a step writes, or that another node fills within it."""
        sizes = (group.block_size_tokens for group in self.groups)
        ends = (group.blocks_occupied(work.end) for group in self.groups)
        parts = zip(work.tables, sizes, ends, strict=True)
        return {block for table, size, end in parts for block in table[work.provided // size : end]}

    def _deliver(self, work: Work) -> None:
        self._unmark(work, work.provided)
        super()._deliver(work)

    def _write(self, work: Work) -> Iterator[Difference | None]:
        self._unmark(work, work.start)
        return super()._write(work)

    def _unmark(self, work: Work, start: int) -> None:
        """A block is right once its last slot is written: the slots before were written before.

        A step that was late may have written over what comes before. What another request writes from its first slot on
        is that one's from then on.
        """
        for group, table in zip(self.groups, work.tables, strict=True) if self.marks else ():
            size_tokens = group.block_size_tokens
            for index in range(start // size_tokens, min(group.blocks_occupied(work.end), len(table))):
                why, request = self.marks.get(table[index], (None, work.request))
                is_first, is_whole = index * size_tokens >= start, (index + 1) * size_tokens <= work.end
                if (is_whole and (is_first or why != LATE)) or (is_first and request != work.request):
                    self.marks.pop(table[index], None)

    def _verify(self, request: Request, tables: Sequence[Sequence[int]]) -> Difference | None:
        if not self.settings.geometry.keeps_states:
            return None
        kept = self._kept(request, tables)
        if not self.in_flight:
            return self._keep(kept)
        self.in_flight[-1].kept += kept
        return None

    # Transfers

    def arrive(self, number: int, valid: int | None) -> Difference | None:
        """A transfer is over: other nodes have written up to ``valid`` tokens, or read (None)."""
        work = self._transfers.get(number)
        if work is None:
            return None
        if valid is None:
            self._sent = {number}
            found = super()._transferred(number, True)
            self._sent = set()
            return found
        del self._transfers[number]
        if valid > work.provided:
            self._deliver(evolve(work, start=min(valid, work.start)))
        return None

    def _transferred(self, number: int, succeeded: bool) -> Difference | None:
        """The scheduler knows that it is over: what there was to write is written."""
        del number, succeeded
        return None


# The slots of one node, filled with what is really in the slots of another


@frozen
class Source:
    """Where a request's blocks are read from, and where they are written."""

    slots: PhysicalSlots
    """Those of the other node."""
    there: Sequence[Sequence[int]]
    """The blocks of the request on the other node, by group."""
    here: Sequence[Sequence[int]]
    """Its blocks on this one."""


class LinkedMemory(WorkerMemory):
    """The physical slots of one node, and what they hold."""

    source_of: Callable[[int], Source] | None = None
    """Where the blocks of a request are read from; None for a node that reads from no other."""

    def link(self, states: States) -> PhysicalSlots:
        """Let equal states have equal numbers on both nodes. Returns the slots, for the other to read."""
        self.states = states
        self._physical = PhysicalSlots(states, self._physical.is_known)
        return self._physical

    def _deliver(self, work: Work) -> None:
        if self.source_of is None or work.provided == work.start:
            super()._deliver(work)
            return
        self._unmark(work, work.provided)
        source = self.source_of(work.request)
        for index, group, _, _ in self._in_groups(work):
            size, start = group.block_size_tokens, group.tokens_stored(work.provided)
            table, read = source.here[index], source.there[index]
            for position in range(start // size, min(group.blocks_occupied(work.start), len(table))):
                if table[position] == NULL:
                    continue
                there = source.slots.held(read[position], index) if position < len(read) else ()
                states = [*(None,) * (position * size), *there, *(None,) * size]
                self._physical.put(index, size, table[position], position * size, states[: work.start], start)
