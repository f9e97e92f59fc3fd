"""The arm ``ranges``: the reference in ranges of equal blocks, for prompts of millions of tokens."""

from __future__ import annotations

from kvgate.kernel.errors import UsageError
from kvgate.simulation.arm import Progress, Setting
from kvgate.simulation.clients import Clients
from kvgate.simulation.ledger import Ledger
from kvgate.simulation.ranges.scheduler import Events, Scheduler
from kvgate.simulation.result import Counters, Result, Soundness, Usage
from kvreference.scheduler.limits import Limits


class RangesRun:
    """One simulation.

    Raises:
        UsageError: the setting has drafts, partial hits or kept states, which are not done in ranges.
    """

    def __init__(self, setting: Setting, name: str = "ranges") -> None:
        settings = setting.settings_of_ranges
        geometry = settings.geometry
        if settings.drafts_max or geometry.keeps_states or any(group.copies for group in geometry.groups):
            raise UsageError("ranges know no drafts, no partial hits and no kept states: take the arm 'reference'")
        self.setting = setting
        self.clients = Clients(setting.workload)
        limits = Limits(setting.serving.chunk_tokens, setting.serving.running_max)
        self.scheduler = Scheduler(settings, limits, setting.policy.keeps_replays)
        self.ledger = Ledger(setting, name)

    def finish(self, progress: Progress | None = None) -> Result:
        """Serve the whole workload."""
        warm = Counters()
        while not self.clients.over:
            warming, ended = self.clients.warming, self.clients.ended
            self._send()
            self._step()
            if warming and not self.clients.warming:
                warm = self._counters()
            if progress is not None and self.clients.ended != ended:
                progress(self.clients.ended, self.setting.workload.requests)
        manager = self.scheduler.manager
        self.ledger.evictions = manager.pool.evictions
        witness = manager.witness
        return self.ledger.result(self._counters().since(warm), Soundness(witness.reads, witness.hits, witness.unsound))

    def _send(self) -> None:
        for sending in self.clients.send():
            self.ledger.enter(sending)
            reason = self.scheduler.submit(sending.number, sending.asked.prompt, sending.asked.answers)
            if reason is not None:
                raise UsageError(f"request {sending.number} of {self.setting.workload.name}: {reason.value}")

    def _step(self) -> None:
        ledger, scheduler = self.ledger, self.scheduler
        ledger.steps += 1
        events = scheduler.step()
        self._book(events)
        for number in events.ended:
            self.clients.end(number)
            ledger.end(number)
        if ledger.samples.due(ledger.steps):
            pool = scheduler.manager.pool
            held = self.setting.serving.blocks - 1 - pool.free - pool.pinned.blocks
            ledger.samples.add(Usage(ledger.steps, self.clients.ended, held, len(scheduler.running)))

    def _book(self, events: Events) -> None:
        entries = self.ledger.entries
        for number in events.looked_up:
            entries[number].look_ups += 1
        for number, hit_tokens in events.admitted:
            self.ledger.admit(number, hit_tokens)
        for number in events.preempted:
            entries[number].preemptions += 1
        for number, tokens in events.computed:
            entries[number].computed += tokens

    def _counters(self) -> Counters:
        statistics = self.scheduler.manager.statistics
        return Counters(statistics.requests, statistics.queries_tokens, statistics.hits_tokens)


class RangesArm:
    """The reference in ranges."""

    name = "ranges"

    def run(self, setting: Setting, progress: Progress | None = None) -> Result:
        """Serve the whole workload."""
        return RangesRun(setting, self.name).finish(progress)


def arm() -> RangesArm:
    """What ``--arm ranges`` serves with."""
    return RangesArm()
