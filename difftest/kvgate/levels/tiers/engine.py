"""An engine with a second tier: vLLM's scheduler and its connector, a worker that computes nothing, and checks.

The worker keeps the block tables that steps send it, writes what they compute into ghost memory, and checks what their
tokens read. Where steps are asynchronous it computes a step when it is dispatched, and the scheduler takes its output
when the next is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from hashlib import blake2b
from itertools import cycle, takewhile
from typing import Any, TypeAlias

from attrs import define, evolve, frozen

from kvgate.findings.tier_state import block_tables, blocks_held
from kvgate.kernel.blame import is_ours
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.errors import UsageError
from kvgate.levels.scheduler.adapter.arrivals import STOP, new_request
from kvgate.levels.scheduler.adapter.names import name_of, number_in
from kvgate.levels.scheduler.adapter.subjects import SUBJECTS
from kvgate.levels.scheduler.adapter.worker import abort, drafts, reset_cache
from kvgate.levels.scheduler.operations import ResetCache, Serve
from kvgate.levels.tiers.adapter.connectors import Connector, HostTier, result_of
from kvgate.levels.tiers.adapter.own import (
    ABORTS,
    ASYNCHRONOUS,
    DRAFTS_AHEAD,
    FAILED,
    FAILED_ENDS,
    HELD_UP,
    LOST,
    OUT_OF_ORDER,
    PREEMPTIONS,
    RESETS,
    WAITED_FOR,
    Chosen,
)
from kvgate.levels.tiers.files import Folder, Key
from kvgate.levels.tiers.memory import Claim, Computed, Failure, Misread, Number, StepUse, TierMemory
from kvgate.levels.tiers.operations import OWN, EndFiles, EndJobs, LoseJob, Operation, TierStage
from kvgate.levels.tiers.progress import wait_for
from kvgate.monitors.leak import LeakMonitor
from kvgate.monitors.slot_memory import first_read, states_written
from kvgate.monitors.wait_graph import Reason, Wait, WaitFor
from kvreference.operations import Abort, Admit, Preempt, Reset, Sample, Schedule
from kvreference.operations import Operation as OfManager
from kvreference.scheduler.operations import Reply, Step
from kvreference.settings import Settings

IDLE_STEPS_MAX = 40
"""After how many steps in which nothing happens, while no job is under way, requests are said to hang."""
AT_REST_STEPS = 4
"""How many steps an engine may take after its last request until nothing is held, and those that it asks for."""
Wrong: TypeAlias = Mapping[str, Misread]
"""By request, what a step reads that is not what it is to read."""


class Log:
    """What was asked of the block manager, in place of a lockstep: no reference follows."""

    def __init__(self, system: Any) -> None:
        self.system = system
        self.performed: list[OfManager] = []
        self.requests = 0
        """How many have come."""
        self.reference = self.raised = None
        self.answers = None, None
        self.monitors: list[Any] = []
        self.known = _NothingKnown()
        self.glances, self.alone = False, 0
        self._digest = blake2b(digest_size=8)

    def note(self, operation: OfManager) -> None:
        """An operation of the block manager."""
        self.performed.append(operation)
        self._digest.update(repr(operation).encode())

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    @property
    def population(self) -> Any:
        return self.system.population


class _NothingKnown:
    first: Mapping[str, Any] = {}
    findings: tuple[Any, ...] = ()


@define
class _Row:
    """A request of the worker's batch."""

    table: list[list[int]]
    drafts: Sequence[int] = ()


@frozen
class _InFlight:
    """A step whose output the scheduler has not taken."""

    output: Any
    result: Any
    sampled: Mapping[str, list[int]]
    first: Mapping[str, int]
    """From which token on it computes each request."""
    worthless: Wrong
    """What it reads that a failed load left, of which the scheduler does not know yet."""
    failures: Sequence[Failure]
    """The failed loads that it reports."""


class TierEngine:
    """One run."""

    def __init__(
        self,
        settings: Settings,
        stage: TierStage,
        subject: str,
        before: TierEngine | None = None,
        folder: Folder | None = None,
    ) -> None:
        """``before`` is an engine over the same folder: what its block hashes stand for stays known."""
        in_whole_blocks, settings = settings, stage.matched(settings)
        self.settings, self.stage = settings, stage
        self._folder = folder
        self.subject = SUBJECTS[subject]
        self.subject.install()
        with self.subject.while_built(settings):
            self.scheduler: Any = self._build(settings, stage)
        self.followed = self.subject.followed(in_whole_blocks, self.scheduler)
        self.memory = TierMemory(settings, stage.blocks_per_chunk, left=self._left)
        if folder is not None:
            self.memory.folder, self.memory.engine = folder, folder.engines
            folder.engines += 1
        self.connector = Connector(self.scheduler, self.memory, stage)
        self.lockstep = Log(self.followed)
        if before is not None:
            self.memory.prefixes, self.memory.names = before.memory.prefixes, before.memory.names
            self.lockstep, self.lockstep.system = before.lockstep, self.followed
        self.waiting: WaitFor | None = None
        """Which request waited for what at the end, if one waited."""
        self.stops_at = ""
        """The job that never ends and that the engine waits for, in words, if it does."""
        self.found: Divergence | None = None
        self.raised: Exception | None = None
        self.set_back: dict[str, int] = {}
        """The requests that a failed load has set back: how many tokens counted as computed before."""
        self.forgotten: set[Number] = set()
        """The jobs that requests had when the connector's cache was reset."""
        self.keys_forgotten: set[Key] = set()
        """What the stores among them were to bring to a host that has tiers below."""
        self.interrupted: set[Number] = set()
        """The stores, under way or yet to begin, of requests that a reset has preempted."""
        self.preempted: set[str] = set()
        """The requests that a reset has preempted since the last step."""
        self.preempted_by_reset: set[str] = set()
        """The requests that a reset has preempted, until the step ends that schedules them again."""
        self._scheduled: set[str] = set()
        """The requests of the last step."""
        self.resets_since_step = 0
        """How often the connector's cache was reset since the last step."""
        self._leak = LeakMonitor(settings)
        self._alive: dict[str, Any] = {}
        self._named: dict[str, int] = {}
        """How many block hashes of each request have names."""
        self._tokens: dict[str, list[int]] = {}
        """What the worker knows of each request."""
        self._rows: dict[str, _Row] = {}
        self._before = StepUse()
        """What the step before uses, where steps are asynchronous."""
        self._in_flight: deque[_InFlight] = deque()
        self._seen = Chosen.seen

    def _build(self, settings: Settings, stage: TierStage) -> Any:
        """The scheduler with its connector.

        Raises:
            UsageError: a user's own connector cannot be built.
        """
        try:
            return self.subject.build(settings, stage.scheduler, HostTier(settings, stage, self._folder))
        except Exception as error:
            if stage.connector != OWN or isinstance(error, UsageError):
                raise
            said = " ".join(str(error).split())
            raise UsageError(f"the connector cannot be built: {type(error).__name__}: {said}") from error

    @property
    def alive(self) -> Collection[str]:
        """The requests that have not ended."""
        return self._alive.keys()

    @property
    def requests(self) -> Mapping[str, Any]:
        """The same, each as the scheduler knows it."""
        return self._alive

    def candidates(self, kind: type) -> Sequence[int]:
        """See ``kvgate.gate.level.World.candidates``."""
        del kind
        return [0]

    def perform(self, operation: Operation) -> Divergence | None:
        """Perform one operation, if it means anything now, and check what follows."""
        if self.stops_at:
            return self.found
        alive = list(self._alive)
        try:
            self._perform(operation)
        except Exception as error:
            if is_ours(error):
                raise
            self.raised = error
        self.stops_at = self.memory.waited_for
        if self.stops_at:
            self._seen[WAITED_FOR] += 1
            edges = (Wait(number_in(name), Reason.TRANSFER, lost=True, job=self.stops_at) for name in alive)
            self.waiting = WaitFor(tuple(edges))
        if self.memory.found is not None:
            # What is raised in the same operation comes later, and may follow from it.
            self._report("tiers", self.memory.found)
        self._check_free_queue()
        if self.raised is not None:
            got = f"{type(self.raised).__name__}: {self.raised}"
            self._report("tiers", Difference("KV-SYS-01", _where(self.raised), "an answer", got))
        return self.found

    def _check_free_queue(self) -> None:
        pool = self.scheduler.kv_cache_manager.block_pool
        free, unused = pool.get_num_free_blocks(), sum(not each.ref_cnt and not each.is_null for each in pool.blocks)
        if free != unused:
            expected = f"{unused} blocks, which no request and no job holds"
            self._report("tiers", Difference("KV-INV-03", "the free queue", expected, f"{free} blocks"))

    def _report(self, detector: str, difference: Difference) -> None:
        if self.found is None:
            self.found = Divergence(max(0, len(self.lockstep.performed) - 1), None, detector, difference)

    def _perform(self, operation: Operation) -> None:
        if isinstance(operation, Serve):
            self._submit(operation)
        elif isinstance(operation, Step):
            self._step(operation.replies)
        elif isinstance(operation, EndJobs):
            ending = self._under_way(operation)[: operation.jobs]
            before = next(self.memory.under_way(operation.loads), None)
            self._seen[OUT_OF_ORDER] += len(ending) if before not in ending else 0
            for number in ending:
                self.memory.end(number)
        elif isinstance(operation, LoseJob):
            lost = self._under_way(operation)[:1]
            self.memory.lost.update(lost)
            self._seen[LOST] += len(lost)
        elif isinstance(operation, EndFiles) and self.connector.tiering is not None:
            self.connector.tiering.answer_look_ups()
            self.connector.tiering.end_files(operation.reads, operation.jobs, operation.fail)
        elif isinstance(operation, Abort) and self._alive:
            names = list(self._alive)
            name = names[operation.request % len(names)]
            self.lockstep.note(Abort(number_in(name)))
            abort(self.scheduler, [number_in(name)])
            self._seen[ABORTS] += 1
            self._forget_ended()
        elif isinstance(operation, ResetCache) and self._may_reset(operation):
            self.lockstep.note(Reset())
            self._seen[RESETS] += operation.connector
            if operation.connector:
                self.resets_since_step += 1
                self.memory.reset_at = {name: each.num_computed_tokens for name, each in self._alive.items()}
                self.forgotten |= self.connector.jobs_of(None)
                if self.connector.tiering is not None:
                    self.keys_forgotten |= self.connector.tiering.keys_to_store()
            if operation.preempts:
                running = {request.request_id for request in self.scheduler.running}
                self.preempted |= running
                self.preempted_by_reset |= running
                self._scheduled -= running
                self.interrupted |= self.connector.jobs_of(running)
            # A connector that is asked to reset may say that it cannot.
            with suppress(NotImplementedError) if operation.connector else nullcontext():
                reset_cache(self.scheduler, operation.preempts, operation.connector)

    def _under_way(self, operation: EndJobs | LoseJob) -> list[Number]:
        """The jobs under way of a direction, from that on which an operation names."""
        jobs = list(self.memory.under_way(operation.loads))
        return jobs[operation.skips % len(jobs) :] if jobs else []

    def _may_reset(self, reset: ResetCache) -> bool:
        """Whether vLLM supports it: it preempts who runs, and says that it cannot do so with who loads.

        What is in flight it throws away by a rule of its own, which the worker here does not have.
        """
        if not reset.preempts:
            return True
        running = {request.request_id for request in self.scheduler.running}
        return not self.stage.asynchronous and all(running.issuperset(each) for each in block_tables(self))

    def _submit(self, serve: Serve) -> None:
        # A front end rejects a prompt that leaves no room for an answer.
        if len(self._alive) >= self.settings.requests_max or serve.prompt_tokens >= self.settings.tokens_max:
            return
        number = self.lockstep.requests
        self.lockstep.requests += 1
        arrival = evolve(serve.arrival, request=number)
        request: Any = new_request(self.settings, evolve(serve, arrival=arrival))
        self.lockstep.note(arrival)
        self._leak.arrived(number)
        name = name_of(number)
        self._alive[name], self._named[name] = request, 0
        self._tokens[name], self.memory.tokens[name] = [], []
        self._learn(name, list(request.prompt_token_ids), request.cache_salt)
        if self.connector.nixl is not None and serve.loads:
            self.connector.nixl.compute_elsewhere(request)
        self.scheduler.add_request(request)
        self._name_blocks(name)

    # A step

    def _step(self, replies: Sequence[Reply]) -> bool:
        """The engine takes a step, if it has any reason to; whether anything was computed, begun or ended."""
        if self.stage.asynchronous and len(self._in_flight) > 1:
            self._collect()
        if not self.scheduler.has_requests():
            self._collect_all()
            return False
        self.resets_since_step = 0
        self.preempted_by_reset -= self._scheduled
        before = set(self.memory.jobs), len(self._alive)
        output = self.scheduler.schedule()
        self.preempted.clear()
        self._note(output)
        self._in_flight.append(self._execute(output, replies))
        if not self.stage.asynchronous:
            self._collect_all()
        return bool(output.num_scheduled_tokens) or before != (set(self.memory.jobs), len(self._alive))

    def _collect_all(self) -> None:
        while self._in_flight:
            self._collect()

    def _collect(self) -> None:
        step = self._in_flight.popleft()
        before = {name: len(self._alive[name].all_token_ids) for name in step.worthless if name in self._alive}
        for failure in step.failures:
            failure.is_known = True
            failure.is_late = not self._holds_blocks(failure.request)
        computed = {name: each.num_computed_tokens for name, each in self._alive.items()} if step.failures else {}
        self.scheduler.update_from_output(step.output, step.result)
        self.set_back |= {
            name: tokens for name, tokens in computed.items() if self._alive[name].num_computed_tokens < tokens
        }
        self._judge_worthless(step, before)
        for name in step.sampled:
            if name in self._alive:
                self._take_back(name)
        for name in self._alive:
            self._name_blocks(name)
        self._forget_ended()
        if self.settings.drafts_max and not self.stage.asynchronous:
            proposed = {number_in(name): row.drafts for name, row in self._rows.items() if name in self._alive}
            if proposed:
                self.scheduler.update_draft_token_ids(drafts(proposed))

    def _take_back(self, name: str) -> None:
        """The worker forgets what the scheduler did not take, except what is in flight."""
        known = [*self._alive[name].all_token_ids]
        for step in self._in_flight:
            known += step.sampled.get(name, [])
        if known != self._tokens[name]:
            self._tokens[name] = []
            self.memory.tokens[name] = []
            self._learn(name, known, self._alive[name].cache_salt)

    def _forget_ended(self) -> None:
        for name in [name for name, request in self._alive.items() if request.is_finished()]:
            self._name_blocks(name)
            del self._alive[name]

    def _learn(self, name: str, tokens: Sequence[int], salt: object = None) -> None:
        prefixes = self.memory.tokens[name]
        for token in tokens:
            prefixes.append(self.memory.prefixes.after(prefixes[-1] if prefixes else ("salt", salt), token))
        self._tokens[name] += tokens

    def _name_blocks(self, name: str) -> None:
        """What each block hash of a request stands for."""
        request, grain, prefixes = self._alive[name], self.settings.geometry.grain_tokens, self.memory.tokens[name]
        for place in range(self._named[name], len(request.block_hashes)):
            self.memory.name(bytes(request.block_hashes[place]), prefixes[(place + 1) * grain - 1])
            self._named[name] = place + 1

    def _note(self, output: Any) -> None:
        for name in sorted(output.preempted_req_ids or ()):
            self.lockstep.note(Preempt(number_in(name)))
        came = {each.req_id: each.num_computed_tokens for each in output.scheduled_new_reqs}
        for name, tokens in output.num_scheduled_tokens.items():
            number = number_in(name)
            self.lockstep.note(Admit(number, tokens) if name in came else Schedule(number, tokens))

    def _execute(self, output: Any, replies: Sequence[Reply]) -> _InFlight:
        """What the worker does with a step: its report, and what it answers."""
        first = self._receive(output)
        self._scheduled = set(first)
        # What was dispatched before may not have ended when this step begins.
        uses = self._used(first, output)
        self.memory.in_flight = [self._before, uses]
        self._before = uses if self.stage.asynchronous else StepUse()
        sampled: dict[str, list[int]] = {}
        with self.connector.step(output, bool(first), lambda: self._prepare(output)) as reports:
            with self.connector.layers() if first else nullcontext():
                states = self._wrong_states(first)
                chains = {name: self._write(name, start, output) for name, start in first.items()}
                self._spoil(first, chains)
            replied = cycle(replies)
            for name, chain in chains.items():
                if len(chain) >= len(self._tokens[name]):
                    sampled[name] = self._answer(name, next(replied), output)
        failures = self.memory.fail(*self.connector.failed(reports[0]))
        self._seen[FAILED_ENDS if self.stage.failed_loads_end else FAILED] += len(failures)
        self._seen[ASYNCHRONOUS] += self.stage.asynchronous
        self._seen[DRAFTS_AHEAD] += self.stage.asynchronous and any(output.scheduled_spec_decode_tokens.values())
        self._seen[PREEMPTIONS] += len(output.preempted_req_ids or ())
        worthless = self._judge_reads({**self._spoil(first, chains), **states}, self.connector.brought(first))
        result = result_of(list(output.num_scheduled_tokens), sampled, reports[0])
        return _InFlight(output, result, sampled, first, worthless, failures)

    def _prepare(self, output: Any) -> None:
        """The worker clears new blocks, and then copies those of which a request is to write a part."""
        for block in getattr(output, "new_block_ids_to_zero", None) or ():
            self.memory.clear(block)
        for copy in getattr(output, "kv_cache_block_copies", None) or ():
            self.memory.copy(copy.src_block_id, copy.dst_block_id)

    def _wrong_states(self, first: Mapping[str, int]) -> Wrong:
        """What each request reads that is not the state that it continues from, before anything is written."""
        found: dict[str, Misread] = {}
        for name, start in first.items():
            for group, kind in enumerate(self.settings.geometry.groups):
                if kind.keeps_states:
                    table = self._rows[name].table[group]
                    wrong = self.memory.wrong_state(group, table, self.memory.tokens[name][:start])
                    if wrong is not None:
                        found.setdefault(name, wrong)
        return found

    def _wrong_reads(self, first: Mapping[str, int], chains: Mapping[str, list[int]]) -> Wrong:
        """What each request reads that is not its own, now that the step has what was loaded."""
        found: dict[str, Misread] = {}
        for name, start in first.items():
            for group, table in enumerate(self._rows[name].table):
                if self.settings.geometry.groups[group].keeps_states:
                    continue
                wrong = self.memory.wrong(group, table, start, chains[name])
                if wrong is not None:
                    found.setdefault(name, wrong)
        return found

    def _spoil(self, first: Mapping[str, int], chains: Mapping[str, list[int]]) -> Wrong:
        """What is computed from what a failed load left is worth nothing, and so is what is computed from that."""
        spoiled: set[str] = set()
        while True:
            wrong = self._wrong_reads(first, chains)
            new = {name: each.failure for name, each in wrong.items() if name not in spoiled and each.failure}
            if not new:
                return wrong
            for name, failure in new.items():
                for group, table in enumerate(self._rows[name].table):
                    self.memory.spoil(group, table, first[name], len(chains[name]), Computed(failure, name))
            spoiled.update(new)

    def _judge_reads(self, wrong: Wrong, brought: Mapping[str, Claim]) -> Wrong:
        """Report what was read, but for what the scheduler may still throw away, which is returned."""
        worthless = {}
        for name, each in wrong.items():
            claim = brought.get(name)
            came = claim is not None and self.memory.came(each, claim)
            if each.failure and each.failure.is_reported and not each.failure.is_known and not came:
                worthless[name] = each
            else:
                self.memory.misread(name, each, claim)
        return worthless

    def _judge_worthless(self, step: _InFlight, tokens_before: Mapping[str, int]) -> None:
        """The scheduler has to throw away what a step computed from a failed load."""
        for name, tokens in tokens_before.items():
            request = self._alive[name]
            later = sum(each.output.num_scheduled_tokens.get(name, 0) for each in self._in_flight)
            is_counted = not request.is_finished() and request.num_computed_tokens - later > step.first[name]
            if is_counted or len(request.all_token_ids) > tokens:
                self.memory.counts(name, step.worthless[name])

    def _holds_blocks(self, name: str) -> bool:
        tables = (each.req_to_blocks for each in self.scheduler.kv_cache_manager.coordinator.single_type_managers)
        return any(table.get(name) for table in tables)

    def _left(self, name: str) -> Sequence[int]:
        """How many of the first places of each group the window of a request has left; of one that has ended: with
        its last token."""
        tables = [each.get(name, ()) for each in block_tables(self)]
        if any(tables):
            return [sum(1 for _ in takewhile(lambda block: block.is_null, table)) for table in tables]
        tokens, groups = len(self.memory.tokens[name]), self.settings.geometry.groups
        return [first_read(group, tokens) // group.block_size_tokens for group in groups]

    def _used(self, first: Mapping[str, int], output: Any) -> StepUse:
        """The blocks that a step reads and writes."""
        reads: set[int] = set()
        writes: set[int] = set()
        for name, start in first.items():
            end = start + output.num_scheduled_tokens[name]
            for group, table in zip(self.settings.geometry.groups, self._rows[name].table, strict=True):
                size = group.block_size_tokens
                if group.keeps_states:
                    drafted = name in output.scheduled_spec_decode_tokens
                    places = {place for place, _ in states_written(group, start, end, drafted)}
                    writes.update(block for place, block in enumerate(table) if place in places)
                    reads.update(table[(start - 1) // size :][:1] if start else ())
                    continue
                writes.update(table[start // size : -(-end // size)])
                reads.update(table[first_read(group, start) // size : -(-end // size)])
        return StepUse(frozenset(reads), frozenset(writes))

    def _receive(self, output: Any) -> dict[str, int]:
        """Enter what a step sends into the batch; from which token on each request is computed."""
        first = {}
        for new in output.scheduled_new_reqs:
            self.memory.reset_at.pop(new.req_id, None)
            self._rows[new.req_id] = _Row([list(blocks) for blocks in new.block_ids])
            first[new.req_id] = new.num_computed_tokens
        cached = output.scheduled_cached_reqs
        for name, blocks, computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            if name in cached.resumed_req_ids:
                self.memory.reset_at.pop(name, None)
                self._rows[name] = _Row([list(group) for group in blocks])
            elif blocks is not None:
                for table, new_blocks in zip(self._rows[name].table, blocks, strict=True):
                    table += new_blocks
            # Where steps are asynchronous, the scheduler counts drafts that a step in flight has rejected as computed.
            first[name] = min(computed, len(self._tokens[name]) - 1)
        return first

    def _write(self, name: str, start: int, output: Any) -> list[int]:
        """Write what a step computes of a request; the prefixes up to its last token."""
        drafted = self._drafted(name, output)
        end = start + output.num_scheduled_tokens[name]
        chain = self.memory.tokens[name][:end]
        for token in drafted[: end - len(chain)]:
            chain.append(self.memory.prefixes.after(chain[-1], token))
        for group, table in enumerate(self._rows[name].table):
            if self.settings.geometry.groups[group].keeps_states:
                self.memory.write_states(group, table, start, chain, passing=bool(drafted))
            else:
                self.memory.write(group, table, start, chain[start:])
        return chain

    def _drafted(self, name: str, output: Any) -> Sequence[int]:
        """The drafts that a step verifies. Of those that are not known when it is scheduled, it says how many."""
        drafted: Sequence[int] = output.scheduled_spec_decode_tokens.get(name, ())
        return self._rows[name].drafts[: len(drafted)] if self.stage.asynchronous else drafted

    def _answer(self, name: str, reply: Reply, output: Any) -> list[int]:
        """What the model answers: the drafts that hold, and a token; and what it proposes."""
        drafted = self._drafted(name, output)
        token = STOP if reply.ends else reply.token
        sampled = [*drafted[: reply.accepted], token]
        self._learn(name, sampled)
        if drafted:
            # The worker keeps the state after the last draft that holds.
            chain = self.memory.tokens[name][:-1]
            for group, table in enumerate(self._rows[name].table):
                if self.settings.geometry.groups[group].keeps_states:
                    self.memory.write_states(group, table, len(chain) - 1, chain, passing=False)
        # Where steps are asynchronous, the scheduler counts on as many drafts as there can be.
        proposed = self.settings.drafts_max if self.stage.asynchronous else min(reply.drafts, self.settings.drafts_max)
        self._rows[name].drafts = range(token + 1, token + 1 + proposed)
        self.lockstep.note(Sample(number_in(name), len(sampled) - 1, token, proposed))
        return sampled

    # The end

    def close(self) -> list[Divergence]:
        """Let every request end while every job does but those that never end, and check what remains. Then let these
        end as well, and ask the same again: a job that never ends is one that may end later than all else."""
        if not self.found and not self.stops_at:
            self._let_end()
            if self.memory.lost and not (self.found or self.stops_at):
                self._judge_lost()
        if not self.found and (self.memory.lost or self.stops_at):
            self.memory.lost.clear()
            self.stops_at = self.memory.waited_for = ""
            self._let_end()
        if not self.found:
            self._rest()
        return [self.found] if self.found else []

    def _let_end(self) -> None:
        """Take steps until every request has ended, or none makes progress any more."""
        found = self.perform(Step((Reply(),)))
        idle = unanswered = 0
        while self._alive and not (found or self.stops_at or idle > IDLE_STEPS_MAX or unanswered > self._steps_max()):
            found = found or self._end_jobs()
            before, answered = self._progress(), self._answered()
            found = found or self.perform(Step((Reply(),)))
            idle = 0 if self._progress() != before else idle + 1
            unanswered = 0 if self._answered() != answered else unanswered + 1
        if self._alive and not (found or self.stops_at):
            self._judge_hang()

    def _answered(self) -> object:
        return [len(each.all_token_ids) for each in self._alive.values()]

    def _steps_max(self) -> int:
        """After how many steps without an answer requests are said to preempt each other in vain: as many as compute
        every token of all of them, one in each step."""
        return IDLE_STEPS_MAX + sum(int(each.num_tokens) for each in self._alive.values())

    def _end_jobs(self) -> Divergence | None:
        """Every job ends, on the device and below the host."""
        found = None
        for loads in (False, True):
            found = found or self.perform(EndJobs(loads, len(self.memory.jobs) + 1))
            found = found or self.perform(EndFiles(loads, len(self.memory.file_jobs) + 1))
        return found

    def _progress(self) -> object:
        computed = [(name, each.num_computed_tokens, each.num_tokens) for name, each in self._alive.items()]
        return computed, list(self.memory.jobs)

    def _judge_hang(self) -> None:
        """A request may wait for a job that never ends, and for nothing else."""
        self.waiting = wait_for(self)
        held_up = [name for name in self._alive if self.waiting.waits_for_lost(number_in(name))]
        self._seen[HELD_UP] += len(held_up)
        if len(held_up) < len(self._alive):
            subject = "requests that wait for no job" if self.memory.lost else "requests while every job ends"
            self._report("progress", Difference("KV-TIER-06", subject, "they end", self.waiting.describe()))

    def _judge_lost(self) -> None:
        """Jobs that never end keep their blocks, and those of their requests; requests that wait keep theirs."""
        for _ in range(AT_REST_STEPS):
            self._end_jobs()
            self.perform(Step((Reply(),)))
        if self.found or self.stops_at:
            return
        lost = [self.memory.jobs[number] for number in self.memory.lost]
        names = self._alive.keys() | {name for job in lost for name in job.request.split(", ")}
        kept = {block.block_id for table in block_tables(self) for name in names for block in table.get(name, ())}
        kept |= {copy.block for job in lost for copy in job.copies}
        held = sorted(block for block in blocks_held(self) if block not in kept)
        if held:
            expected = "those of requests that wait and of jobs that never end"
            self._report("leak", Difference("KV-LEAK-01", "blocks held", expected, f"{len(held)} more: {held[:20]}"))

    def _rest(self) -> None:
        """Let the engine take the steps that it asks for, and some more, and check what remains.

        No more than all blocks are worth to be stored: if more are, the steps never end.
        """
        stored, steps = self.memory.blocks_stored, 0
        while self.found is None and (steps < AT_REST_STEPS or self.scheduler.has_requests()):
            self._end_jobs()
            self.perform(Step((Reply(),)))
            steps += 1
            more = self.memory.blocks_stored - stored
            stores = more > len(self.connector.halves) * self.settings.blocks
            if stores or steps > self.settings.blocks + IDLE_STEPS_MAX:
                subject = "an engine without requests" + ", which stores" * stores
                got = f"it asks for more after {steps} steps, in which {more} blocks were stored"
                self._report("progress", Difference("KV-LIVE-03", subject, "it rests", got))
        if self.found is None:
            for difference in self._remaining():
                self._report("leak", difference)

    def _remaining(self) -> Iterator[Difference]:
        yield from self._leak.at_rest(self.followed)
        held = self.connector.remaining()
        if held:
            yield Difference("KV-TIER-05", "what the connector holds", "nothing", str(dict(held)))


def _where(error: Exception) -> str:
    """The kind of an exception, and the function that raised it."""
    at, name = error.__traceback__, ""
    while at is not None:
        if at.tb_frame.f_globals.get("__name__", "").startswith("vllm"):
            name = at.tb_frame.f_code.co_name
        at = at.tb_next
    return f"{type(error).__name__} in {name}" if name else type(error).__name__
