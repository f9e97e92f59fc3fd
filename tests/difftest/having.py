"""The reference with findings, as a system under test: tests of findings need no vLLM with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.adapters.releases import INSTALLED
from kvgate.adapters.releases.description import Release
from kvgate.findings.modelled import Modelled, reference_of
from kvgate.gate.case_runner import CaseRun, run_case
from kvgate.kernel.protocol import System
from kvgate.levels.manager import GATE, MANAGER, Bench
from kvreference.manager import Manager
from kvreference.operations import Operation
from kvreference.rules import Delta, Rules
from kvreference.settings import Settings


class Having(Reference):
    """A block manager that has the findings of ``has``, and is described as ``description``."""

    has: Release = INSTALLED
    description: Release = INSTALLED
    broken: tuple[Delta, ...] = ()
    """How the rules that its findings build on are broken."""
    wrong: tuple[Delta, ...] = ()
    """How it is wrong after its findings."""

    @property
    def release(self) -> str:
        return self.has.label

    def fixes(self) -> frozenset[str]:
        return frozenset()

    def __init__(self, settings: Settings) -> None:
        described, self.description = self.description, self.has
        built, _ = reference_of(self, settings)
        self.description = described
        rules = Rules((*self.broken, *built.choices.rules.deltas, *self.wrong))
        super().__init__(built.settings, evolve(built.choices, rules=rules))
        self.population = built.population


def having(
    has: Release = INSTALLED,
    *,
    undescribed: Sequence[str] = (),
    broken: Sequence[Delta] = (),
    wrong: Sequence[Delta] = (),
) -> type[Having]:
    """A system of the release ``has``, described as the release without the findings ``undescribed``."""
    members = {
        "has": has,
        "description": evolve(has, findings=has.findings.difference(undescribed)),
        "broken": tuple(broken),
        "wrong": tuple(wrong),
    }
    return type("HavingFindings", (Having,), members)


def with_base(*broken: Delta) -> Callable[[System, Settings], tuple[Manager, Modelled]]:
    """The base of comparison if a test breaks rules of the reference, which the findings build on."""

    def reference(system: System, settings: Settings, stage: object = None) -> tuple[Manager, Modelled]:
        sound, known = reference_of(system, settings, stage)
        rules = Rules((*broken, *sound.choices.rules.deltas))
        manager = Manager(sound.settings, evolve(sound.choices, rules=rules))
        manager.population = sound.population
        return manager, known

    return reference


def played(
    factory: type[Having], settings: Settings, operations: Sequence[Operation], detectors: tuple[str, ...] = GATE
) -> CaseRun:
    """A run of ``operations``."""
    case = MANAGER.case(settings, tuple(operations), model="full", preset="tiny", seed=7)
    return run_case(Bench(factory, detectors), case)
