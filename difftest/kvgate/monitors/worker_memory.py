"""Steps in flight: ghost memory that computes them when the worker does, and not when they are scheduled.

A step goes to the worker as a whole. Whoever was scheduled and lost its blocks before that is no part of it, and is not
computed. Steps are computed in the order in which they went; each at the latest when its output is taken. What other
nodes write is there when their transfer is over, whatever is still in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import define, evolve, field

from kvgate.kernel.difference import Difference
from kvgate.kernel.monitor import Step
from kvgate.monitors.ghost import GhostMemory, Work
from kvreference.answers import Copy
from kvreference.geometry import Group
from kvreference.operations import Abort, Finish, Preempt
from kvreference.population import Request
from kvreference.settings import Settings

PREEMPTED = "whoever was to write it was preempted in the same step"
LATE = "a step in flight wrote it after it was given up"
FAILED = "a load that it follows from has failed"


@define
class Kept:
    """The state behind the last draft that holds, which the worker keeps when it knows how many do."""

    index: int
    group: Group
    table: Sequence[int]
    chain: list[int]
    span: tuple[int, int]
    where: str


@define
class StepInFlight:
    """What the worker was sent."""

    works: list[Work]
    copies: tuple[Copy, ...]
    kept: list[Kept] = field(factory=list)
    given_up: set[int] = field(factory=set)
    """The requests whose blocks were given up since it went."""


class WorkerMemory(GhostMemory):
    """The physical slots of one engine, and what they hold."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._copies: tuple[Copy, ...] = ()
        self._unread: frozenset[int] = frozenset()
        """The requests of the step that is computed of which nobody wants the answer."""
        self.in_flight: deque[StepInFlight] = deque()
        self.marks: dict[int, str] = {}
        """Blocks that do not hold what was to be written there, and why; until somebody writes them anew."""

    def observe(self, step: Step) -> Difference | None:
        """Note what is ordered, and check what is read without a step."""
        if isinstance(step.operation, (Preempt, Finish, Abort)):
            for sent in self.in_flight:
                sent.given_up.add(step.operation.request)
        if isinstance(step.operation, Preempt):
            number = step.operation.request
            for work in self._pending:
                if work.request == number:
                    self._mark(work, work.start, PREEMPTED)
            self._pending = [work for work in self._pending if work.request != number]
        return super().observe(step)

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
        tokens are as they should be. What is computed behind them is worth nothing. Whoever has ``ended`` since is
        computed as well: whatever is read for it does not matter, and where it writes does.
        """
        step = self.in_flight.popleft()
        self._unread = frozenset(ended)
        for work in step.works:
            if work.request in spoilt:
                self._spoil(work, spoilt[work.request])
        waiting, self._pending = self._pending, [work for work in step.works if work.request not in spoilt]
        found = super()._dispatch(step.copies)
        self._pending = waiting
        for work in step.works:
            if work.request in step.given_up:
                self._mark(work, work.start, LATE)
        return found or self._keep(step.kept)

    def _read_states(self, work: Work) -> Iterator[Difference | None]:
        return iter(()) if work.request in self._unread else super()._read_states(work)

    def _read(self, work: Work) -> Iterator[Difference | None]:
        return iter(()) if work.request in self._unread else super()._read(work)

    def _spoil(self, work: Work, valid: int) -> None:
        valid = min(max(valid, work.provided), work.start)
        self._deliver(evolve(work, start=valid))
        for group, table in zip(self.groups, work.tables, strict=True):
            self._physical.forget(table[valid // group.block_size_tokens :])
        self._mark(work, valid, FAILED)

    def _mark(self, work: Work, start: int, why: str) -> None:
        """The blocks that a step writes from ``start`` on do not hold what they should."""
        for group, table in zip(self.groups, work.tables, strict=True):
            blocks = table[start // group.block_size_tokens : group.blocks_occupied(work.end)]
            self.marks.update(dict.fromkeys(blocks, why))

    def _deliver(self, work: Work) -> None:
        self._unmark(work, work.provided)
        super()._deliver(work)

    def _write(self, work: Work) -> Iterator[Difference | None]:
        self._unmark(work, work.start)
        return super()._write(work)

    def _unmark(self, work: Work, start: int) -> None:
        """Whatever is written from its first slot on holds what it should."""
        for group, table in zip(self.groups, work.tables, strict=True) if self.marks else ():
            for block in table[-(-start // group.block_size_tokens) : group.blocks_occupied(work.end)]:
                self.marks.pop(block, None)

    def _keep(self, kept: Iterable[Kept]) -> Difference | None:
        for each in kept:
            found = self._physical.write_states(
                each.index, each.group, each.table, each.chain, each.span, each.where, passing=True
            )
            if found is not None:
                return found
        return None

    def _verify(self, request: Request, tables: Sequence[Sequence[int]]) -> Difference | None:
        before, end = self._computed.get(request.number, 0), request.tokens_computed - request.drafts_in_flight
        if before == end or len(tables) != len(self.groups) or not self.settings.geometry.keeps_states:
            return None
        kept = [
            Kept(
                index,
                group,
                tuple(table),
                list(self._chain(request)),
                (max(0, end - 1), end),
                f"request {request.number}, group {index}",
            )
            for index, (group, table) in enumerate(zip(self.groups, tables, strict=True))
            if group.keeps_states
        ]
        if not self.in_flight:
            return self._keep(kept)
        self.in_flight[-1].kept += kept
        return None

    def rewind(self, number: int, tokens: int) -> None:
        """Of what a request computed, only the first ``tokens`` tokens count."""
        self._computed[number] = tokens

    # Transfers

    def arrive(self, number: int, valid: int | None) -> Difference | None:
        """A transfer is over: other nodes have written up to ``valid`` tokens, or read (None)."""
        work = self._transfers.get(number)
        if work is None:
            return None
        if valid is None:
            return super()._transferred(number, True)
        del self._transfers[number]
        if valid > work.provided:
            self._deliver(evolve(work, start=min(valid, work.start)))
        return None

    def _transferred(self, number: int, succeeded: bool) -> Difference | None:
        """The scheduler was told that it is over: what there was to write is written."""
        del number, succeeded
        return None
