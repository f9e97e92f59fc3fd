"""Steps in flight, as the explorer has them: what they read and write, and what must be kept for them.

A step goes to the worker when it is dispatched, and is computed here when it is over. By then all answers of earlier
steps are known, and so is which token stands where. Drafts that do not hold move what comes after them, as in a worker.
What a step computes for a request that has ended since is written, too; its answer is not taken.

``AheadMemory`` follows what was granted and answered, not what the reference says is in flight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain as joined

from attrs import evolve

from kvgate.kernel.difference import Difference
from kvgate.kernel.monitor import Step
from kvgate.monitors.slot_memory import JUNK, GhostMemory, Work, first_read
from kvreference.answers import Copy
from kvreference.block_pool import NULL
from kvreference.geometry import Group
from kvreference.manager import Manager
from kvreference.operations import Dispatch, Sample
from kvreference.population import Request, Status
from kvreference.settings import Settings
from kvreference.snapshot import Violation

Alive = Mapping[int, Request]


def drafts_after(tokens: Sequence[int], count: int) -> list[int]:
    """What a draft layer proposes after ``tokens``."""
    return list(range(tokens[-1] + 1, tokens[-1] + 1 + count))


def answering(manager: Manager) -> Alive:
    """The requests whose answers are taken."""
    alive = manager.population.alive
    return {number: request for number, request in alive.items() if request.status is not Status.ENDING}


class AheadMemory(GhostMemory):
    """The slots of an engine whose steps are computed when they are over, in the order in which they were dispatched.

    For groups with a slot per token, and without copies.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        assert not settings.geometry.fences, "what a step copies, and states, are not followed here"
        self.in_flight: list[tuple[Work, ...]] = []
        """The steps that were dispatched and are not over, oldest first."""

    def copy(self) -> AheadMemory:
        other = super().copy()
        assert isinstance(other, AheadMemory)
        other.in_flight = list(self.in_flight)
        return other

    def forget(self, blocks: Iterable[int]) -> None:
        """What a step in flight has yet to read stays, until a later step writes there."""
        kept = {block for step in self.in_flight for work in step for table in work.tables for block in table}
        super().forget(block for block in blocks if block not in kept)

    @property
    def _is_delayed(self) -> bool:
        return True

    def _chain(self, request: Request) -> list[int]:
        """The states of the tokens that are known."""
        chain = self._chains.setdefault(request.number, [])
        self.states.extend(chain, request, request.tokens)
        return chain

    def observe(self, step: Step) -> Difference | None:
        """Note what is ordered."""
        if not isinstance(step.operation, Dispatch):
            return super().observe(step)
        if self._pending:
            self.in_flight.append(tuple(evolve(work, verified=work.end) for work in self._pending))
            self._pending = []
        return None

    def _dispatch(self, copies: Iterable[Copy]) -> Difference | None:
        del copies
        return None

    def compute(self, alive: Alive) -> Difference | None:
        """The oldest step is over: all that it computes is written, and then read for those whose answers are taken."""
        works = [self._resolved(work, alive.get(work.request)) for work in self.in_flight.pop(0)]
        for work in works:
            self._deliver(work)
        phases: list[tuple[Callable[[Work], Iterator[Difference | None]], list[Work]]] = [
            (self._write, works),
            (self._read, [work for work in works if work.request in alive]),
        ]
        found = (each for phase, of in phases for work in of for each in phase(work))
        return next((each for each in found if each is not None), None)

    def _resolved(self, work: Work, request: Request | None) -> Work:
        """The work of a step, now that it is known which tokens it computes."""
        if request is None:
            # Which of its drafts held is not known any more: it may write wherever they could have been.
            known = len(work.chain)
            start = min(work.start, known)
            chain = (*work.chain, *(JUNK,) * (work.end - known))
            return evolve(work, chain=chain, start=start, provided=min(work.provided, start))
        states = list(self._chain(request))
        drafts = drafts_after(request.tokens, max(0, work.end - len(request.tokens)))
        self.states.extend(states, request, [*request.tokens, *drafts])
        return evolve(work, chain=tuple(states))

    def answers(self, alive: Alive) -> Iterator[tuple[Request, int]]:
        """Whom the oldest step answers, and how many drafts it verifies of each."""
        for work in self.in_flight[0]:
            request = alive.get(work.request)
            if request is not None and work.end >= len(request.tokens):
                yield request, work.end - len(request.tokens)

    def answered(self, answer: Sample, request: Request, known: int, drafts: int) -> Violation | None:
        """Move what was counted after drafts that do not hold; there were ``known`` tokens, and ``drafts`` after them.

        What is wrong with the books of the request then.
        """
        hold = known + answer.accepted

        def moved(position: int) -> int:
            return min(position, max(hold, position - (drafts - answer.accepted)))

        self.in_flight = [
            tuple(self._moved(work, moved, request) if work.request == answer.request else work for work in step)
            for step in self.in_flight
        ]
        due = (hold + 1, moved(self._computed[answer.request]))
        got = (len(request.tokens), request.tokens_computed)
        self._computed[answer.request] = request.tokens_computed
        if got == due:
            return None
        return Violation("KV-SYS-02", f"request {answer.request}: of {due[0]} tokens {due[1]} are computed, not {got}")

    def _moved(self, work: Work, moved: Callable[[int], int], request: Request) -> Work:
        end = moved(work.end)
        return evolve(
            work,
            chain=tuple(self._chain(request)[:end]),
            provided=moved(work.provided),
            start=moved(work.start),
            end=end,
            verified=end,
            drafted=end + work.drafted - work.end,
        )

    def loads(self) -> list[Work]:
        """What other nodes write."""
        return [work for work in self._transfers.values() if work.provided < work.start]

    def unsure(self, alive: Alive) -> Iterator[tuple[Work, int, int, int]]:
        """Each work that was ordered, oldest first; how many drafts of earlier steps it counts on; the tokens that are
        known if none of these holds; and how many drafts it verifies."""
        known: dict[int, int] = {}
        earlier: Counter[int] = Counter()
        for work in joined(*self.in_flight, self._pending):
            number = work.request
            request = alive.get(number)
            first = len(work.chain) if request is None else len(request.tokens)
            until = known.setdefault(number, first)
            drafts = max(0, work.end - until)
            yield work, earlier[number], until - earlier[number], drafts
            if work.end >= until:
                earlier[number] += drafts
                known[number] = work.end + 1


def what_steps_in_flight_need(manager: Manager, memory: AheadMemory) -> list[Violation]:
    """What steps in flight, or the next one, read or write, and is not kept for them; or is kept for none."""
    found = list(_left_too_early(manager, memory))
    if manager.holdings.deferred and not memory.in_flight:
        found.append(Violation("KV-OP-07", "no step is in flight, and released blocks are not free"))
    if manager.settings.loads_out_of_turn:
        found += _out_of_turn(manager, memory)
    return found


def _out_of_turn(manager: Manager, memory: AheadMemory) -> Iterator[Violation]:
    """Blocks that a step in flight reads or writes, and another node may write before: now, or if it is given them."""
    for work, earlier, *_ in memory.unsure(answering(manager)):
        for index, (group, table) in enumerate(zip(memory.groups, work.tables, strict=True)):
            needed = _places(group, work.start - earlier, work.drafted)
            for block in {table[place] for place in needed if place < len(table)} - {NULL}:
                step = f"a step in flight with request {work.request} needs block {block} of group {index}"
                if manager.pool.references[block] == 0:
                    yield Violation("KV-MEM-04", f"{step}, which is free")
                for number in _written_elsewhere(memory, block, work.request):
                    yield Violation("KV-MEM-04", f"{step}, which another node writes for request {number}")


def _written_elsewhere(memory: AheadMemory, block: int, besides: int) -> Collection[int]:
    """The other requests for which another node writes ``block``."""
    return [
        load.request
        for load in memory.loads()
        if load.request != besides
        for group, table in zip(memory.groups, load.tables, strict=True)
        if block in table[load.provided // group.block_size_tokens : group.blocks_occupied(load.start)]
    ]


def _left_too_early(manager: Manager, memory: AheadMemory) -> Iterator[Violation]:
    """What the next token of a request reads if no draft in flight holds, and a window has left."""
    alive = answering(manager)
    computed = {number: alive[number].tokens_computed for number in manager.tables if number in alive}
    for work, _, known, drafts in memory.unsure(alive):
        if work.request in computed:
            counted = computed[work.request]
            computed[work.request] = min(counted, max(known, counted - drafts))
    for number, sure in computed.items():
        for index, (group, table) in enumerate(zip(memory.groups, manager.tables[number], strict=True)):
            lost = [place for place in _places(group, sure, sure) if table.blocks[place : place + 1] == [NULL]]
            if lost:
                read = f"the token of request {number} after {sure} reads place {lost[0]} of group {index}"
                yield Violation("KV-OP-06", f"{read}, which is left, though drafts in flight may not hold")


def _places(group: Group, start: int, end: int) -> range:
    """Where in a table the tokens from ``start`` to ``end`` are written, and what they read."""
    return range(first_read(group, start) // group.block_size_tokens, group.blocks_occupied(end))
