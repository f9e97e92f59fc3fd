"""The world of a scheduler over its block manager: does every request make progress?

A step is progress if a request was given blocks, or if all wait for a transfer: then another node must act. What is
promised is checked on every step: each counted one takes one off every bound that ``kvreference.scheduler`` states, so
that the bounds hold however long it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve, field, frozen

from kvgate.explore.canonical import Canonical
from kvgate.explore.designs import Design
from kvgate.explore.world import Outcome
from kvgate.gate.story import describe, describe_answer
from kvgate.monitors.slot_memory import GhostMemory
from kvreference.operations import Abort, Preempt, Sample, Transferred
from kvreference.scheduler.limits import Limits
from kvreference.scheduler.observation import Observation
from kvreference.scheduler.operations import Operation, Reply, Step, Submit
from kvreference.scheduler.progress import is_held_up, is_stuck, steps_to_admission, steps_to_answer
from kvreference.scheduler.scheduler import Scheduler, step
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot, Violation, check


@frozen
class Shop:
    """How small a scheduler's world is: its settings, and what may be asked of it."""

    settings: Settings
    limits: Limits
    submits: tuple[Submit, ...]
    replies: tuple[Reply, ...] = (Reply(), Reply(ends=True))
    aborts: bool = True

    @property
    def bounds(self) -> Mapping[str, str]:
        """The bounds by what they bound."""
        settings, limits = self.settings, self.limits
        return {
            "groups": "; ".join(f"{g.kind.value}, blocks of {g.block_size_tokens}" for g in settings.geometry.groups),
            "pool": f"{settings.blocks - 1} blocks and the null block",
            "requests": f"at most {settings.requests_max} at once, {limits.running_max} of them running, without end",
            "submitted": " or ".join(map(_submitted, self.submits)),
            "steps": f"of at most {limits.budget_tokens} tokens",
            "operations": "submit, step, transfers end and fail" + (", abort" if self.aborts else ""),
        }


def _submitted(submit: Submit) -> str:
    """What a request asks for, in words."""
    parts = [f"{submit.prompt_tokens} tokens, {submit.answers_max} answers"]
    if submit.external_tokens:
        parts.append(f"{submit.external_tokens} from another node {'later' if submit.loads else 'now'}")
    if submit.sends:
        parts.append("read by another node at its end")
    return ", ".join(parts)


class SchedulerWorld:
    """A scheduler of some design, in a scope."""

    def __init__(self, name: str, shop: Shop, factory: Callable[[Settings, Limits], Scheduler] = Scheduler) -> None:
        self.name = name
        self.shop = shop
        self.factory = factory
        self._nothing = GhostMemory(shop.settings)
        self._canonical = Canonical(shop.settings, self._nothing.states)

    @property
    def bounds(self) -> Mapping[str, str]:
        return self.shop.bounds

    def initial(self) -> Scheduler:
        return self.factory(self.shop.settings, self.shop.limits)

    def moves(self, state: Scheduler) -> Iterator[Operation]:
        population = state.manager.population
        for reply in self.shop.replies:
            yield Step((reply,))
        if len(population.alive) < self.shop.settings.requests_max:
            for submit in self.shop.submits:
                yield evolve(submit, arrival=evolve(submit.arrival, request=population.arrived))
        for number in state.transfers():
            yield Transferred(number)
            yield Transferred(number, succeeded=False)
        if self.shop.aborts:
            yield from map(Abort, state.queues.terms)

    def step(self, state: Scheduler, move: Operation) -> Outcome[Scheduler]:
        after, observation = step(state, move)
        waits = is_held_up(after, observation) or not isinstance(move, Step) or not after.queues.terms
        return Outcome(
            after,
            observation,
            observation.advanced or observation.progress or waits,
            tuple(_wrongs(state, move, observation, after)),
        )

    def violations_in(self, state: Scheduler) -> Sequence[Violation]:
        return check(state.manager.snapshot())

    def key(self, state: Scheduler) -> Hashable:
        places = {number: place for place, number in enumerate(state.manager.population.alive)}
        queues = state.queues
        return (
            self._canonical.key(state.manager, self._nothing),
            tuple(places[number] for number in queues.running),
            tuple(places[number] for number in queues.waiting),
            tuple((places[number], terms) for number, terms in queues.terms.items()),
        )

    def snapshot(self, state: Scheduler) -> Snapshot:
        return state.manager.snapshot()

    def describe_edge(self, move: Operation, answer: Any) -> str:
        if not isinstance(answer, Observation):
            return f"{describe_move(move)} -> raised"
        observation = [f"{describe(operation)}: {describe_answer(each)}" for operation, each in answer.performed]
        refused = [] if answer.reason is None else [f"rejected: {answer.reason.value}"]
        return f"{describe_move(move)} -> {'; '.join([*observation, *refused]) or 'nothing happens'}"


def describe_move(move: Operation) -> str:
    """One operation of a scheduler, in words."""
    if isinstance(move, Submit):
        return f"Submit request {move.arrival.request}: {_submitted(move)}"
    return "Step" if isinstance(move, Step) else describe(move)


def _wrongs(before: Scheduler, move: Operation, observation: Observation, after: Scheduler) -> Iterator[Violation]:
    """What a move did to what was promised."""
    if not isinstance(move, Step):
        return
    if is_stuck(after, observation):
        yield Violation(
            "KV-LIVE-03", "no request makes progress, no transfer is under way, and the next step will be the same"
        )
        return
    # A step that waits for a transfer is not counted, but it must not set any request back either.
    passed = int(observation.advanced)
    loading = {*before.transfers(), *after.transfers()}
    preempted, answered = observation.requests(Preempt), observation.requests(Sample)
    for number in after.queues.terms:
        if number not in before.queues.terms or number in loading:
            continue
        if number not in answered and steps_to_answer(after, number) > steps_to_answer(before, number) - passed:
            yield Violation("KV-LIVE-02", f"a step brings request {number} no nearer to its next token")
        let_in = number in after.queues.running or number in preempted
        if not let_in and steps_to_admission(after, number) > steps_to_admission(before, number) - passed:
            yield Violation("KV-LIVE-01", f"a step brings request {number} no nearer to admission")


@frozen
class TinyScheduler:
    """A scheduler in two scopes; what ``Tiny`` is for a block manager."""

    name: str
    mechanism: str
    """What it is about, in one line."""
    shallow: Shop = field(repr=False)
    deep: Shop = field(repr=False)

    def world(self, deep: bool = False, design: Design | None = None) -> SchedulerWorld:
        """The world to explore: of the reference, or of a design that does not work."""
        shop = self.deep if deep else self.shallow
        return SchedulerWorld(self.name, shop) if design is None else SchedulerWorld(self.name, shop, design.factory)
