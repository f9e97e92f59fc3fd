"""The arm ``reference``: the reference's own scheduler and block manager, checked by ghost memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve

from kvgate.kernel.errors import UsageError
from kvgate.simulation.arm import Progress, Setting
from kvgate.simulation.clients import Clients
from kvgate.simulation.drafting import Drafting, answers
from kvgate.simulation.ideal_tier import IdealTier
from kvgate.simulation.ledger import Ledger
from kvgate.simulation.memory import BlockMemory, Work
from kvgate.simulation.result import Counters, Result, Usage
from kvreference.answers import Answer, Copies, Copy, Granted
from kvreference.block_pool import contents_lost
from kvreference.cached_map import Content
from kvreference.choices import Choices
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Dispatch, Finish, Operation, Preempt, Sample, Schedule, TakeEvents
from kvreference.population import Request
from kvreference.rules import Delta, Rules
from kvreference.scheduler.limits import Limits
from kvreference.scheduler.operations import Reply, Step, Submit
from kvreference.scheduler.scheduler import Scheduler
from kvreference.settings import Settings


class CountingManager(Manager):
    """The reference's block manager, with a count of the cached blocks that it evicts."""

    def __init__(self, settings: Settings, choices: Choices | None = None) -> None:
        counts = Delta(contents_lost.__name__, self._count)
        choices = choices or Choices()
        super().__init__(settings, evolve(choices, rules=Rules((*choices.rules.deltas, counts))))
        self.evictions = 0

    def _count(
        self, rule: Callable[..., list[Content]], full: Content | None, begun: Sequence[Content]
    ) -> list[Content]:
        lost = rule(full, begun)
        self.evictions += bool(lost)
        return lost


class EngineEndedError(Exception):
    """A release's engine ends here, by a finding."""


class WatchedScheduler(Scheduler):
    """The reference's scheduler: everything that it asks of the block manager is seen, and answered by the workload."""

    def __init__(self, run: ReferenceRun) -> None:
        setting = run.setting
        super().__init__(setting.settings, Limits(setting.serving.chunk_tokens, setting.serving.running_max))
        self.manager = run.new_manager()
        self.run = run

    def _perform(self, operation: Operation) -> Answer:
        if isinstance(operation, (Sample, TakeEvents)):
            self.run.compute()
        if isinstance(operation, Admit):
            self.run.sees_tier(operation)
        before = self.manager.population.alive.get(getattr(operation, "request", -1))
        start = before.tokens_computed if before is not None else 0
        answer = super()._perform(operation)
        self.run.saw(operation, answer, start)
        return answer

    def _answer(self, number: int, reply: Reply) -> None:
        del reply
        request = self.manager.population[number]
        super()._answer(number, self.run.reply(request))


class ReferenceRun:
    """One simulation."""

    def __init__(self, setting: Setting, name: str = "reference") -> None:
        self.setting = setting
        self.clients = Clients(setting.workload)
        self.drafting = Drafting(setting)
        self.memory = BlockMemory(setting.settings.geometry)
        self.scheduler = self.new_scheduler()
        self.ledger = Ledger(setting, name)
        blocks = setting.serving.tier_blocks
        self.tier = IdealTier(setting.settings.geometry, blocks) if blocks else None
        self._works: list[Work] = []
        self._copies: tuple[Copy, ...] = ()
        self._ended: list[int] = []

    def new_manager(self) -> CountingManager:
        """The block manager that serves."""
        return CountingManager(self.setting.settings)

    def new_scheduler(self) -> WatchedScheduler:
        """The scheduler that serves."""
        return WatchedScheduler(self)

    @property
    def manager(self) -> Manager:
        """The block manager."""
        return self.scheduler.manager

    def finish(self, progress: Progress | None = None) -> Result:
        """Serve the whole workload, or up to where the engine's process ends."""
        warm = Counters()
        while not self.clients.over and self.ledger.crash is None:
            warming = self.clients.warming
            self._send()
            self._step()
            if warming and not self.clients.warming:
                warm = self._counters()
            if progress is not None:
                progress(self.clients.ended, self.setting.workload.requests)
        manager = self.scheduler.manager
        assert isinstance(manager, CountingManager)
        self.ledger.evictions = manager.evictions
        return self.ledger.result(self._counters().since(warm), self.memory.soundness())

    def _send(self) -> None:
        for sending in self.clients.send():
            self.memory.enter(sending.number, sending.asked.runs)
            self.ledger.enter(sending)
            submit = Submit(Arrive(sending.number, sending.asked.prompt), sending.asked.answers.length)
            reason = self.scheduler.apply(submit).reason
            if reason is not None:
                raise UsageError(f"request {sending.number} of {self.setting.workload.name}: {reason.value}")

    def _step(self) -> None:
        ledger = self.ledger
        ledger.steps += 1
        try:
            advanced = self.scheduler.apply(Step()).advanced
        except EngineEndedError as error:
            ledger.crash = str(error)
            return
        if not advanced:
            raise UsageError(f"step {ledger.steps}: no request gets blocks, and there is nothing to wait for")
        for number in self._ended:
            self.clients.end(number)
            ledger.end(number)
        self._ended = []
        if ledger.samples.due(ledger.steps):
            pool = self.manager.pool
            held = self.setting.serving.blocks - 1 - len(pool.free) - len(pool.pinned_blocks().queue)
            running = len(self.scheduler.queues.running)
            ledger.samples.add(Usage(ledger.steps, self.clients.ended, held, running))

    def _counters(self) -> Counters:
        statistics = self.manager.cache.statistics
        return Counters(statistics.requests, statistics.queries_tokens, statistics.hits_tokens)

    # What the scheduler did

    def saw(self, operation: Operation, answer: Answer, start: int) -> None:
        """The scheduler asked something of the block manager; the request stood at ``start`` computed tokens."""
        if isinstance(operation, (Admit, Schedule)):
            if isinstance(operation, Admit) and start == 0:
                self.ledger.entries[operation.request].look_ups += 1
            if isinstance(answer, Granted):
                self._granted(operation, answer, start)
        elif isinstance(operation, Dispatch) and isinstance(answer, Copies):
            self._copies = answer.copies
        elif isinstance(operation, Sample):
            self.memory.keep(operation.request, self.manager.population[operation.request].tokens_computed)
        elif isinstance(operation, Preempt):
            self.ledger.entries[operation.request].preemptions += 1
            self.memory.leave(operation.request)
        elif isinstance(operation, Finish):
            self._ended.append(operation.request)
            self.memory.leave(operation.request)

    def sees_tier(self, admit: Admit) -> None:
        """What a request that was not admitted before could hit with the tier."""
        entry = self.ledger.entries[admit.request]
        if self.tier is not None and entry.hit is None:
            request, manager = self.manager.population[admit.request], self.manager
            prefixes = manager.prefixes[admit.request]
            if request.reads_cache and manager.settings.caches:
                entry.hit_with_tier = self.tier.hit_tokens(manager.pool.cached, prefixes, len(request.tokens))

    def _granted(self, operation: Admit | Schedule, granted: Granted, before: int) -> None:
        request = self.manager.population[operation.request]
        if isinstance(operation, Admit):
            self.ledger.admit(request.number, granted.hit_tokens)
        start, end = before + granted.hit_tokens, request.tokens_computed
        self.ledger.entries[request.number].computed += end - start
        settings = self.setting.serving
        lookahead = 0 if isinstance(operation, Admit) and before == 0 else self.scheduler.settings.lookahead_tokens
        tables = [table.blocks for table in self.manager.tables[request.number]]
        verified = min(end, len(request.tokens))
        self._works.append(
            Work(request.number, tables, start, end, verified, min(end + lookahead, settings.tokens_max))
        )

    def compute(self) -> None:
        """The step that was scheduled goes to the worker."""
        works, self._works = self._works, []
        copies, self._copies = self._copies, ()
        if works:
            self.memory.step(works, copies)
        if self.tier is not None:
            for work in works:
                self.tier.store(self.manager.prefixes[work.number], work.verified)
        for copy in copies:
            for work in works:
                if copy.destination in work.tables[copy.group]:
                    self.ledger.entries[work.number].copied += copy.tokens

    def reply(self, request: Request) -> Reply:
        """What the model answers to a request whose tokens are all computed."""
        turn = self.ledger.entries[request.number].sending.asked
        tokens = len(request.tokens)
        # Rows for drafts that were not proposed are never accepted.
        proposed = sum(draft >= 0 for draft in request.drafts[: request.drafts_in_flight])
        accepted = self.drafting.accepted(request.number, tokens, proposed)
        accepted = min(accepted, turn.tokens - tokens - 1)
        return Reply(accepted, answers(turn, tokens, accepted + 1)[-1], self.drafting.drafts_max)


class ReferenceArm:
    """The reference's own scheduler and block manager."""

    name = "reference"

    def run(self, setting: Setting, progress: Progress | None = None) -> Result:
        """Serve the whole workload."""
        return ReferenceRun(setting, self.name).finish(progress)


def arm() -> ReferenceArm:
    """What ``--arm reference`` serves with."""
    return ReferenceArm()
