"""The line: who is next, who may be passed, and who loses its blocks to whom.

A request makes progress within a bound only if no later request takes its place. So a scheduler asks for the first
request in the queue that is ready, admits it while there is room in a step, and preempts the last that was admitted. By
priority, the most urgent comes first, and the least urgent is preempted.

A request that is not ready (it loads, waits for its grammar or its client, its connector is undecided, or no slot is
free for its adapter) is skipped and set aside. Set-aside requests come before all others from then on, in the order in
which they were set aside.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define

from kvgate.kernel.difference import Difference
from kvgate.levels.scheduler.operations import PauseEngine, Serve, Stage
from kvreference.answers import Answer, Granted, Hit, Refused
from kvreference.operations import Abort, Admit, Finish, LookUp, Operation, Preempt, Schedule
from kvreference.population import Population, Request, Status
from kvreference.scheduler.operations import Submit


@define
class _Waits:
    """One request in line."""

    number: int
    rank: tuple[int, float]
    """Its priority, where priorities count, and when it came."""
    grammar: bool = False
    """Whether its grammar is not compiled yet."""
    aside: int | None = None
    """As which it was set aside since it came, or came back."""
    undecided: bool = False
    """Whether its connector said in this step that it does not know yet what it offers."""
    loads: bool = False
    """Whether the end of its load is not reported to the scheduler yet."""
    paused: bool = False
    """Whether it is a session of which the next part has not come."""
    adapter: str | None = None
    holds: bool = False
    """Whether it holds blocks: it loads, or has loaded."""

    @property
    def is_ready(self) -> bool:
        """Whether nothing prevents its admission."""
        return not (self.grammar or self.undecided or self.loads or self.paused)


class Line:
    """The line before one scheduler."""

    def __init__(
        self,
        stage: Stage,
        budget_tokens: int,
        may_split: bool,
        holders_first: bool = False,
        padded_tokens: int = 1,
        tokens_max: int = 0,
        provided_now: Callable[[int], int] = lambda _number: 0,
    ) -> None:
        self.stage = stage
        self.budget_tokens = budget_tokens
        self.may_split = may_split
        """Whether a chunk may end anywhere: where not, a request may be passed over because nothing of it fits."""
        self.holders_first = holders_first
        """Whether a request that waits and holds blocks is admitted before all others, however urgent these are, and
        also while the engine is paused."""
        self.padded_tokens = padded_tokens
        """How many tokens a request needs room for that has one left to compute, and is not all that runs."""
        self.tokens_max = tokens_max
        """How long a request may become: one that has no room for so many is not padded."""
        self.provided_now = provided_now
        """How many tokens another node provides within the step to a request that was looked up in it."""
        self._hits: dict[int, int] = {}
        """Of the requests that were looked up in this step, how many tokens need not be computed."""
        self.resets = False
        """Whether all running requests are preempted at once, in any order."""
        self._waiting: list[_Waits] = []
        self._running: list[_Waits] = []
        self._adapters: dict[str, None] = {}
        """Those of the requests in this step."""
        self._asked: set[int] = set()
        self._held_up = False
        """Whether a request was rejected or preempted in this step: then no other is admitted."""
        self._paused = False
        """Whether the engine is paused in this step."""
        self._set_aside = 0
        """How many were set aside so far."""

    # What happens

    def submitted(self, number: int, submit: Submit) -> None:
        """A request joins the end of the queue."""
        serve = submit if isinstance(submit, Serve) else None
        urgent = serve.priority if serve is not None and self.stage.by_priority else 0
        grammar = serve is not None and serve.structured
        waits = _Waits(number, (urgent, number), grammar, adapter=submit.arrival.keys.adapter)
        self._waiting.append(waits)
        if waits.grammar:
            self._put_aside(waits)

    def compiled(self, number: int) -> None:
        """The grammar of a request is compiled."""
        for each in self._named(number):
            each.grammar = False

    def undecided(self, number: int) -> None:
        """The connector did not know what it offers to a request."""
        for each in self._named(number):
            # Requests that are passed for want of an adapter's slot are set aside before it.
            for before in self._before(each):
                self._is_ready(before)
            each.undecided = True
            self._put_aside(each)

    def arrived(self, number: int) -> None:
        """The end of a request's load was reported to the scheduler."""
        for each in self._named(number):
            each.loads = False

    def paused(self, number: int) -> None:
        """A part of a session has ended."""
        (ran,) = (each for each in self._running if each.number == number)
        self._running.remove(ran)
        waits = _Waits(number, ran.rank, paused=True, adapter=ran.adapter)
        self._waiting.append(waits)
        self._put_aside(waits)

    def continued(self, number: int, came: float, at_once: bool) -> None:
        """The next part of a session has come; or came before, and begins ``at_once``: then it was not set aside."""
        for each in self._named(number):
            each.paused, each.rank = False, (each.rank[0], came)
            each.aside = None if at_once else each.aside

    def held_up(self) -> None:
        """The first ready request has not enough room in the encoder: no other is admitted."""
        self._held_up = True

    def begin(self, paused: PauseEngine | None = None) -> None:
        """A step begins. If the engine is paused, no request is admitted; or only those are that hold blocks."""
        self._asked, self._hits = set(), {}
        self._adapters = {}
        self._paused = paused is not None
        self._held_up = paused is not None and (paused.running or not self.holders_first)
        for each in self._waiting:
            each.undecided = False

    def observe(self, operation: Operation, answer: Answer) -> Difference | None:
        """The block manager was asked for something."""
        if isinstance(operation, (Admit, LookUp)) and self._paused and not self._drains(operation.request):
            got = f"request {operation.request} is asked for"
            return Difference("KV-LIVE-01", "the queue of a paused engine", "no request is admitted", got)
        if isinstance(operation, Admit):
            found = self._asked_for(operation.request)
            self._held_up |= isinstance(answer, Refused)
            if isinstance(answer, Granted) and self._named(operation.request):
                self._admitted(operation.request, answer.loads)
            return found
        if isinstance(operation, LookUp):
            hit_tokens = answer.tokens if isinstance(answer, Hit) else 0
            self._hits[operation.request] = hit_tokens + self.provided_now(operation.request)
            # Of a prompt that is computed whole there is too much for the step: no other is looked at.
            undecided = any(each.undecided for each in self._named(operation.request))
            self._held_up |= self.stage.options.whole_prompts and not undecided
            return self._asked_for(operation.request)
        if isinstance(operation, Schedule):
            for each in self._running:
                if each.number == operation.request and isinstance(answer, Granted):
                    self._computes(each)
        elif isinstance(operation, Preempt):
            self._held_up = True
            return self._preempted(operation.request)
        elif isinstance(operation, (Finish, Abort)):
            self._waiting = [each for each in self._waiting if each.number != operation.request]
            self._running = [each for each in self._running if each.number != operation.request]
        return None

    @property
    def lengths(self) -> tuple[int, int, int]:
        """How many run, wait, and were set aside."""
        aside = sum(each.aside is not None for each in self._waiting)
        return len(self._running), len(self._waiting) - aside, aside

    def _named(self, number: int) -> list[_Waits]:
        return [each for each in self._waiting if each.number == number]

    def _drains(self, number: int) -> bool:
        """Whether a request that waits is admitted although the engine is paused."""
        return self.holders_first and any(each.holds for each in self._named(number))

    def _put_aside(self, waits: _Waits) -> None:
        if waits.aside is None:
            waits.aside = self._set_aside
            self._set_aside += 1

    def _computes(self, waits: _Waits) -> None:
        if waits.adapter is not None:
            self._adapters[waits.adapter] = None

    def _is_ready(self, waits: _Waits) -> bool:
        """Whether it can be admitted now; if it only lacks a slot for its adapter, it is set aside."""
        if not waits.is_ready:
            return False
        if self._has_slot(waits):
            return True
        self._put_aside(waits)
        return False

    def _has_slot(self, waits: _Waits) -> bool:
        """Whether the worker has a slot for its adapter in this step."""
        slots, adapter = self.stage.adapters_max, waits.adapter
        return adapter is None or slots is None or adapter in self._adapters or len(self._adapters) < slots

    # What is checked

    def _before(self, came: _Waits) -> list[_Waits]:
        """The waiting requests that are looked at before another."""
        if self.holders_first and came.holds:
            return []
        if self.holders_first and not self.stage.by_priority:
            # The scheduler may put back a set-aside request at any place.
            before = self._waiting[: self._waiting.index(came)]
            return [each for each in before if each.aside is None and came.aside is None]
        line = self._in_order()
        return line[: line.index(came)]

    def _in_order(self) -> list[_Waits]:
        """Those who wait, in the order in which the scheduler looks at them."""
        return sorted(self._waiting, key=_rank if self.stage.by_priority else _place)

    def _asked_for(self, number: int) -> Difference | None:
        self._asked.add(number)
        came = next(iter(self._named(number)), None)
        if came is None:
            return Difference("KV-LIVE-01", "the line", "a waiting request", f"request {number} is asked for")
        passed = [each for each in self._before(came) if self._is_ready(each)]
        if not passed and not self._has_slot(came):
            got = f"it is asked for, in a step with {', '.join(self._adapters)}"
            return Difference("KV-SYS-03", f"request {number}", f"it waits for a slot for {came.adapter}", got)
        if not passed:
            return None
        return Difference(
            "KV-LIVE-01", "the line", f"request {passed[0].number} is asked for first", f"request {number}"
        )

    def _admitted(self, number: int, loads: bool) -> None:
        (came,) = self._named(number)
        if loads:
            came.loads = came.holds = True
            self._put_aside(came)
        else:
            self._waiting.remove(came)
            self._running.append(came)
            self._computes(came)

    def _preempted(self, number: int) -> Difference | None:
        went = next((each for each in self._running if each.number == number), None)
        if went is None:
            return Difference("KV-LIVE-02", "the line", "a running request", f"request {number} is preempted")
        by_rank = self.stage.by_priority and not self.resets
        last = max(self._running, key=lambda each: each.rank) if by_rank else self._running[-1]
        self._running.remove(went)
        self._waiting.insert(0, _Waits(number, went.rank, adapter=went.adapter))
        if last is went:
            return None
        expected = f"request {last.number} is preempted"
        return Difference("KV-LIVE-02", "the line", expected, f"request {number} is, and {last.number} runs on")

    def end(self, tokens: int, population: Population) -> Difference | None:
        """A step of so many tokens was scheduled: no request that fits was left out."""
        room = len(self._running) < self.stage.running_max and tokens < self.budget_tokens
        if self._held_up or not room:
            return None
        for each in self._in_order():
            if not self.may_split and each.number in self._asked:
                # Less than a block of states is not a chunk: no later request is looked at.
                return None
            request = population.alive.get(each.number)
            # Of a load that is over the scheduler takes note when it looks at the request.
            waits = request is not None and request.status in (Status.WAITING, Status.LOADING)
            if request is not None and waits and self._lacks_room_for_drafts(request, tokens):
                # It waits for a step with room for all, and so do all later requests.
                return None
            if request is None or not waits or each.number in self._asked:
                continue
            if self._paused and not each.holds:
                continue
            if self._is_ready(each):
                long = self.stage.long_prefill_tokens or self.budget_tokens
                too_long = min(len(request.tokens) - request.tokens_computed, long) > self.budget_tokens - tokens
                if not self.may_split or (self.stage.options.whole_prompts and request.tokens_computed and too_long):
                    return None
                got = f"it is not asked for, {tokens} of {self.budget_tokens} tokens are scheduled"
                return Difference("KV-LIVE-01", f"request {each.number}, in line", "it is asked for", got)
        return None

    def _lacks_room_for_drafts(self, request: Request, tokens: int) -> bool:
        """Whether a request has one token left, and the step, with so many ``tokens``, no room for its drafts."""
        computed = request.tokens_computed + self._hits.get(request.number, 0)
        one_left = len(request.tokens) - computed == 1 and (computed > 0 or bool(self._running))
        is_padded = one_left and computed + self.padded_tokens < self.tokens_max
        return is_padded and self.padded_tokens > self.budget_tokens - tokens


def _rank(waits: _Waits) -> tuple[int, float]:
    return waits.rank


def _place(waits: _Waits) -> tuple[bool, int]:
    """First come those that were set aside, in that order."""
    return waits.aside is None, waits.aside or 0
