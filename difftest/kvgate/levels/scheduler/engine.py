"""An engine without a model: vLLM's scheduler and block manager, a worker with scripted answers, and checks.

The reference's block manager follows every decision of the real one, and ghost memory acts as the worker: it applies
the block tables of each step and knows what every computed token would have read. The scheduler decides for itself; the
checks are that its bookkeeping is right, and that every request makes progress.

Where steps are asynchronous, the worker knows its answers before the scheduler does. The gate's own requests, which the
monitors look at, have an answer when its step is dispatched. The reference has it when the scheduler takes it; until
then it counts on tokens that it does not know (``kvreference.ahead``). There the work monitor is left out: the caching
that comes with an output is the work of no operation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any, ClassVar, NoReturn

import msgspec
from attrs import evolve

from kvgate.adapters.release_variants import PADDING
from kvgate.findings import goes_on
from kvgate.findings.failed_load import ENDED
from kvgate.findings.modelled import reference_of
from kvgate.kernel.blame import is_ours
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.errors import UsageError
from kvgate.kernel.lockstep import Lockstep
from kvgate.kernel.monitor import Monitor
from kvgate.levels.scheduler import bookkeeping_check, clients, finish_check, grammar
from kvgate.levels.scheduler.adapter.arrivals import STOP, arguments_of, request_of
from kvgate.levels.scheduler.adapter.experts import group_of, memory_of
from kvgate.levels.scheduler.adapter.interception import Interception
from kvgate.levels.scheduler.adapter.names import name_of, number_in
from kvgate.levels.scheduler.adapter.scheduler_output import (
    EMBEDDED,
    client_fields,
    due_in,
    ended_in,
    given,
    media_in,
    parse_client_outputs,
    parse_outputs_to_all,
    parse_scheduler_output,
    parse_whole_step,
    statistics_in,
    strays_in,
)
from kvgate.levels.scheduler.adapter.subjects import SUBJECTS
from kvgate.levels.scheduler.adapter.worker import (
    Grammar,
    Publisher,
    abort,
    answer,
    connector_statistics,
    drafts,
    ends_by_number,
    grammar_ready,
    masked,
    pause,
    performance_of,
    reset_cache,
)
from kvgate.levels.scheduler.batch import Batch, Due
from kvgate.levels.scheduler.chunks import Chunks
from kvgate.levels.scheduler.connector_check import ConnectorCheck, contents
from kvgate.levels.scheduler.encoder import EncoderCheck
from kvgate.levels.scheduler.experts_check import Experts
from kvgate.levels.scheduler.inflight_step import Sent, SetBack, reusing, set_back_by, spoilt_by
from kvgate.levels.scheduler.nodes import OtherNodes, one_named
from kvgate.levels.scheduler.operations import (
    Close,
    Collect,
    GrammarReady,
    Lost,
    PauseEngine,
    ResetCache,
    ResetEncoder,
    Serve,
    Stage,
    impossible,
)
from kvgate.levels.scheduler.operations import Operation as SchedulerOperation
from kvgate.levels.scheduler.progress import ProgressMonitor
from kvgate.levels.scheduler.queue_order_monitor import Line
from kvgate.levels.scheduler.residency_check import Residency
from kvgate.levels.scheduler.sessions import PARTS_MAX, Part, Session, Sessions
from kvgate.levels.scheduler.statistics_check import StatisticsCheck, published
from kvgate.monitors.leak import LeakMonitor
from kvgate.monitors.slot_memory import WorkerMemory
from kvgate.monitors.wait_graph import WaitFor
from kvgate.monitors.work import WorkMonitor
from kvreference.ahead import tokens_awaited
from kvreference.answers import Answer, Done, Granted
from kvreference.content import Media
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    Continue,
    Dispatch,
    Finish,
    Operation,
    Pause,
    Preempt,
    Rewind,
    Run,
    Sample,
    Transferred,
)
from kvreference.population import Population, Status
from kvreference.scheduler.operations import Reply, Step, Submit
from kvreference.settings import Settings

REJECTED = -1
"""What stands in a step for a draft that a grammar rejects."""


class Stop(Exception):  # noqa: N818 (nothing went wrong, so it is not an error)
    """Something was found: the scheduler is stopped where it stands, for what it does next means nothing."""

    def __init__(self, found: Divergence) -> None:
        super().__init__(found)
        self.found = found


class Engine:
    """One run. After the first divergence nothing more can be performed: the states mean nothing from there on.

    Raises:
        UsageError: vLLM has nothing for this stage.
    """

    memory_type: ClassVar[type[WorkerMemory]] = WorkerMemory
    passes_known_hangs: ClassVar[bool] = True
    """Whether the run continues after a known hang."""

    def __init__(self, settings: Settings, stage: Stage, subject: str = "stock", with_reference: bool = True) -> None:
        if stage.connector and settings.geometry.state_block_tokens is not None:
            raise UsageError("the scheduler of vLLM 0.20.2 has no transfers where states are kept in mode align")
        wrong = [name for name in impossible(settings, stage) if getattr(stage.options, name)]
        if wrong:
            raise UsageError(f"the scheduler cannot have these options with such settings: {', '.join(sorted(wrong))}")
        self.settings = settings
        self.stage = stage
        self.subject = SUBJECTS[subject]
        self.subject.install()
        with self.subject.while_built(settings):
            self.scheduler: Any = self.subject.build(settings, stage)
        ends_by_number(self.scheduler)
        groups = settings.geometry.groups
        readers_only = self.subject.scheduling.offers_to_readers_only
        self.nodes = OtherNodes(groups[0].block_size_tokens if groups else 0, readers_only)
        connector: Any = self.scheduler.connector
        self.publisher = Publisher()
        self.scheduler.kv_event_publisher = self.publisher
        self.followed = self.subject.followed(settings, self.scheduler)
        ahead = max(2, stage.in_flight_max) if stage.asynchronous else 1
        out_of_turn = stage.asynchronous and stage.connector
        modelled = evolve(settings, steps_in_flight_max=ahead, loads_out_of_turn=out_of_turn)
        reference, known = reference_of(self.followed, modelled, stage)
        self.rules = reference.choices.rules
        self.memory = self.memory_type(settings, known.is_known)
        monitors: list[Monitor] = [self.memory, LeakMonitor(settings)]
        if not stage.asynchronous:
            # There, blocks are cached when an output is taken: that belongs to no operation, so its work is not
            # counted.
            monitors.append(WorkMonitor(settings, self.followed.count_work(), self.rules))
        self.lockstep = Lockstep(self.followed, reference if with_reference else None, monitors, known)
        self.interception = Interception(self.followed, self.nodes, self._follow)
        self.progress = ProgressMonitor(self.followed, self.nodes, self.interception, stage)
        self.batch = Batch(settings.chunk_tokens, stage.running_max)
        traits, may_split = self.followed.scheduling, settings.geometry.state_block_tokens is None
        padded_tokens = 1 + settings.drafts_max if traits.pads_drafts else 1
        limits = padded_tokens, settings.tokens_max, self.nodes.provides_now
        self.line = Line(stage, settings.chunk_tokens, may_split, not traits.joins_queues, *limits)
        self.chunks = Chunks(
            settings,
            stage,
            traits.spares_the_only_one,
            self.rules,
            traits.frees_late and out_of_turn,
            traits.stops_at_junctions,
        )
        # How much a step ahead computes is known to the reference alone.
        self.chunks.checks &= with_reference or not stage.asynchronous
        self.correspondence = clients.Correspondence(client_fields(), stage.options)
        self.statistics = StatisticsCheck(
            settings.drafts_max, stage.connector, traits.in_full, not stage.options.without_statistics
        )
        self.connector_check = ConnectorCheck(self.interception, self._check, self._undecided, self._ended)
        if stage.connector:
            connector.attach(self.nodes, settings.geometry.keeps_states, self.connector_check)
        self.encoder = EncoderCheck(
            stage.encoder_budget or 0,
            stage.encoder_cache,
            self.chunks.shift,
            self.followed.population,
            self._check,
            stage.options,
        )
        self.experts: Experts | None = None
        if stage.options.returns_experts:
            self._experts_group = group_of(self.scheduler)
            self.experts = Experts(
                memory_of(self.scheduler), groups[self._experts_group].block_size_tokens, reference.choices.rules
            )
        pool = self.followed.manager.block_pool
        self.residency = Residency(pool, settings.caches) if stage.options.measures_residency else None
        self._measures_arithmetic = stage.options.measures_arithmetic and not stage.options.without_statistics
        self.paused: PauseEngine | None = None
        self.resumes_at = 0
        """After how many steps it is resumed."""
        if stage.encoder_budget is not None:
            self.encoder.listen(self.scheduler.encoder_cache_manager)
        self.structured: set[int] = set()
        """The requests whose answers follow a grammar."""
        self.answers_min: dict[int, int] = {}
        """How many answers each request must have, of those that must have some."""
        self.grammar_answers: dict[int, int] = {}
        """How many answers each grammar accepts, of those that reject one."""
        self.grammars: dict[int, Grammar] = {}
        """Those that are compiled."""
        self.proposed: dict[int, Sequence[int]] = {}
        """The drafts that are proposed for requests with a grammar, whether or not it allows them."""
        self.sessions = Sessions(settings)
        self.pooling: set[int] = set()
        """The requests that are answered by what their prompts are."""
        self.submitted: dict[int, clients.Rest] = {}
        """What each request was submitted with."""
        self.in_flight: deque[Sent] = deque()
        """The steps whose output the scheduler does not have yet, in order."""
        self.set_back: dict[int, SetBack] = {}
        """The requests that a failed load set back with the output that was taken last."""
        self.reusing: Mapping[int, int] = {}
        """The other requests that have blocks of it: how many tokens come before the first of them."""
        self.unfounded: Mapping[int, Sequence[int]] = {}
        """By request that was preempted since its step, what that step answers that follows from a failed load."""
        self.scheduled: Mapping[int, int] = {}
        """Who was scheduled in the last step, and how many tokens of each."""
        self.found: Divergence | None = None
        self.steps = self.collected = 0

    @property
    def waiting(self) -> WaitFor | None:
        """Which request waited for which when a hang was found."""
        return self.progress.waiting

    def candidates(self, kind: type[SchedulerOperation]) -> Sequence[int]:
        """See ``kvgate.gate.level.World.candidates``."""
        if issubclass(kind, Submit):
            return self.followed.population.candidates(Arrive)
        if kind is Abort:
            return self.followed.population.candidates(kind)
        if kind in (Transferred, Lost):
            return self.nodes.may_end()
        if kind is GrammarReady:
            return sorted(self.progress.grammars)
        if kind in (Continue, Close):
            return self.sessions.open_to_parts(self.followed.population.alive)
        return [0] if kind is not Collect or self.in_flight else []

    def perform(self, operation: SchedulerOperation) -> Divergence | None:
        """Perform one operation, if it stands for a legal one, and check it."""
        return self._checked(lambda: self._perform(operation))

    def _checked(self, action: Callable[[], None]) -> Divergence | None:
        try:
            with self._blamed():
                action()
                self.interception.flush()
                if self.stage.connector:
                    self.connector_check.rest()
        except Stop as stop:
            self.found = stop.found
        return self.found

    def _perform(self, operation: SchedulerOperation) -> None:
        if isinstance(operation, Submit):
            self._submit(operation)
        elif isinstance(operation, Continue):
            self._send_part(operation)
        elif isinstance(operation, Close):
            self._close_session(operation)
        elif isinstance(operation, Step):
            self._step(operation.replies)
        elif isinstance(operation, Abort):
            self._abort(operation)
        elif isinstance(operation, Transferred):
            self._transferred(operation)
        elif isinstance(operation, Lost):
            self._lose(operation)
        elif isinstance(operation, GrammarReady):
            self._grammar_ready(operation)
        elif isinstance(operation, ResetCache):
            self._reset(operation)
        elif isinstance(operation, ResetEncoder):
            self._reset_encoder()
        elif isinstance(operation, PauseEngine):
            self._pause_engine(operation)
        elif isinstance(operation, Collect) and self.in_flight:
            self._collect()

    def close(self) -> list[Divergence]:
        """Abort every request, end every transfer that ends, take steps until all of it is reported; check what
        remains."""
        self._resume()
        endings: list[SchedulerOperation] = [Abort(number) for number in self.followed.population.alive]
        endings += [Collect() for _ in self.in_flight]
        for ending in (*endings, Step(), *map(Transferred, self.nodes.under_way()), Step(), Step()):
            if self.perform(ending):
                break
        while self.in_flight and not self.found:
            self.perform(Collect())
        found = self.found or self._checked(self._shut_down)
        if found:
            return [found]
        if not self.followed.population.alive:
            return self.lockstep.close(counts=not self.stage.options.without_statistics)
        # What does not end by itself must not be ended by the gate: it is checked as it is.
        return [
            Divergence(len(self.lockstep.performed), None, monitor.name, difference)
            for monitor in self.lockstep.monitors
            for difference in monitor.at_rest(self.followed)
        ]

    # What the block manager does

    def _follow(self, operation: Operation, answered: Answer, ahead: bool = False) -> None:
        """The block manager did something: the reference does it too, and everything is checked.

        ``ahead``: the worker did, and the scheduler does not know of it yet.
        """
        if isinstance(operation, Sample) and self.stage.asynchronous and not ahead:
            self._learn(operation)
            return
        if isinstance(operation, Transferred):
            self._check_over(operation.request)
        elif isinstance(operation, Preempt):
            self._take_out_of_step(operation.request)
            self.encoder.preempted(operation.request)
            self.nodes.preempted(operation.request)
            if self.stage.options.second_runner:
                self.batch.anew.add(operation.request)
        elif isinstance(operation, Rewind):
            self.encoder.rewound(operation.request)
        elif isinstance(operation, Admit):
            self.encoder.asked_for(operation.request)
        population = self.followed.population
        self._expect_legal(operation, population)
        if not ahead:
            self._expect_legal(operation, self._known)
        padded = self.followed.padded_next()
        if padded and isinstance(operation, Admit):
            self.chunks.offered(operation.request, padded if isinstance(answered, Granted) else 0)
        if not ahead:
            limits = self.progress.limits_tokens
            self._check("chunks", self.chunks.observe(operation, answered, self._known, limits))
        self.correspondence.observe(operation, answered, population)
        self.statistics.observe(operation, answered, population)
        if self.stage.connector:
            self.connector_check.observe(operation, answered, population)
        self.followed.note_answer(answered)
        divergence = (self.lockstep.run_ahead if ahead else self.lockstep.perform)(operation)
        if divergence is not None:
            raise Stop(divergence)
        if isinstance(operation, Preempt) and self.stage.connector and self.followed.scheduling.drops_answers:
            self._drop_answers(operation.request)
        self._check("line", self.line.observe(operation, answered))

    def _expect_legal(self, operation: Operation, population: Population) -> None:
        if population.resolve(operation) != operation:
            self._stop("scheduler", Difference("KV-SYS-02", "the scheduler", "a legal operation", str(operation)))

    def _learn(self, operation: Operation) -> None:
        """The scheduler has taken an answer, or sent a step: nothing new to those who look at the worker."""
        if self.lockstep.reference is not None:
            self._expect_legal(operation, self._known)
        divergence = self.lockstep.learn(operation)
        if divergence is not None:
            raise Stop(divergence)

    def _check_over(self, number: int) -> None:
        """Blocks are held until the transfer is over."""
        if number in self.nodes.under_way():
            expected = "its blocks held until the transfer is over"
            self._stop("scheduler", Difference("KV-OP-25", f"request {number}", expected, "freed before"))
        self.nodes.reported.pop(number, None)

    def _take_out_of_step(self, number: int) -> None:
        """With priorities, a request that this step already scheduled can be preempted: then it is not part of the
        step."""
        for population in (self.followed.population, self.lockstep.population):
            if number in population.alive:
                population.withdraw(number)

    @property
    def _known(self) -> Population:
        """The requests as the scheduler knows them: where steps are asynchronous, answers in flight are not."""
        return self.lockstep.population

    def _undecided(self, number: int) -> None:
        """The connector does not know yet what it offers to a request."""
        self.line.undecided(number)
        self.chunks.undecided.add(number)

    def _ended(self, number: int, is_read: bool) -> None:
        """A request ended, and the connector knows: its blocks may stay held."""
        self.interception.settle_look_up()
        request = self.followed.population.alive.get(number)
        if is_read:
            assert request is not None, "who is read has ended just now"
            # Another node computes the last token itself, if it is an answer; what was computed after it is not read.
            last = self.followed.request(number).num_tokens - (number not in self.pooling)
            request.tokens_computed = min(request.tokens_computed, last)
            request.drafts_in_flight = 0
            self._follow(Finish(number, sends=True), Done())
        elif request is not None and request.status is Status.LOADING:
            self._follow(Abort(number), Done())

    def _stop(self, by: str, difference: Difference) -> NoReturn:
        raise Stop(Divergence(len(self.lockstep.performed), None, by, difference))

    def _check(self, detector: str, found: Difference | None) -> None:
        if found is None:
            return
        divergence = Divergence(len(self.lockstep.performed), None, detector, found)
        if not (self.passes_known_hangs and goes_on(divergence, self)):
            self._stop(detector, found)
        self.progress.forget()

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        """An exception of the scheduler is a finding; one of the gate is a fault of the gate."""
        try:
            yield
        except Stop:
            raise
        except Exception as error:
            if is_ours(error):
                raise
            name, self.lockstep.raised = type(error).__name__, error
            self._stop("scheduler", Difference("KV-SYS-01", name, "an answer", f"{name}: {error}"))

    # Operations

    def _submit(self, operation: Submit) -> None:
        arrival = self.followed.population.resolve(operation.arrival)
        if not isinstance(arrival, Arrive):
            return
        number, submit = arrival.request, evolve(operation, arrival=arrival)
        if isinstance(submit, Serve) and submit.resumable and self._may_be_session(submit):
            limit = min(submit.prompt_tokens + submit.answers_max, self.settings.tokens_max)
            self.sessions.open[number] = Session(submit, limit)
        elif isinstance(submit, Serve):
            submit = evolve(submit, resumable=False)
        if isinstance(operation, Serve) and operation.embedded:
            arrival = evolve(arrival, prompt=tuple(Run(EMBEDDED + run.first, run.length) for run in arrival.prompt))
        arguments = arguments_of(self.settings, submit)
        request, self.submitted[number] = request_of(arguments), given(arguments)
        if self.stage.connector:
            self.nodes.expect(number, submit)
        self.followed.enter(number, request)
        self._follow(arrival, Done())
        self.line.submitted(number, submit)
        self.correspondence.submitted(number)
        self.scheduler.add_request(request)
        if self.stage.connector:
            self.connector_check.submitted(number, self.followed.scheduling.announces_requests)
        limit_tokens = min(submit.prompt_tokens + submit.answers_max, self.settings.tokens_max)
        structured = isinstance(submit, Serve) and submit.structured
        self.structured |= {number} if structured else set()
        self.pooling |= {number} if isinstance(submit, Serve) and submit.pools else set()
        self.answers_min[number] = submit.answers_min if isinstance(submit, Serve) else 0
        if isinstance(submit, Serve) and submit.grammar_answers is not None:
            self.grammar_answers[number] = submit.grammar_answers
        self.progress.entered(number, limit_tokens, structured)

    def _abort(self, operation: Abort) -> None:
        legal = self.followed.population.resolve(operation)
        if isinstance(legal, Abort):
            # Clients also abort requests that have ended: the scheduler knows some of them, and others not any more.
            ended = [number for number in self.submitted if self.followed.is_over(number)]
            known = [number for number in ended if name_of(number) in self.scheduler.requests]
            self._end([legal.request], [legal.request, *ended[-1:], *known[:1]])
            self.progress.grammars.discard(legal.request)

    def _end(self, expected: Sequence[int], asked: Sequence[int] | None) -> None:
        """Have requests aborted; None: all."""
        clients_of = sorted((number, clients.client_of(number)) for number in expected)
        ended = sorted(abort(self.scheduler, asked))
        if ended != clients_of:
            self._stop("scheduler", Difference("KV-SYS-02", "requests aborted", str(clients_of), str(ended)))
        self.progress.forget()

    def _pause_engine(self, operation: PauseEngine) -> None:
        alive = self.followed.population.alive
        if operation.aborts:
            self._end([each for each in alive if alive[each].status is not Status.ENDING], None)
            self.progress.grammars.clear()
        self.paused, self.resumes_at = operation, self.steps + operation.steps
        pause(self.scheduler, operation.running)

    def _resume(self) -> None:
        self.paused = None
        pause(self.scheduler, None)

    def _shut_down(self) -> None:
        """The engine ends: its publisher and its connector do, too, each once."""
        self.scheduler.shutdown()
        closed = [self.publisher.closed, *([self.scheduler.connector.closed] if self.stage.connector else [])]
        if any(times != 1 for times in closed):
            self._stop("scheduler", Difference("KV-SYS-02", "publisher and connector", "shut down once", str(closed)))

    def _may_be_session(self, serve: Serve) -> bool:
        """vLLM has sessions of tokens alone."""
        return not (serve.pools or serve.embedded)

    def _send_part(self, operation: Continue) -> None:
        """The client of a session sends its next part, which begins now or waits for the one before it."""
        alive = self.followed.population.alive
        number = self.sessions.named(operation.request, alive)
        if number is None:
            return
        session, request = self.sessions.open[number], alive[number]
        if not self.sessions.take(session, request, operation.prompt):
            return
        part = self._part(session, operation.prompt, operation.media)
        # Its tokens are hashed as a part of the session, and not for themselves.
        came = self.followed.population.arrived - 1 + self.sessions.parts / PARTS_MAX
        arguments = {**arguments_of(self.settings, part), "block_hasher": None, "arrival_time": came}
        self.scheduler.add_request(request_of(arguments))
        if request.status is Status.PAUSED:
            self._continue(number, Part(operation.prompt, operation.media, came), at_once=False)
        else:
            session.waiting.append(Part(operation.prompt, operation.media, came))
        self.progress.entered(number, session.limit_tokens, structured=False)

    def _part(self, session: Session, prompt: tuple[Run, ...], media: tuple[Media, ...]) -> Serve:
        """A part of a session, as it is submitted; or the session as a whole, if these are its items."""
        first = session.first.arrival
        return evolve(session.first, arrival=evolve(first, prompt=prompt, keys=evolve(first.keys, media=media)))

    def _continue(self, number: int, part: Part, at_once: bool) -> None:
        self._follow(Continue(number, part.prompt, part.media), Done())
        media = self.followed.population[number].keys.media
        whole = self._part(self.sessions.open[number], part.prompt, media)
        self.submitted[number] = given(arguments_of(self.settings, whole))
        self.line.continued(number, part.came, at_once)
        self.batch.anew.add(number)

    def _close_session(self, operation: Close) -> None:
        number = self.sessions.named(operation.request, self.followed.population.alive)
        if number is not None:
            self.sessions.open[number].waiting.append(None)
            last = evolve(self.sessions.open[number].first, arrival=Arrive(number, (Run(0, 1),)), resumable=False)
            paused = self.followed.population[number].status is Status.PAUSED
            self.scheduler.add_request(request_of(arguments_of(self.settings, last)))
            if paused and number in self.followed.population.alive:
                where = f"session {number}, closed between two parts"
                self._stop("scheduler", Difference("KV-LEAK-01", where, "it has ended", "it keeps its blocks"))
            self.progress.forget()

    def _pause(self, number: int, sampled: Sequence[int], books: finish_check.Books) -> None:
        """A part of a session has ended; if the next one has come, it begins."""
        session = self.sessions.open[number]
        session.stop = STOP if STOP in sampled else session.stop
        if self.stage.asynchronous:
            self._drop_late(number, finish_check.due(books, sampled, STOP)[0])
        self._follow(Pause(number), Done())
        self.line.paused(number)
        part = session.waiting.popleft() if session.waiting else None
        if part is not None:
            self._continue(number, part, at_once=True)

    def _drop_late(self, number: int, end: int) -> None:
        """What steps in flight compute and answer after the last answer of a part counts for nothing (069)."""
        for population in (self.followed.population, self._known):
            request = population.alive[number]
            del request.tokens[end:]
            request.tokens_computed = min(request.tokens_computed, end - 1)
            request.drafts, request.drafts_in_flight, request.awaited = [], 0, []
        for sent in self.in_flight:
            sent.late.add(number)

    def _drop_answers(self, number: int) -> None:
        """A request was preempted, and what steps in flight answer it counts for nothing: it computes that again."""
        del self.followed.population[number].tokens[len(self._known[number].tokens) :]
        for population in (self.followed.population, self._known):
            population[number].drafts, population[number].awaited = [], []
        for sent in self.in_flight:
            sent.late.add(number)

    def _transferred(self, operation: Transferred) -> None:
        number = self.nodes.named(operation.request)
        if number is None:
            return
        valid = self.nodes.end(number, self.followed.manager.get_block_ids(name_of(number))[0], operation.succeeded)
        self._check("ghost", self.memory.arrive(number, valid))
        self.progress.forget()

    def _lose(self, operation: Lost) -> None:
        number = self.nodes.named(operation.request)
        if number is not None:
            self.nodes.lost.add(number)

    def _grammar_ready(self, operation: GrammarReady) -> None:
        number = one_named(operation.request, sorted(self.progress.grammars))
        if number is not None:
            self.progress.grammars.discard(number)
            self.line.compiled(number)
            self.grammars[number] = grammar_ready(self.followed.request(number), self.grammar_answers.get(number))
            self.progress.forget()

    def _reset(self, operation: ResetCache) -> None:
        # A request that holds blocks and does not run cannot be preempted: vLLM says that it does not support that.
        # Steps in flight are discarded by a separate rule, which the gate does not follow.
        held = any(number not in self._running() for number in self.followed.snapshot().tables)
        if not operation.preempts or not (held or self.stage.asynchronous):
            self.line.resets = operation.preempts
            connector, done = operation.connector and self.stage.connector, self.interception.resets
            got = reset_cache(self.scheduler, operation.preempts, operation.connector)
            self.line.resets = False
            resets, self.connector_check.resets = self.connector_check.resets, []
            asked = len(done) == 1 and len(resets) == connector
            missed = operation.connector and not (connector or self.followed.scheduling.resets_no_connector)
            expected = all((*done, *resets)) and asked and not missed
            if expected != got or not asked:
                self._stop("scheduler", Difference("KV-OP-11", "whether a reset is done", str(expected), str(got)))
            done.clear()
            if any(resets):
                self.statistics.connector = evolve(self.statistics.connector, reset=True)
            self.progress.forget()

    def _reset_encoder(self) -> None:
        """What steps in flight compute is not reset."""
        if self.stage.encoder_budget is not None and not self.in_flight:
            before = self.encoder.resets
            self.scheduler.reset_encoder_cache()
            if self.encoder.resets != before + 1:
                got = f"{self.encoder.resets - before} times"
                self._stop("encoder", Difference("KV-OP-11", "the encoder's cache is reset", "once", got))
            self.progress.forget()

    def _running(self) -> set[int]:
        return {number_in(request.request_id) for request in self.scheduler.running}

    # Steps

    def _step(self, replies: tuple[Reply, ...]) -> None:
        self.steps += 1
        if len(self.in_flight) >= self._in_flight_max():
            self._collect()
        self.interception.begin()
        self.line.begin(self.paused)
        self.chunks.begin(self._known, self.paused is not None and self.paused.running)
        self.encoder.begin()
        self.connector_check.begin()
        self.chunks.cut, self.chunks.whole = self.encoder.cut, self.encoder.whole
        output = self.scheduler.schedule()
        self.interception.flush()
        if self.stage.connector:
            self.connector_check.scheduled(output)
        self._check_batch(output)
        if self.settings.geometry.fences:
            self._follow(Dispatch(), self.subject.copies(output))
        elif self.stage.asynchronous:
            self._learn(Dispatch())
        self.memory.dispatched()
        self.scheduled = scheduled = {number_in(name): count for name, count in output.num_scheduled_tokens.items()}
        self._check("scheduler", bookkeeping_check.early(self.progress.grammars, scheduled))
        if scheduled and self.paused is not None and self.paused.running:
            self._stop("scheduler", Difference("KV-SYS-02", "a paused engine", "computes nothing", str(scheduled)))
        spoilt, invalid = spoilt_by(self.nodes, self.scheduler, scheduled, self.in_flight)
        # Where steps are asynchronous, the next one continues with the worker's answer, even if that is wrong.
        computed = [number for number in scheduled if self.stage.asynchronous or number not in spoilt]
        alive = self.followed.population.alive
        proposed = {number: tuple(alive[number].drafts) for number in scheduled if number in alive}
        starts = {number: alive[number].tokens_computed - scheduled[number] for number in scheduled if number in alive}
        sampled = self._answer([number for number in computed if number not in self.pooling], replies)
        if self.experts:
            for number, start in starts.items():
                tokens = alive[number].tokens[: -1 if number in sampled else None]
                self.experts.computed(self._table(number), start, tokens[start : start + scheduled[number]])
        pooled = {number for number in self.pooling.intersection(computed, alive) if alive[number].answers_next}
        lives = {number: alive[number].preemptions for number in scheduled if number in alive}
        names = tuple(output.num_scheduled_tokens)
        self.in_flight.append(Sent(output, names, sampled, pooled, spoilt, invalid, proposed, lives))
        if not self.stage.asynchronous:
            self._collect()
        follows = self.lockstep.reference is not None or not self.in_flight
        self._check("scheduler", bookkeeping_check.check(self._known.alive, self.scheduler.requests, follows))
        drains = self.paused is not None and self.line.holders_first
        holders = [number for number in alive if any(self.followed._tables(number))] if drains else []
        if not self.in_flight:
            unfinished = self.scheduler.get_num_unfinished_requests()
            self._check("scheduler", bookkeeping_check.unfinished(alive, unfinished, self.paused, holders))
        self._check("chunks", self.chunks.end(self._known, self.progress.limits_tokens))
        if not self.in_flight:
            self.encoder.rest()
        busy = sum(bool(sent.scheduled) for sent in self.in_flight)
        waits = self.paused is not None and not (self._running() or set(holders) - set(self.nodes.under_way()))
        if self.paused is not None and (self.paused.running or waits):
            # Nothing can make progress before the engine is resumed, or a load ends.
            self.progress.forget()
        else:
            self.progress.stopped = alive.keys() - set(holders) if self.paused is not None else frozenset()
            self._check("progress", self.progress.observe(scheduled, len(sampled) + len(pooled), busy))
        if self.paused is not None and self.steps >= self.resumes_at:
            self._resume()

    def _table(self, number: int) -> Sequence[int]:
        """The blocks of a request in the group by whose slots experts are kept."""
        table: Sequence[int] = self.followed.manager.get_block_ids(name_of(number))[self._experts_group]
        return table

    def _held(self, numbers: Iterable[int]) -> dict[int, tuple[Sequence[int], Sequence[int]]]:
        """The blocks and the tokens of requests, of those that did not end yet."""
        alive = self.followed.population.alive
        return {number: (self._table(number), list(alive[number].tokens)) for number in numbers if number in alive}

    def _in_flight_max(self) -> int:
        return self.stage.in_flight_max if self.stage.asynchronous else 1

    def _collect(self) -> None:
        """The worker has computed the oldest step in flight, and the scheduler takes its output."""
        sent = self.in_flight.popleft()
        ended = [number for number in map(number_in, sent.scheduled) if self.followed.is_over(number)]
        self._check("ghost", self.memory.compute(sent.spoilt, ended))
        failing = self._rewind(sent)
        alive_now = self.followed.population.alive
        self.unfounded = {
            number: sent.sampled[number]
            for number in sent.sampled.keys() & sent.spoilt.keys() & alive_now.keys()
            if alive_now[number].preemptions > sent.lives[number]
        }
        holders = [number for number in alive_now if sent.invalid and number not in failing]
        self.reusing = reusing(sent, holders, self.nodes, self.scheduler)
        if self.stage.asynchronous and self.lockstep.reference is not None:
            self.lockstep.reference.returned(list(map(number_in, sent.scheduled)))
        signals = self.nodes.take_signals() if self.stage.connector else None
        if signals:
            signals.invalid |= sent.invalid
        answered = {number: self.scheduler.requests.get(name_of(number)) for number in sent.answered}
        answered = {number: each for number, each in answered.items() if each and not each.is_finished()}
        before = {number: self._books(request) for number, request in answered.items()}
        alive = {number_in(name): each for name, each in self.scheduler.requests.items() if not each.is_finished()}
        for number in signals.received if signals else ():
            self.line.arrived(number)
        paused = [number for number in before if self._pauses(number, before[number], sent.sampled[number])]
        self.collected += 1
        counted = connector_statistics(self.collected) if self.stage.connector else None
        answered_by_worker = answer(sent.scheduled, sent.sampled, signals, counted, sent.pooled)
        before_taken = contents(answered_by_worker.kv_connector_output)
        for number, books in before.items() if self.stage.asynchronous else ():
            self.interception.answers[number] = self._taken(number, sent.sampled[number], books)
        held = self._held([*before, *sent.pooled]) if self.experts else {}
        outputs = self.scheduler.update_from_output(sent.output, answered_by_worker)
        self.interception.flush()
        if self.stage.connector:
            self.connector_check.returned(answered_by_worker.kv_connector_output, before_taken)
        for number in paused:
            self._pause(number, sent.sampled[number], before[number])
        # The next part may have begun: of a session, its tokens are compared with all others' when the step is over.
        others = ((number, each) for number, each in answered.items() if number not in paused)
        after = ((number, each.num_tokens, each.is_finished()) for number, each in others)
        self._check("scheduler", finish_check.check(before, sent.sampled, STOP, after))
        unanswered = (each for each in alive if each not in before and each not in sent.pooled)
        given_up = [each for each in unanswered if alive[each].is_finished()]
        failed = given_up if self.stage.failed_loads_end else ()
        to_end = sorted(failing.intersection(alive)) if self.stage.failed_loads_end else []
        if to_end != sorted(given_up):
            self._stop("scheduler", Difference("KV-SYS-02", ENDED, str(to_end), str(sorted(given_up))))
        if self.stage.asynchronous and sent.spoilt:
            follows = self.lockstep.reference is not None or not self.in_flight
            self._check("scheduler", bookkeeping_check.check(self._known.alive, self.scheduler.requests, follows))
        self._check_outputs(sent, before, failed, outputs, answered_by_worker, held)
        if self.settings.drafts_max and not self.stage.asynchronous:
            population = self.followed.population
            proposed = {number: population[number].drafts for number in sent.sampled if number in population.alive}
            # A draft layer drafts for the whole batch: after a chunk of a prompt too, and for requests that have ended
            # by now.
            batch = [number for number in map(number_in, sent.scheduled) if number not in {*sent.spoilt, *self.pooling}]
            drafted = dict.fromkeys(batch, range(self.settings.drafts_max))
            if not proposed or any(proposed.values()) or any(self.proposed.values()):
                # Where a draft layer drafts nothing, there is nothing to update.
                self.scheduler.update_draft_token_ids(drafts({**drafted, **proposed, **self.proposed}))
            for number, tokens in proposed.items():
                self.chunks.offered(number, len(tokens))

            self.proposed.clear()
        if self.in_flight and self.in_flight[0].output.pending_structured_output_tokens and self.settings.drafts_max:
            self._complete(sent.scheduled, self.in_flight[0])

    def _complete(self, batch: Sequence[str], sent: Sent) -> None:
        """A step was sent before the drafts that it verifies were known, and a grammar is to reject some of them.

        Drafts come for the whole ``batch`` that was computed before it.
        """
        requests, places = self.scheduler.requests, sent.output.scheduled_spec_decode_tokens
        expected, known = {name: list(tokens) for name, tokens in places.items()}, dict[int, Sequence[int]]()
        for name in batch:
            number = number_in(name)
            known[number] = sent.drafts.get(number, (1,))
            if name in places and name in requests and not requests[name].is_finished():
                drafts_of = known[number][: len(places[name])]
                allowed = grammar.allowed(drafts_of) if number in self.structured else len(drafts_of)
                if allowed < len(places[name]):
                    sent.rejected[number] = len(places[name]) - allowed
                expected[name] = [*drafts_of[:allowed], *[REJECTED] * sent.rejected.get(number, 0)]
        self.scheduler.update_draft_token_ids_in_output(drafts(known), sent.output)
        got = sent.output.scheduled_spec_decode_tokens, sent.output.num_invalid_spec_tokens
        due = expected, {name_of(number): count for number, count in sent.rejected.items()}
        if got != due:
            self._stop("batch", Difference("KV-SYS-03", "drafts that came after their step", str(due), str(got)))

    def _pauses(self, number: int, books: finish_check.Books, sampled: Sequence[int]) -> bool:
        """Whether an answer ends a part of a session, and not the session."""
        session = self.sessions.open.get(number)
        if session is None or session.waiting == deque([None]):
            return False
        tokens, ends = finish_check.due(books, sampled, STOP)
        return ends and not finish_check.is_rejected(books, sampled[: tokens - books.tokens])

    def _check_outputs(
        self,
        sent: Sent,
        before: Mapping[int, finish_check.Books],
        failed: Sequence[int],
        outputs: Any,
        answered: Any,
        held: Mapping[int, tuple[Sequence[int], Sequence[int]]],
    ) -> None:
        """What a step's output sends to clients, the connector, and the readers of events and statistics."""
        due, reads = clients.due(before, sent.sampled, STOP, failed), self.nodes.sending
        due |= {number: clients.ClientOutput((), clients.STOPPED) for number in sent.pooled}
        due = {
            number: self.correspondence.of_answer(number, said, number in reads, number in sent.pooled)
            if number in before or number in sent.pooled
            else self.correspondence.of_failure(number, said)
            for number, said in due.items()
        }
        for number in due:
            if number in self.sessions.open:
                said, earlier = due[number], self.sessions.open[number].stop
                due[number] = evolve(said, stop=self.rules.ask(clients.reported_stop, said.stop, earlier))
        for number, (table, tokens) in held.items():
            if self.experts and due[number].ended:
                # Of the last answers, those after the end do not count.
                end = before[number].tokens + len(due[number].tokens) if number in before else len(tokens)
                returned = self.experts.due(table, tokens[:end])
                due[number] = evolve(
                    due[number], rest=clients.without_nothing({**due[number].rest, "routed_experts": returned})
                )
        accepted = {number: compiled.take() for number, compiled in self.grammars.items()}
        self._check("clients", grammar.check({number: said.tokens for number, said in due.items()}, accepted))
        reported = parse_client_outputs(outputs)
        if not self.followed.scheduling.in_full:
            # What else other releases send to clients is not known yet.
            due = {number: evolve(said, rest={}) for number, said in due.items()}
            reported = [(client, number, evolve(said, rest={})) for client, number, said in reported]
        self._check("clients", clients.check(due, reported))
        if self.followed.scheduling.in_full:
            self._check("clients", clients.check_all(self.correspondence.ended(), *parse_outputs_to_all(outputs)))
        events, self.interception.events = self.interception.events, []
        if self.stage.connector:
            events += map(msgspec.msgpack.encode, self.connector_check.events)
        submitted = (each.get("lora_request") for each in self.submitted.values())
        adapters = {lora[:2] for lora in submitted if isinstance(lora, tuple)}
        self._check("statistics", published(events, self.publisher.take(), adapters))
        drafted = sent.output.scheduled_spec_decode_tokens
        drafts = {
            number: (count, count - sent.rejected.get(number, 0), len(sent.sampled[number]) - 1)
            for number, count in ((each, len(drafted.get(name_of(each), ()))) for each in before)
        }
        pool, counted = self.followed.manager.block_pool, answered.kv_connector_output
        passed_on = {
            "cudagraph_stats": answered.cudagraph_stats,
            "perf_stats": performance_of(self.scheduler, sent.output) if self._measures_arithmetic else None,
            "kv_connector_stats": counted
            and {**counted.kv_connector_stats.data, **clients.connector_counted(self.collected)},
            "kv_cache_eviction_events": self.residency.take() if self.residency and self.statistics.publishes else (),
        }
        # What a pinned tier keeps is free to any request.
        tier = getattr(pool, "pinned_tier", None)
        waiting = 0 if tier is None else tier.queue.num_free_blocks
        blocks = self.settings.blocks - 1, pool.get_num_free_blocks() + waiting
        found = self.statistics.check(statistics_in(outputs), self.line.lengths, blocks, drafts, passed_on)
        self._check("statistics", found)

    def _books(self, request: Any) -> finish_check.Books:
        tokens_max = min(request.num_prompt_tokens + request.max_tokens, self.settings.tokens_max)
        missing = self.answers_min.get(number_in(request.request_id), 0) - request.num_output_tokens
        compiled = self.grammars.get(number_in(request.request_id))
        return finish_check.Books(request.num_tokens, tokens_max, max(0, missing), compiled.left if compiled else None)

    def _check_batch(self, output: Any) -> None:
        """What is sent to the worker is what was granted, and no request that fits was left out."""
        population = self.followed.population
        for number in {*self.encoder.cut, *self.encoder.whole}.intersection(population.alive):
            if population[number].status is Status.WAITING:
                self.line.held_up()
        self._check("line", self.line.end(sum(output.num_scheduled_tokens.values()), population))
        due = due_in(output, self.scheduler, population, self.submitted, sure=not self.stage.asynchronous)
        due = {number: self._sent_besides(each) for number, each in due.items()}
        ended = ended_in(output)
        lives = [number for number in ended if number not in self.submitted or not self.followed.is_over(number)]
        strays = [*strays_in(output), *(f"finished_req_ids of request {number}" for number in lives)]
        self._check("batch", self.batch.step(parse_scheduler_output(output), due, ended, strays))
        media, forgotten = media_in(output)
        self.encoder.step(parse_scheduler_output(output), media, forgotten, self._announced_items(output))
        reported = parse_whole_step(output, len(self.settings.geometry.groups))
        together = self.interception.granted(due)
        follows = {number for number in self.structured.intersection(due) if population[number].answers_next}
        rest: dict[str, object] = {}
        if any(number in sent.sampled and number not in sent.late for sent in self.in_flight for number in follows):
            rest["pending_structured_output_tokens"] = True
        if self.stage.connector:
            rest["kv_connector_metadata"] = self.scheduler.connector.metadata
        if self.stage.options.encoder_connector:
            rest["ec_connector_metadata"] = self.scheduler.ec_connector.metadata
        reported = evolve(reported, masked=masked(self.scheduler, output))
        sent = parse_scheduler_output(output)
        in_order = tuple((number, sent[number].drafts) for number in due if number in follows)
        together = evolve(together, follows_grammar=bool(follows), masked=in_order, rest=rest)
        self._check("batch", self.batch.together(reported, together))
        self._check("batch", self.batch.remembered(list(population.alive)))

    def _sent_besides(self, due: Due) -> Due:
        """What a step sends of a request, with what it sends to a worker of this kind besides."""
        if self.stage.options.second_runner and due.every is not None:
            due = evolve(due, rest={**due.rest, "prefill_token_ids": list(due.every)})
        return evolve(due, more=self.stage.options.pipeline and not self.stage.asynchronous)

    def _announced_items(self, output: Any) -> list[tuple[int, int]]:
        """The items of which the encoder's connector was given the place in a step, by request and place."""
        if not self.stage.options.encoder_connector:
            return []
        connector = self.scheduler.ec_connector
        shown, loads = connector.shown, connector.loads
        connector.shown, connector.loads = [], []
        if [id(each) for each in shown] != [id(output)]:
            where = "the step, as the connector of the encoder is shown it"
            self._stop("encoder", Difference("KV-SYS-03", where, "itself, once", f"{len(shown)} showings"))
        return [(number_in(name), place) for name, place in loads]

    def _rewind(self, sent: Sent) -> set[int]:
        """Requests that computed after what a load failed to bring compute again, or end for that: these requests."""
        failed = {number: valid for number, valid in self.nodes.failed.items() if self.nodes.signals_end_of(number)}
        for number in failed:
            self.nodes.failed.pop(number)
        lives = {number: each.preemptions for number, each in self.followed.population.alive.items()}
        set_back = set_back_by(sent, self.in_flight, self.nodes, self.scheduler, lives)
        failed |= set_back
        self.set_back = {
            number: SetBack(each.tokens_computed - self._tokens_in(sent, number), tokens_awaited(each.awaited))
            for number, each in self._known.alive.items()
            if number in set_back
        }
        for population in (self.followed.population, self.lockstep.population):
            for number in set_back.keys() & population.alive.keys() if self.stage.failed_loads_end else ():
                # It ends without an answer: no draft of its step is in flight any more.
                population[number].drafts_in_flight = 0
        for number, tokens in failed.items():
            request = self.followed.population.alive.get(number)
            if request is not None and request.status is not Status.ENDING and not self.stage.failed_loads_end:
                # What was answered since then is worth nothing, and the scheduler has not taken it.
                del request.tokens[len(self._known[number].tokens) :]
                # An earlier failure, of blocks that it shares, may have left less.
                self._follow(Rewind(number, min(tokens, request.tokens_computed)), Done())
        return {*failed}

    @staticmethod
    def _tokens_in(sent: Sent, number: int) -> int:
        """How many tokens of a request a step computes."""
        return int(sent.output.num_scheduled_tokens.get(name_of(number), 0))

    def _taken(self, number: int, sampled: Sequence[int], books: finish_check.Books) -> Sample:
        """What the scheduler takes of an answer that the worker had before."""
        answered = Sample(number, len(sampled) - 1, sampled[-1], self.settings.drafts_max)
        return finish_check.as_taken(answered, sampled, books, STOP)

    def _answer(self, scheduled: list[int], replies: tuple[Reply, ...]) -> dict[int, list[int]]:
        """What the model answers to those whose tokens are all computed: the drafts that hold, and a token."""
        population = self.followed.population
        sampled = {}
        ready = [number for number in scheduled if number in population.alive and population[number].answers_next]
        for number, reply in zip(ready, cycle(replies), strict=False):
            request = population[number]
            accepted = 0 if PADDING in request.drafts else min(reply.accepted, request.drafts_in_flight)
            if number in self.structured and self.stage.asynchronous:
                accepted = min(accepted, grammar.allowed(request.drafts))
            token = STOP if reply.ends else reply.token
            # Where steps are asynchronous, the scheduler counts on as many drafts as there can be.
            most = self.settings.drafts_max
            proposed = most if self.stage.asynchronous else min(reply.drafts, most)
            sampled[number] = [*request.drafts[:accepted], token]
            if number in self.structured and not self.stage.asynchronous:
                # The draft layer knows of no grammar.
                self.proposed[number] = range(token + 1, token + 1 + proposed)
                proposed = grammar.allowed(self.proposed[number])
            answered = Sample(number, accepted, token, proposed)
            books = self._books(self.scheduler.requests[name_of(number)])
            taken = finish_check.as_taken(answered, sampled[number], books, STOP)
            if number in self.sessions.open:
                # Its next part begins after the last answer.
                taken = evolve(taken, beyond=0)
            if self.followed.scheduling.caches_answers and not self.stage.asynchronous:
                self.interception.answers[number] = taken
            else:
                # Where steps are asynchronous, the worker continues with all that it answered.
                self._follow(answered if self.stage.asynchronous else taken, Done(), ahead=self.stage.asynchronous)
        return sampled
