"""The scheduler in ranges: first come, first served, as ``kvreference.scheduler`` specifies it.

No request waits for remote KV here, so every accepted request finds room in the end, and the reference's rule about
room never applies. Steps in which a request merely decodes within its last blocks are one addition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from kvgate.simulation.ranges.manager import Manager, Request
from kvreference.operations import Run
from kvreference.scheduler.limits import Limits, Reason
from kvreference.scheduler.room import blocks_to_run
from kvreference.settings import Settings


class Events:
    """What one step did. Requests are named by their numbers, in order."""

    __slots__ = ("admitted", "computed", "ended", "looked_up", "preempted")

    def __init__(self) -> None:
        self.looked_up: list[int] = []
        self.admitted: list[tuple[int, int]] = []
        """Which requests were admitted, and the hit in tokens."""
        self.computed: list[tuple[int, int]] = []
        """Which requests lost their blocks or ended, and how many tokens each computed since its admission."""
        self.preempted: list[int] = []
        self.ended: list[int] = []


class Scheduler:
    """The scheduler over the block manager in ranges."""

    def __init__(self, settings: Settings, limits: Limits, keeps_replays: bool = True) -> None:
        self.settings = settings
        self.limits = limits
        self.manager = Manager(settings, keeps_replays)
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self._limits_tokens: dict[int, int] = {}

    def submit(self, number: int, prompt: tuple[Run, ...], answers: Run) -> Reason | None:
        """A request waits, or is rejected for a reason."""
        prompt_tokens = sum(run.length for run in prompt)
        limit_tokens = min(prompt_tokens + answers.length, self.settings.tokens_max)
        if prompt_tokens >= self.settings.tokens_max:
            return Reason.PROMPT_TOO_LONG
        if blocks_to_run(self.settings, limit_tokens - 1) > self.settings.blocks - 1:
            return Reason.NEVER_FITS
        if len(self._limits_tokens) >= self.settings.requests_max:
            return Reason.TOO_MANY
        self.waiting.append(self.manager.arrive(number, prompt, answers))
        self._limits_tokens[number] = limit_tokens
        return None

    def step(self) -> Events:
        """One step: blocks for those that run, then for those that wait; then complete requests are answered."""
        events = Events()
        budget = self._schedule_running(self.limits.budget_tokens, events)
        if budget is not None:
            self._admit_waiting(budget, events)
        self._answer(self.running, events)
        return events

    def _schedule_running(self, budget: int, events: Events) -> int | None:
        """The budget that is left, or None if a request did not get blocks."""
        running, manager = self.running, self.manager
        refused = False
        place = 0
        while place < len(running) and budget > 0:
            request = running[place]
            if request.computed < request.quiet_tokens and request.computed + 1 == request.tokens:
                request.computed += 1
                budget -= 1
                place += 1
                continue
            tokens = manager.schedule(request, budget)
            if tokens is not None:
                budget -= tokens
                place += 1
                continue
            refused = True
            if len(running) == 1:
                break
            last = running.pop()
            events.computed.append((last.number, last.computed - last.hit))
            manager.preempt(last)
            events.preempted.append(last.number)
            self.waiting.appendleft(last)
        return None if refused else budget

    def _admit_waiting(self, budget: int, events: Events) -> None:
        while self.waiting and budget > 0 and len(self.running) < self.limits.running_max:
            request = self.waiting[0]
            events.looked_up.append(request.number)
            granted = self.manager.admit(request, budget)
            if granted is None:
                return
            hit_tokens, tokens = granted
            events.admitted.append((request.number, hit_tokens))
            budget -= tokens
            self.running.append(self.waiting.popleft())

    def _answer(self, running: Iterable[Request], events: Events) -> None:
        ended = False
        for request in running:
            if request.computed == request.tokens:
                request.tokens += 1
                if request.tokens >= self._limits_tokens[request.number]:
                    ended = True
                    events.ended.append(request.number)
                    events.computed.append((request.number, request.computed - request.hit))
                    self.manager.release_all(request)
                    del self._limits_tokens[request.number]
        if ended:
            self.running = [request for request in self.running if request.number in self._limits_tokens]
