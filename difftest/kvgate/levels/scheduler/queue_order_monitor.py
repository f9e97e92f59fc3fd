"""The line: who is next, who may be passed, and who loses its blocks to whom.

A request gets on within a bound only if nobody who came later takes its place. So a scheduler lets in the first in line
that is ready, asks for it while there is room in a step, and preempts the last that was let in; by priority, the most
urgent comes first, and the least urgent is preempted.

Whoever was set aside (it loads, waits for its grammar, or its connector is undecided) is passed, and comes back where
the scheduler likes: of those the line says only that they are asked for once they are ready.
"""

from __future__ import annotations

from attrs import define

from kvgate.kernel.difference import Difference
from kvgate.levels.scheduler.operations import Serve, Stage
from kvreference.answers import Answer, Granted, Refused
from kvreference.operations import Abort, Admit, Finish, LookUp, Operation, Preempt
from kvreference.population import Population, Status
from kvreference.scheduler.operations import Submit


@define
class _Waits:
    """One request in line."""

    number: int
    rank: tuple[int, int]
    """Its priority, where priorities count, and when it came."""
    grammar: bool = False
    """Whether its grammar is not compiled yet."""
    aside: bool = False
    """Whether it was set aside since it came, or came back."""
    undecided: bool = False
    """Whether its connector may say that it cannot tell yet what it offers."""
    holds: bool = False
    """Whether it holds blocks: it loads, or has loaded."""


class Line:
    """The line before one scheduler."""

    def __init__(self, stage: Stage, budget_tokens: int, may_split: bool, holders_first: bool = False) -> None:
        self.stage = stage
        self.budget_tokens = budget_tokens
        self.may_split = may_split
        """Whether a chunk may end anywhere: where not, a request may be passed over because nothing of it fits."""
        self.holders_first = holders_first
        """Whether whoever waits and holds blocks is let in before all others, however urgent these are."""
        self.resets = False
        """Whether all that run are preempted at once, whoever comes last."""
        self._waiting: list[_Waits] = []
        self._running: list[_Waits] = []
        self._asked: set[int] = set()
        self._held_up = False
        """Whether somebody was refused or preempted in this step: then nobody else is let in."""

    # What happens

    def submitted(self, number: int, submit: Submit) -> None:
        """A request is behind all others."""
        serve = submit if isinstance(submit, Serve) else None
        urgent = serve.priority if serve is not None and self.stage.by_priority else 0
        grammar = serve is not None and serve.structured
        undecided = serve is not None and self.stage.connector and serve.undecided > 0
        self._waiting.append(_Waits(number, (urgent, number), grammar, grammar or undecided, undecided))

    def compiled(self, number: int) -> None:
        """The grammar of a request is compiled."""
        for each in self._waiting:
            if each.number == number:
                each.grammar = False

    def begin(self) -> None:
        """A step begins."""
        self._asked = set()
        self._held_up = False

    def observe(self, operation: Operation, answer: Answer) -> Difference | None:
        """The block manager was asked for something."""
        if isinstance(operation, Admit):
            self._asked.add(operation.request)
            self._held_up |= isinstance(answer, Refused)
            return self._let_in(operation.request, answer.loads) if isinstance(answer, Granted) else None
        if isinstance(operation, LookUp):
            self._asked.add(operation.request)
        elif isinstance(operation, Preempt):
            self._held_up = True
            return self._preempted(operation.request)
        elif isinstance(operation, (Finish, Abort)):
            self._waiting = [each for each in self._waiting if each.number != operation.request]
            self._running = [each for each in self._running if each.number != operation.request]
        return None

    # What is judged

    def _let_in(self, number: int, loads: bool) -> Difference | None:
        came = next((each for each in self._waiting if each.number == number), None)
        if came is None:
            return Difference("KV-LIVE-01", "the line", "somebody who waits", f"request {number} is let in")
        passed = [each for each in self._waiting[: self._waiting.index(came)] if not (each.aside or came.aside)]
        if self.holders_first and came.holds:
            passed = []
        elif self.stage.by_priority:
            passed = [each for each in self._waiting if each.rank < came.rank and not each.aside]
        if loads:
            came.aside = came.holds = True
        else:
            self._waiting.remove(came)
            self._running.append(came)
        if not passed:
            return None
        return Difference("KV-LIVE-01", "the line", f"request {passed[0].number} is let in first", f"request {number}")

    def _preempted(self, number: int) -> Difference | None:
        went = next((each for each in self._running if each.number == number), None)
        if went is None:
            return Difference("KV-LIVE-02", "the line", "somebody who runs", f"request {number} is preempted")
        last = max(self._running, key=lambda each: each.rank) if self.stage.by_priority else self._running[-1]
        self._running.remove(went)
        went.aside = went.grammar = went.undecided = went.holds = False
        self._waiting.insert(0, went)
        if last is went or self.resets:
            return None
        expected = f"request {last.number} is preempted"
        return Difference("KV-LIVE-02", "the line", expected, f"request {number} is, and {last.number} runs on")

    def end(self, tokens: int, population: Population) -> Difference | None:
        """A step of so many tokens was scheduled: nobody was left out for whom there was room."""
        room = len(self._running) < self.stage.running_max and tokens < self.budget_tokens
        if self._held_up or not room or not self.may_split:
            return None
        for each in self._waiting:
            request = population.alive.get(each.number)
            ready = request is not None and request.status is Status.WAITING and not (each.grammar or each.undecided)
            if ready and each.number not in self._asked:
                got = f"nobody asks for it, {tokens} of {self.budget_tokens} tokens are scheduled"
                return Difference("KV-LIVE-01", f"request {each.number}, in line", "it is asked for", got)
        return None
