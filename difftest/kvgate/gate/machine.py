"""A level as a Hypothesis state machine: a rule for each kind of operation, for fewer and smaller cases.

A rule applies if an operation of its kind means something now; it names a request that such an operation can be about.
What an operation says besides comes from the generator of the seeded driver, with Hypothesis in the place of the seed.
What diverges is a case of the level, as the seeded driver would have found it: it is stored and described alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from keyword import iskeyword
from typing import Any, ClassVar, TypeVar

from attrs import evolve, fields_dict
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import engine
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kvgate.gate.case_runner import CaseRun, Lane
from kvgate.gate.generator import Generator
from kvgate.gate.level import Bench, Case, Level, Operation, World
from kvgate.gate.verdict import Found
from kvgate.kernel.difference import Divergence

T = TypeVar("T")
REQUESTS: Bundle[int] = Bundle("requests")
RULES = 40
"""About how many rules a machine has."""


class Shrinking:
    """Choices that Hypothesis makes, and makes smaller."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def chance(self, percent: int) -> bool:
        # Counted from the top, so that the smallest choice is "no".
        return self._draw(st.integers(0, 99)) >= 100 - percent

    def one_of(self, options: Sequence[T]) -> T:
        return self._draw(st.sampled_from(options))


class Naming(Generator):
    """The generator of a model with one preset, for operations on one request."""

    number = 0

    def request(self, draw: object) -> int:
        del draw
        return self.number


@st.composite
def cases_of(draw: st.DrawFn, bench: Bench, generator: Generator) -> Case:
    """Cases without operations."""
    return bench.level.allowed(bench, bench.level.set_up(generator, Shrinking(draw)))


@st.composite
def operations_of(draw: st.DrawFn, kind: type, generator: Generator, case: Case) -> Operation:
    """Operations of one kind for a case."""
    return case.level.drawn[kind](generator, case, Shrinking(draw))


class DivergenceError(AssertionError):
    """The system and the reference disagree, in a way that no finding explains."""

    def __init__(self, found: Found) -> None:
        divergence, difference = found.divergence, found.divergence.difference
        super().__init__(
            f"{difference.statement}: {divergence.sentence}\n"
            f"step {divergence.step}: {divergence.operation}\n"
            f"{difference.subject}\nexpected: {difference.expected}\ngot:      {difference.got}"
        )
        self.found = found


class LevelMachine(RuleBasedStateMachine):
    """One case of a level. ``machine_for`` adds the rules."""

    bench: ClassVar[Bench]
    lane: ClassVar[Lane]
    world: World
    case: Case
    """With the operations that were performed."""

    def __init__(self) -> None:
        super().__init__()
        generator = Naming.of(self.lane.model, self.lane.preset)
        assert isinstance(generator, Naming), "it is made by its own class"
        self.generator = generator
        self.ended = True
        """Whether nothing more can be performed."""
        self._candidates: dict[type, Sequence[int]] = {}

    @initialize(case=st.runner().flatmap(lambda machine: cases_of(machine.bench, machine.generator)))
    def set_up(self, case: Case) -> None:
        where_from = {"model": self.lane.model.name, "preset": self.lane.preset, "seed": case.level.seed_type()}
        self.case, self.world, self.ended = evolve(case, **where_from), self.bench.build(case), False

    def teardown(self) -> None:
        if not self.ended:
            self._check(self.world.close())

    def candidates(self, kind: type) -> Sequence[int]:
        """Those of the world; once the case is ended, any operation of any kind, for none is performed."""
        if self.ended:
            return [0]
        if kind not in self._candidates:
            self._candidates[kind] = self.world.candidates(kind)
        return self._candidates[kind]

    def perform(self, operation: Operation) -> None:
        """Perform one operation, unless no system could: of a request that never fits, say."""
        level = self.case.level
        self._candidates.clear()
        for each in level.allowed(self.bench, evolve(self.case, operations=(operation,))).operations:
            if not self.ended:
                self.case = evolve(self.case, operations=(*self.case.operations, each))
                divergence = self.world.perform(each)
                self._check([] if divergence is None else [divergence])

    def _check(self, divergences: Sequence[Divergence]) -> None:
        if divergences:
            self.ended = True
            run = CaseRun(self.case, self.world, tuple(divergences), len(self.case.operations))
            for found in run.found():
                if found.finding is None:
                    raise DivergenceError(found)


@st.composite
def _next(draw: st.DrawFn, kind: type, names_request: bool) -> Operation:
    machine: LevelMachine = draw(st.runner())
    numbers = machine.candidates(kind)
    is_drawn = names_request and not machine.ended
    machine.generator.number = draw(REQUESTS.filter(numbers.__contains__)) if is_drawn else numbers[0]
    return draw(operations_of(kind, machine.generator, machine.case))


def machine_for(bench: Bench, lane: Lane) -> type[LevelMachine]:
    """A state machine that runs ``bench`` on one model with one generator preset.

    Hypothesis chooses among rules alike, and switches some of them off in each case. So a kind that the generator draws
    often has several rules, ``schedule`` and ``schedule_2``, of which a few are nearly always on.
    """
    level = bench.level
    weights = level.weights(Generator.of(lane.model, lane.preset))
    rules = {}
    for kind, weight in weights.items():
        for number in range(1, 2 + RULES * weight // sum(weights.values())):
            # A rule is a function, and no function is called ``continue``.
            name = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower() + (f"_{number}" if number > 1 else "")
            name += "_" * iskeyword(name)
            rules[name] = _rule_of(kind, name, level)
    name = f"{type(level).__name__.removesuffix('Level')}Machine[{lane.model.name}-{lane.preset}]"
    return type(name, (LevelMachine,), {"bench": bench, "lane": lane, **rules})


def _rule_of(kind: type, name: str, level: Level) -> Callable[..., Any]:
    arrives, names_request = kind is level.arrival, kind is not level.arrival and "request" in fields_dict(kind)

    def happen(self: LevelMachine, operation: Operation) -> None:
        self.perform(operation)

    def arrive(self: LevelMachine, operation: Operation) -> Any:
        (number,) = self.candidates(kind)
        self.perform(operation)
        return multiple() if self.ended or number in self.candidates(kind) else number

    body: Callable[..., Any] = arrive if arrives else happen
    body.__name__ = name
    applies = precondition(lambda self: bool(self.candidates(kind)))(body)
    operation = _next(kind, names_request)
    return rule(target=REQUESTS, operation=operation)(applies) if arrives else rule(operation=operation)(applies)


def search(machine: type[LevelMachine], how: settings, shrink_seconds: float) -> None:
    """Let Hypothesis look for a divergence, and make what it finds smaller for so long.

    Raises:
        DivergenceError: one that no finding explains, with the smallest case that it found.
    """
    # Its own limit is five minutes, and no setting.
    usual, engine.MAX_SHRINKING_SECONDS = engine.MAX_SHRINKING_SECONDS, int(shrink_seconds)
    try:
        run_state_machine_as_test(machine, settings=how)
    finally:
        engine.MAX_SHRINKING_SECONDS = usual
