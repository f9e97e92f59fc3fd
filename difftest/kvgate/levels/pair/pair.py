"""Two nodes: a prefill node and a decode node, each with vLLM's scheduler, and a connector between them.

Each node is an engine with everything that checks one. Between them, a router sends a request first to the one and then
to the other, and a connector moves blocks. What arrives in the decode node's slots is what is in the prefill node's
slots when the read ends. Neither is a product; both do what the handover says and no more, so every finding comes from
the schedulers, or from a mutant that broke the handover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from attrs import evolve, frozen

from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.errors import UsageError
from kvgate.levels.pair.across import ProgressAcross, is_held, remains
from kvgate.levels.pair.handover import Handover, Handovers, Stand
from kvgate.levels.pair.node import NodeEngine
from kvgate.levels.pair.operations import (
    Acknowledged,
    Ask,
    CollectOn,
    Node,
    Operation,
    PairStage,
    ResetCacheOn,
    ResetEncoderOn,
    StepOn,
)
from kvgate.levels.scheduler import operations as engines
from kvgate.levels.scheduler.nodes import one_named
from kvgate.levels.scheduler.operations import Collect, GrammarReady, Lost, ResetCache, ResetEncoder
from kvgate.monitors.slot_memory import LinkedMemory, Source, States
from kvreference.operations import Abort, Transferred
from kvreference.scheduler.operations import Step, Submit
from kvreference.settings import Settings


class Stop(Exception):  # noqa: N818 (nothing went wrong, so it is not an error)
    """Something was found: nothing more is done."""

    def __init__(self, found: Divergence) -> None:
        super().__init__(found)
        self.found = found


@frozen
class Seen:
    """Something that was found."""

    reported: Divergence
    """With the node's name, and who waits on the other."""
    on_node: Divergence | None
    """As the checkers of one node said it; None for what was checked across both."""
    engine: NodeEngine
    """The node; of what was checked across both, the decode node."""


class Pair:
    """One run. After the first divergence nothing more can be performed.

    Raises:
        UsageError: vLLM has nothing for these settings, or states would have to be moved, which no handover here does.
    """

    def __init__(
        self, settings: Settings, stage: PairStage, subject: str = "stock", with_reference: bool = True
    ) -> None:
        if settings.geometry.keeps_states:
            raise UsageError("no states are handed over between two nodes: give a model of attention alone")
        self.prefill = NodeEngine(Node.PREFILL, stage.of_prefill(settings), stage.prefill, subject, with_reference)
        self.decode = NodeEngine(Node.DECODE, settings, stage.decode, subject, with_reference)
        self.decode.lockstep.known.sources = (self.prefill.lockstep.known,)
        self.handovers = Handovers()
        self.progress = ProgressAcross(self.prefill, self.decode, self.handovers)
        self._asked: dict[int, Ask] = {}
        """Per request that the decode node has not got yet, what its client asked for."""
        self.found: Divergence | None = None
        self.seen: list[Seen] = []
        """Everything that was found, and where."""
        self._link()

    def _link(self) -> None:
        states = States()
        read, filled = self.prefill.memory, self.decode.memory
        assert isinstance(read, LinkedMemory), "both are nodes"
        assert isinstance(filled, LinkedMemory), "both are nodes"
        slots = read.link(states)
        filled.link(states)

        def source_of(there: int) -> Source:
            handover = self.handovers.of_decode(there)
            assert handover is not None, "what is read is handed over"
            return Source(slots, handover.tables, self._written[there])

        self._written: dict[int, tuple[tuple[int, ...], ...]] = {}
        """Per request that is read, the decode node's blocks, as the connector got them at its admission."""
        filled.source_of = source_of

    def engine(self, node: Node) -> NodeEngine:
        """The engine of a node."""
        return self.prefill if node is Node.PREFILL else self.decode

    # Operations

    def candidates(self, kind: type[Operation]) -> Sequence[int]:
        """See ``kvgate.gate.level.World.candidates``."""
        if kind is Ask:
            return self.prefill.candidates(Submit)
        if kind is CollectOn:
            return self.prefill.candidates(Collect) or self.decode.candidates(Collect)
        listed = {
            Abort: self._clients,
            GrammarReady: self._waiting_for_grammars,
            Transferred: self.handovers.being_read,
            Acknowledged: self.handovers.unacknowledged,
            Lost: self.handovers.awaiting_message,
        }
        return listed[kind]() if kind in listed else [0]

    def perform(self, operation: Operation) -> Divergence | None:
        """Perform one operation, if it stands for a legal one, and check it."""
        try:
            _PERFORMED[type(operation)](self, operation)
            self._settle()
            if isinstance(operation, StepOn):
                self._across("progress", self.progress.observe())
        except Stop as stop:
            self.found = stop.found
        return self.found

    def _ask(self, ask: Ask) -> None:
        number, found = self.prefill.submit(ask.of_prefill)
        self._check(self.prefill, found)
        if number is not None:
            self._asked[number] = ask

    def _step(self, operation: StepOn) -> None:
        self._on(self.engine(operation.node), Step(operation.replies))

    def _collect(self, operation: CollectOn) -> None:
        self._on(self.engine(operation.node), Collect())

    def _reset_cache(self, operation: ResetCacheOn) -> None:
        self._on(self.engine(operation.node), ResetCache(operation.preempts))

    def _reset_encoder(self, operation: ResetEncoderOn) -> None:
        self._on(self.engine(operation.node), ResetEncoder())

    def _waiting_for_grammars(self) -> list[int]:
        return sorted({*self.prefill.progress.grammars, *self._grammars_on_decode()})

    def _grammars_on_decode(self) -> dict[int, int]:
        return {self.handovers.named[there]: there for there in self.decode.progress.grammars}

    def _grammar_ready(self, operation: GrammarReady) -> None:
        number = one_named(operation.request, self._waiting_for_grammars())
        there = self._grammars_on_decode()
        if number in there:
            self._on(self.decode, GrammarReady(there[number]))
        elif number is not None:
            self._on(self.prefill, GrammarReady(number))

    def _on_decode(self) -> dict[int, int]:
        """Per request that has not ended on the decode node, its number there."""
        alive = self.decode.followed.population.alive
        return {self.handovers.named[each]: each for each in alive if self.decode.is_open(each)}

    def _between(self) -> dict[int, Handover]:
        """The requests that are prefilled, and that the decode node has not got yet."""
        return {each.number: each for each in self.handovers if each.there is None and each.needed}

    def _clients(self) -> list[int]:
        """The requests whose clients wait."""
        here = (number for number in self.prefill.followed.population.alive if self.prefill.is_open(number))
        return sorted({*here, *self._on_decode(), *self._between()})

    def _abort(self, operation: Abort) -> None:
        """A client aborts, at any stage of its request."""
        number = one_named(operation.request, self._clients())
        if number is None:
            return
        waits, there = self._between(), self._on_decode()
        if number in waits:
            self._asked.pop(number, None)
            self.handovers.abandoned(waits[number])
        elif number in there:
            self._on(self.decode, Abort(there[number]))
        else:
            self._on(self.prefill, Abort(number))

    def _transferred(self, operation: Transferred) -> None:
        handover = self.handovers.read_named(operation.request)
        if handover is None or handover.there is None:
            return
        self._on(self.decode, evolve(operation, request=handover.there))
        self._written.pop(handover.there, None)
        self.handovers.was_read(handover, operation.succeeded)
        self.prefill.moved()

    def _acknowledged(self, operation: Acknowledged) -> None:
        handover = self.handovers.acknowledgement_named(operation.request)
        if handover is not None:
            self.handovers.acknowledged(handover)
            self._on(self.prefill, Transferred(handover.number))

    def _lose(self, operation: Lost) -> None:
        handover = self.handovers.message_named(operation.request)
        if handover is None:
            return
        handover.lost = True
        self.prefill.nodes.lost.add(handover.number)
        if handover.stand is Stand.READING and handover.there is not None:
            self.decode.nodes.lost.add(handover.there)

    def _on(self, engine: NodeEngine, operation: engines.Operation) -> None:
        self._check(engine, engine.perform(operation))

    # What follows of itself

    def _settle(self) -> None:
        """The router and the connector do what is theirs to do, and it is checked whether what is read is held."""
        for number, is_read in self.prefill.ends:
            if is_read:
                self.handovers.prefilled(number, self.prefill.nodes.tables[number])
            else:
                self._asked.pop(number, None)
        self.prefill.ends.clear()
        self._forward()
        for handover in self.handovers:
            self._advance(handover)
        self.decode.ends.clear()
        self._across("handover", is_held(self.prefill, self.handovers))

    def _forward(self) -> None:
        """The router passes on prefilled requests, in that order, as long as the decode node takes them."""
        for handover in self.handovers:
            if handover.there is not None or not handover.needed or not self.decode.has_place:
                continue
            ask = self._asked.pop(handover.number, None)
            if ask is None:
                # It was passed on, and its node has lost it.
                continue
            there, found = self.decode.submit(ask.of_decode)
            if there is not None:
                self.handovers.arrived(handover, there)
            self._check(self.decode, found)

    def _advance(self, handover: Handover) -> None:
        """Whether the decode node has begun to read, or does not need to."""
        there = handover.there
        if there is None or handover.stand is not Stand.PREFILLED:
            return
        if there in self.decode.nodes.loading:
            self._written[there] = self.decode.nodes.tables[there]
            self.handovers.begun(handover)
        elif not self.decode.is_open(there):
            self.handovers.abandoned(handover)
        elif there not in self.decode.nodes.offers:
            self.handovers.got_on_without(handover)

    # Checking

    def _check(self, engine: NodeEngine, found: Divergence | None) -> None:
        if found is None:
            return
        raise Stop(self._report(engine, found))

    def _report(self, engine: NodeEngine, found: Divergence) -> Divergence:
        """What was found on one node, reported as found on two."""
        difference = found.difference
        if found.detector == "progress":
            # What it waits for may be on the other node.
            difference = evolve(difference, got=self.progress.graph.describe(self.progress.graph.wait_for()))
        reported = evolve(
            found, difference=evolve(difference, subject=f"{engine.node.value} node, {difference.subject}")
        )
        self.seen.append(Seen(reported, found, engine))
        return reported

    def _across(self, detector: str, difference: Difference | None) -> None:
        if difference is not None:
            raise Stop(self._report_across(detector, difference))

    def _report_across(self, detector: str, difference: Difference) -> Divergence:
        found = Divergence(len(self.decode.lockstep.performed), None, detector, difference)
        self.seen.append(Seen(found, None, self.decode))
        return found

    def close(self) -> list[Divergence]:
        """Abort all clients, deliver all messages that come, let both nodes take steps; check what remains."""
        if self._performs_all(self._endings()):
            assert self.found is not None, "it was performed in vain"
            return [self.found]
        left = list(remains((self.prefill, self.decode), self.handovers))
        if left:
            return [self._report_across("leak", each) for each in left]
        return [self._report(engine, found) for engine in (self.prefill, self.decode) for found in engine.close()]

    def _endings(self) -> Iterable[Operation]:
        steps = [StepOn(Node.PREFILL), StepOn(Node.DECODE)]
        # Each once: with a faulty handover, one may stay in spite of its client's abort.
        yield from map(Abort, self._clients())
        for node in Node:
            yield from (CollectOn(node) for _ in range(len(self.engine(node).in_flight)))
        yield from steps
        for handover in self.handovers:
            if handover.stand is Stand.READING and not handover.lost:
                yield Transferred(handover.number)
        yield from steps
        for handover in self.handovers:
            if handover.stand is Stand.READ and not handover.lost:
                yield Acknowledged(handover.number)
        yield from (*steps, *steps)
        for node in Node:
            while self.engine(node).in_flight:
                yield CollectOn(node)

    def _performs_all(self, operations: Iterable[Operation]) -> bool:
        """Whether something was found on the way."""
        return any(self.perform(operation) is not None for operation in operations)


_PERFORMED: dict[type, Callable[..., None]] = {
    Ask: Pair._ask,
    StepOn: Pair._step,
    CollectOn: Pair._collect,
    Abort: Pair._abort,
    GrammarReady: Pair._grammar_ready,
    ResetCacheOn: Pair._reset_cache,
    ResetEncoderOn: Pair._reset_encoder,
    Transferred: Pair._transferred,
    Acknowledged: Pair._acknowledged,
    Lost: Pair._lose,
}
