"""Steps that are scheduled before the answers of earlier steps are known: the state of requests then.

A step computes the token that an earlier step has yet to answer, and drafts that it has yet to propose. So a request
counts as computed what may be taken back, and of its tokens it knows only those that were answered. Steps are computed
in the order in which they were dispatched, and their answers are taken in that order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kvreference.answers import Answer, Granted
from kvreference.operations import Admit, Dispatch, Operation, Preempt, ReleaseSkipped, Rewind, Sample, Schedule
from kvreference.population import Population, Request, Status

EXPECTED = -1
"""Stands for a token that is not known yet: of an answer, or a draft."""


class PopulationAhead(Population):
    """The requests alive, where up to ``settings.steps_in_flight_max`` answers of each are awaited."""

    def may(self, kind: type[Operation], request: Request) -> bool:
        if kind is Sample:
            # A request that was preempted takes the answers of the steps that have computed it, also while it loads.
            # None comes between a step's scheduling and its dispatch: what is cached with it would not be fenced.
            answers = bool(request.awaited) and not request.undispatched
            return answers and request.status in (Status.RUNNING, Status.WAITING, Status.LOADING)
        if kind is Admit and request.awaited and self.settings.geometry.keeps_states:
            # It is not known after which token it continues, and there is one state only to continue from.
            return False
        if kind is ReleaseSkipped and request.status is Status.RUNNING:
            return not request.undispatched
        if kind is Schedule:
            rests = request.status is Status.RUNNING and not request.undispatched
            is_full = len(request.awaited) >= self.settings.steps_in_flight_max
            return rests and not is_full and self.tokens_to_schedule(request, request.tokens_pending) > 0
        return super().may(kind, request)

    @property
    def dispatches(self) -> bool:
        return True

    def tokens_from(self, request: Request, computed: int, budget_tokens: int) -> int:
        if request.status is Status.RUNNING:
            return super().tokens_from(request, computed, budget_tokens)
        # Answers expected from steps before its preemption are not computed in its first step.
        drafts, request.drafts = request.drafts, request.drafts[tokens_awaited(request.awaited) :]
        tokens = super().tokens_from(request, computed, budget_tokens)
        request.drafts = drafts
        return tokens

    def drafts_of_answer(self, request: Request) -> int:
        return request.awaited[0] if request.awaited else 0

    def settle(self, operation: Operation, answer: Answer) -> None:
        if isinstance(operation, Dispatch):
            computes = (each.undispatched and each.status is Status.RUNNING for each in self.alive.values())
            self.dispatched += any(computes)
        super().settle(operation, answer)
        if isinstance(operation, Preempt):
            request = self.alive[operation.request]
            request.drafts = [EXPECTED] * tokens_awaited(request.awaited)
        elif isinstance(operation, Rewind):
            # Steps in flight compute on content that is not there; no request waits for their answer.
            self.alive[operation.request].awaited = []

    def _compute(self, request: Request, budget_tokens: int, granted: Granted) -> None:
        before = request.tokens_computed + granted.hit_tokens + granted.external_tokens
        super()._compute(request, budget_tokens, granted)
        request.undispatched = True
        if request.status is Status.RUNNING:
            request.in_flight.append(request.tokens_computed - before)
        verified = request.tokens_computed - len(request.tokens) - tokens_awaited(request.awaited)
        request.answers_step = request.status is Status.RUNNING and verified >= 0
        if request.answers_step:
            # The step answers one token more than drafts that hold, and proposes new ones.
            del request.drafts[request.tokens_computed - len(request.tokens) :]
            request.drafts += [EXPECTED] * (1 + self.settings.drafts_max)
            request.awaited.append(verified)
        _count_drafts(request)

    def _answer(self, request: Request, operation: Sample) -> None:
        drafts, before, last = request.awaited.pop(0), len(request.tokens), request.tokens[-1]
        hold = operation.accepted + operation.beyond
        answered = [*range(last + 1, last + 1 + operation.accepted), operation.token]
        request.tokens += answered[: self.settings.tokens_max - before]
        del request.drafts[: 1 + drafts]
        if request.tokens_computed - before < drafts:
            # Computed anew since it was preempted: at most the drafts that hold were computed again.
            request.tokens_computed = min(request.tokens_computed, before + hold)
        else:
            request.tokens_computed -= drafts - hold
        _count_drafts(request)

    def withdraw(self, number: int) -> None:
        request = self.alive[number]
        if request.undispatched:
            request.in_flight.pop()
            if request.answers_step:
                request.awaited.pop()
        super().withdraw(number)

    def returned(self, numbers: Collection[int]) -> None:
        super().returned(numbers)
        for number in numbers:
            if number in self.alive:
                self.alive[number].in_flight.pop(0)


def tokens_awaited(awaited: Sequence[int]) -> int:
    """How many tokens steps in flight answer if all the drafts that they verify hold."""
    return sum(1 + drafts for drafts in awaited)


def tokens_unsure(request: Request, out_of_turn: bool) -> int:
    """Of how many of the tokens that a request counts as computed a window must not leave anything yet.

    Steps are computed in order, so what a later one writes disturbs no earlier one: only drafts may be taken back.
    Another node that writes ``out_of_turn`` also disturbs what the steps in flight read for their tokens.
    """
    if not out_of_turn:
        return request.drafts_in_flight
    return max(request.drafts_in_flight, min(sum(request.in_flight), request.tokens_computed))


def is_fenced(request: Request) -> bool:
    """Whether the blocks of a request are freed only when the steps in flight are over.

    Any of these steps may still write the blocks. This does not disturb later steps, but it disturbs a node that writes
    them out of turn.
    """
    return bool(request.in_flight)


def tokens_answered(request: Request) -> int:
    """How many tokens may be cached with an answer: those that are computed, but for the answer itself."""
    return min(request.tokens_computed, len(request.tokens) - 1)


def _count_drafts(request: Request) -> None:
    """How many of the computed tokens are taken back if no draft holds."""
    unknown = max(0, request.tokens_computed - len(request.tokens))
    request.drafts_in_flight = min(unknown, sum(request.awaited))
