"""The arms ``stock`` and ``retention``: the real scheduler of a vLLM, its worker's place taken by ghost memory.

The scheduler receives what a worker would send, and nothing else: hits, tables and preemptions are read from
what each of its steps sends to the worker, its counters from what it sends to the metrics.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from attrs import evolve

from kvgate.adapters.releases import VLLM_VERSION
from kvgate.adapters.tap import Raises, Tap
from kvgate.findings.f037_fewer_drafts_end_the_process import FINDING as FEWER_DRAFTS
from kvgate.findings.f037_fewer_drafts_end_the_process import is_of_fewer_drafts
from kvgate.kernel.errors import UsageError
from kvgate.levels.scheduler.adapter.names import name_of, number_in
from kvgate.levels.scheduler.operations import Stage
from kvgate.simulation.adapter.worker import Worker, drafts_reported
from kvgate.simulation.arm import Progress, Setting
from kvgate.simulation.clients import Clients
from kvgate.simulation.drafting import Drafting, answers
from kvgate.simulation.ledger import Ledger
from kvgate.simulation.memory import BlockMemory, Work
from kvgate.simulation.result import Counters, Result, Usage
from kvreference.operations import Arrive
from kvreference.scheduler.operations import Submit

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput

IDLE_STEPS_MAX = 3
"""How many steps may pass in which no request is scheduled, before it counts as a hang."""


class RealRun(Raises):
    """One simulation."""

    def __init__(self, setting: Setting, subject_name: str) -> None:
        from kvgate.levels.scheduler.adapter.subjects import SUBJECTS

        self.setting = setting
        self.settings = setting.settings
        self.subject = SUBJECTS[subject_name]
        self.memory = BlockMemory(self.settings.geometry)
        self.subject.install()
        try:
            with self.subject.while_built(self.settings):
                self.scheduler: Any = self.subject.build(self.settings, Stage(running_max=setting.serving.running_max))
        except ValueError as error:
            raise UsageError(f"{subject_name} cannot serve policy {setting.policy.name!r}: {error}") from error
        self.clients = Clients(setting.workload)
        self.drafting = Drafting(setting)
        self.worker = Worker(setting.serving.tokens_max, self.settings.lookahead_tokens, {})
        self.counters = Counters()
        self.ledger = Ledger(setting, subject_name, system=subject_name)
        manager, tap = self.scheduler.kv_cache_manager, Tap(self)
        tap.listen(manager)
        tap.watch(manager.block_pool, "_maybe_evict_cached_block", after=self._evicted)

    def after_get_computed_blocks(self, _answer: Any, request: Any, *_limits: Any) -> None:
        self.ledger.entries[number_in(request.request_id)].look_ups += 1

    def _evicted(self, evicted: bool, _block: Any) -> None:
        self.ledger.evictions += bool(evicted)

    def finish(self, progress: Progress | None = None) -> Result:
        """Serve the whole workload, or up to where the engine's process would end."""
        warm, idle = Counters(), 0
        while not self.clients.over and self.ledger.crash is None:
            warming = self.clients.warming
            self._send()
            idle = 0 if self._step() else idle + 1
            if idle > IDLE_STEPS_MAX:
                raise UsageError(f"step {self.ledger.steps}: no request is scheduled, and there is nothing to wait for")
            if warming and not self.clients.warming:
                warm = self.counters
            if progress is not None:
                progress(self.clients.ended, self.setting.workload.requests)
        return self.ledger.result(self.counters.since(warm), self.memory.soundness())

    def _send(self) -> None:
        from kvgate.levels.scheduler.adapter.arrivals import new_request

        for sending in self.clients.send():
            if sending.asked.prompt_tokens >= self.settings.tokens_max:
                raise UsageError(f"request {sending.number}: its prompt leaves no room for an answer")
            self.memory.enter(sending.number, sending.asked.runs)
            self.ledger.enter(sending)
            submit = Submit(Arrive(sending.number, sending.asked.prompt), sending.asked.answers.length)
            self.scheduler.add_request(new_request(self.settings, submit))

    def _step(self) -> bool:
        """One step; returns whether any request computed."""
        ledger = self.ledger
        ledger.steps += 1
        try:
            output = self.scheduler.schedule()
        except AssertionError as error:
            by = f" (finding {FEWER_DRAFTS.id})" if is_of_fewer_drafts(error) else ""
            ledger.crash = f"{type(error).__name__}: {error}{by}"
            return True
        self._preempted(output)
        works, admission = self.worker.take(output)
        for each in admission:
            ledger.admit(each.number, each.hit_tokens)
        self._copy_and_compute(works, output)
        sampled, proposed = self._sampled(works, output)
        self._update_scheduler(output, sampled, proposed)
        if ledger.samples.due(ledger.steps):
            free = self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
            held = self.setting.serving.blocks - 1 - free - self._pinned_free()
            ledger.samples.add(Usage(ledger.steps, self.clients.ended, held, len(self.scheduler.running)))
        return bool(works)

    def _pinned_free(self) -> int:
        tier = getattr(self.scheduler.kv_cache_manager.block_pool, "pinned_tier", None)
        return 0 if tier is None else tier.queue.num_free_blocks

    def _preempted(self, output: SchedulerOutput) -> None:
        for name in output.preempted_req_ids or ():
            number = number_in(name)
            self.ledger.entries[number].preemptions += 1
            self.memory.leave(number)

    def _copy_and_compute(self, works: list[Work], output: SchedulerOutput) -> None:
        copies = self.subject.copies(output).copies
        for work in works:
            self.ledger.entries[work.number].computed += work.end - work.start
        self.memory.step(works, copies)
        for copy in copies:
            for work in works:
                if copy.destination in work.tables[copy.group]:
                    self.ledger.entries[work.number].copied += copy.tokens

    def _sampled(self, works: list[Work], output: SchedulerOutput) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        """Per request whose tokens are all computed: what the model answers, and the drafts after it."""
        drafts = drafts_reported(output)
        sampled, proposed = {}, {}
        for work in works:
            turn = self.ledger.entries[work.number].sending.asked
            tokens = self.scheduler.requests[name_of(work.number)].num_tokens
            if work.end < tokens:
                continue
            accepted = self.drafting.accepted(work.number, tokens, drafts.get(work.number, 0))
            sampled[work.number] = answers(turn, tokens, accepted + 1)
            self.memory.keep(work.number, tokens + len(sampled[work.number]) - 1)
            last = sampled[work.number][-1]
            proposed[work.number] = list(range(last + 1, last + 1 + self.settings.drafts_max))
        return sampled, proposed

    def _update_scheduler(
        self, output: SchedulerOutput, sampled: dict[int, list[int]], proposed: dict[int, list[int]]
    ) -> None:
        """The scheduler takes the worker's answers, and reports to its clients and its metrics."""
        from kvgate.levels.scheduler.adapter.worker import answer, drafts

        reported = self.scheduler.update_from_output(output, answer(tuple(output.num_scheduled_tokens), sampled))
        for outputs in reported.values():
            self._count(outputs.scheduler_stats)
        for number in sampled:
            if name_of(number) not in self.scheduler.requests:
                self.memory.leave(number)
                self.clients.end(number)
                self.ledger.end(number)
                proposed.pop(number)
        if self.settings.drafts_max:
            self.scheduler.update_draft_token_ids(drafts(proposed))

    def _count(self, stats: Any) -> None:
        if stats is None or stats.prefix_cache_stats is None:
            return
        reported, before = stats.prefix_cache_stats, self.counters
        self.counters = evolve(
            before,
            look_ups=before.look_ups + reported.requests,
            queries_tokens=before.queries_tokens + reported.queries,
            hits_tokens=before.hits_tokens + reported.hits,
        )


@cache
def load(name: str) -> None:
    """See that the system is there, and is what its adapter was written for.

    Raises:
        SystemUnavailableError: it is not.
    """
    from kvgate.adapters.registry import load_system

    load_system(name)


class RealArm:
    """vLLM's real scheduler over one of its block managers."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, setting: Setting, progress: Progress | None = None) -> Result:
        """Serve the whole workload.

        Raises:
            SystemUnavailableError: the release cannot be imported here, or another one was before.
        """
        from kvgate.levels.scheduler.adapter.subjects import SUBJECTS

        version = setting.serving.version
        published = "native" if self.name == "stock" else self.name
        system = self.name if version == VLLM_VERSION else f"{published}@{version}"
        if system not in SUBJECTS:
            raise UsageError(f"the arm {self.name!r} has no scheduler of vLLM {version}: it is not described")
        load(system)
        return RealRun(setting, system).finish(progress)


def stock() -> RealArm:
    """vLLM as published."""
    return RealArm("stock")


def retention() -> RealArm:
    """vLLM with the plug-in."""
    return RealArm("retention")
