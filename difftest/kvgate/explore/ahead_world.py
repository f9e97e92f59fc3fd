"""The world of a block manager whose steps are scheduled before the answers of earlier ones are known.

A step is scheduled, dispatched and completed: only then are its answers known, and the next one may complete. No
operation stands for that, so it is a move of the explorer's own. While as many steps are in flight as there may be,
none is scheduled; everything else may happen at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from attrs import frozen

from kvgate.explore.canonical import TRACKS, family_of, token_at, track_of
from kvgate.explore.manager_world import ManagerWorld, Moment, violations_of
from kvgate.explore.steps_in_flight import AheadMemory, answering, drafts_after
from kvgate.explore.world import Outcome
from kvgate.gate.story import describe, describe_answer
from kvreference.answers import Answer, Done
from kvreference.operations import Admit, Dispatch, Operation, Sample, Schedule
from kvreference.population import Request
from kvreference.snapshot import Violation


@frozen
class Over:
    """The oldest step in flight is over: its answers."""

    answers: tuple[Sample, ...]


class AheadWorld(ManagerWorld):
    """A block manager of some design, in a scope with steps in flight."""

    memory = AheadMemory

    def moves(self, state: Moment) -> Sequence[Operation | Over]:
        return list(self._moves(state))

    def _moves(self, state: Moment) -> Iterator[Operation | Over]:
        population, steps = state.manager.population, _memory(state).in_flight
        is_full = len(steps) >= self.scope.settings.steps_in_flight_max
        undispatched = any(request.undispatched for request in population.alive.values())
        for move in super().moves(state):
            # An empty step does not count, and answers come with the end of their step.
            is_none = isinstance(move, Sample) or (isinstance(move, Dispatch) and not undispatched)
            if not (is_none or (isinstance(move, (Admit, Schedule)) and (is_full or self._is_over(state, move)))):
                yield move
        if steps and not undispatched:
            answers = [_answers(*each) for each in _memory(state).answers(answering(state.manager))]
            yield from map(Over, product(*answers))

    def _is_over(self, state: Moment, move: Admit | Schedule) -> bool:
        """Whether a request has all tokens that it may have: then it has ended."""
        return len(state.manager.population[move.request].tokens) >= self.scope.settings.tokens_max

    def step(self, state: Moment, move: Operation | Over) -> Outcome[Moment]:
        return self._end(state, move) if isinstance(move, Over) else super().step(state, move)

    def _end(self, state: Moment, move: Over) -> Outcome[Moment]:
        manager, memory = state.manager.copy(), _memory(state).copy()
        alive = answering(manager)
        drafts = {request.number: count for request, count in memory.answers(alive)}
        numbers = [work.request for work in memory.in_flight[0]]
        misread = violations_of(memory.compute(alive))
        wrong = list(misread if self.checks.watches_memory else ())
        manager.returned(numbers)
        for answer in move.answers:
            if manager.population.resolve(answer) != answer:
                wrong.append(Violation("KV-SYS-02", f"the answer of request {answer.request} is not awaited"))
                break
            known = len(alive[answer.request].tokens)
            manager.apply(answer)
            books = memory.answered(answer, alive[answer.request], known, drafts[answer.request])
            wrong += [] if books is None else [books]
        return Outcome(self._after(manager, memory), Done(), True, tuple(wrong))

    def violations_in(self, state: Moment) -> Sequence[Violation]:
        return [*super().violations_in(state), *self.checks.of_flight(state.manager, _memory(state))]

    def describe_edge(self, move: Operation | Over, answer: Answer | None) -> str:
        if not isinstance(move, Over):
            return super().describe_edge(move, answer)
        said = "; ".join(["The oldest step in flight is over", *map(describe, move.answers)])
        return f"{said} -> {'raised' if answer is None else describe_answer(answer)}"


def _memory(state: Moment) -> AheadMemory:
    assert isinstance(state.ghost, AheadMemory)
    return state.ghost


def _answers(request: Request, drafts: int) -> Iterator[Sample]:
    """What a step may answer that verifies so many drafts: where one is wrong, the model says something else."""
    for accepted in range(drafts + 1):
        written = [*request.tokens, *drafts_after(request.tokens, accepted)]
        track = (track_of(written[-1]) + (accepted < drafts)) % TRACKS
        yield Sample(request.number, accepted, token_at(family_of(written[0]), track, len(written)), 0)
