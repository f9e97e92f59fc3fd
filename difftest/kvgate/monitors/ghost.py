"""Ghost memory: what every physical slot would hold, if a worker did what the tables say.

Every token that is computed writes its state into its slot, and reads the states that its attention covers. The
ghost keeps for each slot which state was written there last, and so sees a stale or foreign hit, a block that two
requests write, a window that was released too early, or a copy from a recycled block, whatever the manager believes.

Where blocks are copied or hold states, the worker's order within a step matters, so nothing is done before the step is
dispatched: first what another node provides, then the copies, then the states that are read, then whatever is written,
then what attention reads. Elsewhere each operation is a step of its own.

The time per step grows with the tokens that the step's attention reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from kvgate.kernel.difference import Difference
from kvgate.kernel.monitor import Step
from kvgate.kernel.protocol import System
from kvgate.monitors.slots import PhysicalSlots, Slots
from kvgate.monitors.states import States
from kvreference.answers import Copies, Copy, Granted
from kvreference.geometry import Group
from kvreference.mamba import StateMode
from kvreference.operations import Admit, Dispatch, Finish, OfRequest, Preempt, Sample, Schedule, Transferred
from kvreference.population import Request, Status
from kvreference.settings import Settings


@frozen
class Work:
    """What the worker computes for one request in one step. Positions are in tokens."""

    request: int
    tables: tuple[tuple[int, ...], ...]
    chain: tuple[int, ...]
    provided: int
    """From here to ``start`` another node provides the states."""
    start: int
    end: int
    verified: int
    """To here the tokens are no drafts."""
    drafted: int
    """To here draft layers write."""


class GhostMemory:
    """The physical slots of one system, and what they hold."""

    name = "ghost"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.groups = settings.geometry.groups
        self.states = States()
        self._physical = PhysicalSlots(self.states)
        self._chains: dict[int, list[int]] = {}
        """Per request, the states of its tokens."""
        self._computed: dict[int, int] = {}
        self._pending: list[Work] = []
        """What was scheduled and not dispatched."""
        self._transfers: dict[int, Work] = {}
        """Per request, what another node writes, or reads (then ``provided`` is ``end``)."""

    def copy(self) -> GhostMemory:
        """An independent memory that holds the same."""
        other = GhostMemory.__new__(GhostMemory)
        other.settings = self.settings
        other.groups = self.groups
        other.states = self.states
        other._physical = self._physical.copy()
        other._chains = {number: list(chain) for number, chain in self._chains.items()}
        other._computed = dict(self._computed)
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
        """Do what the step orders, and check whatever its attention reads."""
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
            found = self._granted(operation, step.answer, request, step.snapshot.tables.get(number, ()))
        elif isinstance(operation, Sample):
            found = self._verify(step.population[number], step.snapshot.tables.get(number, ()))
        elif isinstance(operation, Finish) and operation.sends and request is not None:
            found = self._send(request, step.snapshot.tables.get(number, ()))
        else:
            found = None
        self._settle(operation, request)
        return found

    def _settle(self, operation: OfRequest, request: Request | None) -> None:
        if request is None or request.status is Status.ENDING:
            self._chains.pop(operation.request, None)
            self._computed.pop(operation.request, None)
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
        # Nobody asks another node for drafts.
        end = request.tokens_computed - (request.drafts_in_flight if sends else 0)
        return Work(
            request.number,
            tuple(map(tuple, tables)),
            tuple(self._chain(request)[: max(end, start)]),
            end if sends else provided,
            end if sends else start,
            end,
            min(end, len(request.tokens)),
            min(end + lookahead, self.settings.tokens_max),
        )

    def _dispatch(self, copies: Iterable[Copy]) -> Difference | None:
        """The worker does one step."""
        pending, self._pending = self._pending, []
        for work in pending:
            self._deliver(work)
        for copy in copies:
            self._physical.perform(copy, self.groups[copy.group].block_size_tokens)
        for phase in (self._read_states, self._write, self._read):
            for work in pending:
                for found in phase(work):
                    if found is not None:
                        return found
        return None

    def _in_groups(self, work: Work) -> Iterator[tuple[int, Group, tuple[int, ...], str]]:
        for index, (group, table) in enumerate(zip(self.groups, work.tables, strict=True)):
            yield index, group, table, f"request {work.request}, group {index}"

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
        for index, group, table, where in self._in_groups(work):
            if group.keeps_states:
                spare = len(table) - group.blocks_occupied(work.verified)
                if spare < work.end - work.verified:
                    expected = f"a state for each of {work.end - work.verified} drafts"
                    yield Difference("KV-MEM-02", where, expected, f"the table has {spare} behind the running one")
                # A kernel hands out what it passes where states are kept everywhere; drafts have states of their own.
                passing = group.states is StateMode.ALL or work.end > work.verified
                computed = work.start, work.end
                yield self._physical.write_states(index, group, table, work.chain, computed, where, passing)
            else:
                span = work.start, work.end, work.drafted if group.lookahead else work.end
                yield self._physical.write(index, group, table, work.chain, span, where)

    def _read(self, work: Work) -> Iterator[Difference | None]:
        for index, group, table, where in self._in_groups(work):
            if not group.keeps_states:
                yield self._physical.read(index, group, table, list(work.chain), (work.start, work.end), where)

    # Drafts and transfers

    def _verify(self, request: Request, tables: Sequence[Sequence[int]]) -> Difference | None:
        """Where states are kept, the worker keeps the one behind the last accepted draft; a send accepts none."""
        before, end = self._computed.get(request.number, 0), request.tokens_computed - request.drafts_in_flight
        if before == end or len(tables) != len(self.groups):
            return None
        start = max(0, end - 1)
        chain = self._chain(request)
        for index, (group, table) in enumerate(zip(self.groups, tables, strict=True)):
            if group.keeps_states:
                span = start, end
                where = f"request {request.number}, group {index}"
                found = self._physical.write_states(index, group, table, chain, span, where, passing=True)
                if found is not None:
                    return found
        return None

    def _send(self, request: Request, tables: Sequence[Sequence[int]]) -> Difference | None:
        """Another node begins to read."""
        if len(tables) != len(self.groups):
            got = f"{len(tables)} tables"
            return Difference("KV-OP-25", f"request {request.number}", "a table in every group until it is read", got)
        found = self._verify(request, tables)
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
                found = self._physical.read(index, group, table, list(work.chain), (work.end, work.end), where)
            if found is not None:
                return found
        return None
