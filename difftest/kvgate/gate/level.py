"""A level: what is driven, how it is driven, and what checks it.

A block manager alone, a scheduler on its block manager, and a scheduler on each of two nodes differ in their alphabet,
their world and their checkers, and in nothing else. ``Level`` is what they have to say for themselves; everything that
is the same for all of them (running and shrinking cases, campaigns, trace files, stories, exported tests) asks it.
``kvgate.levels.registry`` lists them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol, TypeAlias

from attrs import evolve, field, frozen

from kvgate.adapters.registry import Loaded
from kvgate.gate.generator import Generator
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvgate.kernel.models import Model
from kvgate.kernel.random_source import Draw, Seeded
from kvgate.monitors.wait_graph import WaitFor
from kvreference.settings import Settings

Operation: TypeAlias = Any
"""An operation of a level's alphabet: an attrs value."""


NO_WORKER = "The worker: what it would read and write is modelled, no tensor is touched."
"""What a run leaves out that has no worker."""


class LevelChoice(str, Enum):
    """What ``--level`` takes: the name of a level, or two of them one after the other."""

    BLOCKS = "blocks"
    SCHEDULER = "scheduler"
    BOTH = "both"
    PAIR = "pair"
    WORKER = "worker"
    TIERS = "tiers"


@frozen
class Case:
    """Enough to run one run again."""

    level: Level = field(repr=False)
    settings: Settings
    operations: tuple[Operation, ...]
    stage: Any = None
    """What schedulers are configured with, of the level's ``stage_type``; None for a block manager alone."""
    model: str = ""
    """The name of the preset or file that the geometry came from."""
    preset: str = ""
    """The name of the generator preset."""
    seed: int | str = 0
    """What the operations were generated from."""

    @property
    def name(self) -> str:
        """The preset, with the level where it is not the lowest: as tallies and reports name it."""
        return self.level.label(self.preset)


class World(Protocol):
    """One run. After the first divergence nothing more can be performed: the states mean nothing from there on."""

    def perform(self, operation: Operation) -> Divergence | None:
        """Perform one operation, if it is legal now, and check what follows."""
        ...

    def candidates(self, kind: type) -> Sequence[int]:
        """The requests that an operation of this kind can name now, or the number of the next request.

        Of a kind that names none, 0. Empty if no operation of this kind means anything now.
        """
        ...

    def close(self) -> Sequence[Divergence]:
        """End everything, and check what remains."""
        ...


class Part(Protocol):
    """One block manager of a world."""

    @property
    def settings(self) -> Settings: ...

    @property
    def lockstep(self) -> Lockstep: ...

    @property
    def waiting(self) -> WaitFor | None:
        """Which request waited for which when a hang was found."""
        ...


class Bench(Protocol):
    """A system under test at one level, and the detectors that check it."""

    @property
    def level(self) -> Level: ...

    @property
    def detectors(self) -> tuple[str, ...]: ...

    @property
    def checkers(self) -> tuple[str, ...]:
        """The detectors that apply to this system."""
        ...

    def glancing(self) -> Bench:
        """The same, which compares the whole states now and then only, where a system can be read in part."""
        ...

    def build(self, case: Case) -> World:
        """A fresh world for a case.

        Raises:
            UsageError: the system does not support what the case asks for.
            SystemUnavailableError: it cannot be built.
        """
        ...


class Level(ABC):
    """One level."""

    name: str
    subject: str
    """What is driven, for a sentence: "a scheduler"."""
    subject_again: str = "it"
    """The pronoun for it."""
    asked_by_that: str = "what it asked of its block manager by that"
    """The heading of the block manager's operations."""
    monitors: tuple[str, ...]
    """The detectors that need no reference."""
    gate: tuple[str, ...]
    """The detectors that the gate uses."""
    aftermath: tuple[tuple[str, ...], ...] = ()
    """The detectors that see what follows from a divergence, each set in a run of its own; empty: all monitors."""
    detectors: tuple[str, ...]
    """All detectors."""
    is_divided: bool = False
    """Whether a world has several block managers."""
    alphabet: tuple[type, ...]
    """Every kind of operation."""
    arrival: type
    """The kind with which a request comes."""
    needed: frozenset[type]
    """The kinds without which requests make no progress: every case has them."""
    drawn: Mapping[type, Callable[[Generator, Case, Draw], Operation]]
    """How an operation of each kind is generated for a case; a kind of the alphabet that is missing is not."""
    stage_type: type | None = None
    """What a case is configured with beyond its settings."""
    simpler: Mapping[type, Mapping[str, int]]
    """How operations and stages get simpler: rules of ``kvgate.gate.shrink``."""
    limits: Mapping[type, Mapping[str, int]] = {}
    """The largest numbers, and the longest tuples, in operations and stages that come from outside."""
    not_tested: tuple[str, ...]
    """What a run at this level leaves out."""

    trace_called: str
    """The file in words: "a trace"."""
    trace_formerly: str
    """The ``format`` of its trace files before version 5, which names the level."""
    trace_annotated: bool = False
    """Whether a line says what the reference answered, and the digest of its state."""
    seed_type: type = str
    """What the header calls the seed: of the case, or of its campaign."""

    def case(self, settings: Settings, operations: Iterable[Operation], stage: Any = None, **where_from: Any) -> Case:
        """A case of this level."""
        return Case(self, settings, tuple(operations), stage, **where_from)

    def options_of(self, stage: Any) -> tuple[str, ...]:
        """What ``kvgate replay`` needs to be given besides a trace with this stage."""
        del stage
        return ()

    def label(self, preset: str) -> str:
        """What a preset is called in tallies and reports."""
        return f"{self.name}/{preset}"

    @property
    def below(self) -> Level:
        """The level of the block managers that are driven."""
        return self

    @abstractmethod
    def operations_of(self, profile: str) -> int:
        """How many operations of the block manager a profile runs, over all lanes."""

    def leaves_out(self, system: str) -> tuple[str, ...]:
        """What a run of ``system`` at this level leaves out."""
        del system
        return (*self.not_tested, NO_WORKER)

    def takes(self, model: Model) -> bool:
        """Whether the level has cases of a model; ``not_tested`` says of which it has none."""
        del model
        return True

    def lanes_apart(self, profile: str, lanes: int) -> int:
        """Every how many lanes one is run, where a profile has less than a case for each."""
        del profile, lanes
        return 1

    # World

    @abstractmethod
    def bench(self, system: Loaded, detectors: tuple[str, ...]) -> Bench:
        """A bench for a loaded system.

        Raises:
            UsageError: there is nothing at this level that the system could run under.
        """

    @abstractmethod
    def parts(self, world: Any, case: Case) -> Sequence[Part]:
        """The block managers of a world."""

    def part_of(self, world: Any, divergence: Divergence | None) -> int:
        """On which of the parts a divergence shows; without one, which of them to look at."""
        del world, divergence
        return 0

    @abstractmethod
    def explain(self, divergence: Divergence, world: Any) -> str | None:
        """The id of the finding that explains a divergence, or None. The world is as it was when it diverged."""

    # Cases

    @abstractmethod
    def set_up(self, generator: Generator, draw: Draw, needs: Sequence[str] = ()) -> Case:
        """A case without operations; ``needs`` are what a mutant needs in order to show."""

    @abstractmethod
    def weights(self, generator: Generator) -> Mapping[type, int]:
        """How often each kind of operation is drawn, relative to the others."""

    def is_possible(self, kind: type, case: Case) -> bool:
        """Whether an operation of this kind can ever mean something in a case."""
        del kind, case
        return True

    def operations_in(self, generator: Generator) -> int:
        """How many operations a case has."""
        return generator.bias.operations

    def draw(self, model: Model, preset: str, seed: str, campaign_seed: int = 0, needs: Sequence[str] = ()) -> Case:
        """The case that a seed generates."""
        return self.draw_with(Generator.of(model, preset), model.name, preset, seed, campaign_seed, needs)

    def draw_with(
        self,
        generator: Generator,
        model: str,
        preset: str,
        seed: str,
        campaign_seed: int = 0,
        needs: Sequence[str] = (),
    ) -> Case:
        """The same from a generator, which need not be that of the model and the preset."""
        source = f"{seed}/{model}/{preset}/{self.name}"
        draw, generator = Seeded(source), generator.for_case(source)
        case = self.set_up(generator, draw, needs)
        weights = {kind: each for kind, each in self.weights(generator).items() if self.is_possible(kind, case)}
        chosen = {
            kind: generator.often(kind.__name__, weight, kind not in self.needed) for kind, weight in weights.items()
        }
        kinds = [kind for kind, weight in chosen.items() for _ in range(weight)]
        drawn = (self.drawn[draw.one_of(kinds)](generator, case, draw) for _ in range(self.operations_in(generator)))
        number = campaign_seed if self.seed_type is int else seed
        return self.that_fits(evolve(case, operations=tuple(drawn), model=model, preset=preset, seed=number))

    def that_fits(self, case: Case) -> Case:
        """The case without requests that no system could run."""
        return case

    def allowed(self, bench: Any, case: Case) -> Case:
        """The case without what would show a known defect of the system instead of the one that is looked for."""
        del bench
        return case

    # Text

    @abstractmethod
    def describe(self, operation: Operation) -> str:
        """An operation, on one line."""

    def describe_stage(self, stage: Any) -> str:
        """What a case is configured with beyond its settings, on one line."""
        del stage
        return ""

    # Traces from outside

    def prompt_tokens(self, operation: Operation) -> int:
        """How many prompt tokens an operation brings."""
        del operation
        return 0

    def blocks_of(self, settings: Settings, stage: Any) -> int:
        """How many blocks there are in all pools."""
        del stage
        return settings.blocks

    def check_stage(self, settings: Settings, stage: Any) -> None:
        """Reject a stage that does not go with the settings.

        Raises:
            ValueError: it does not; says why.
        """
        del settings, stage
