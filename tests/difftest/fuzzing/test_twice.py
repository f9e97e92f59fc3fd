"""Cases run a second time: another outcome is found, but another name for the same content does not count."""

from __future__ import annotations

import os
from collections.abc import Hashable

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.campaigns.twice import again
from kvgate.gate.case_runner import Lane
from kvgate.gate.generator import PRESETS, Generator
from kvgate.gate.level import Case
from kvgate.kernel.models import load
from kvgate.levels.manager import MONITORS, Bench, draw_case
from kvreference.answers import Answer, Hit
from kvreference.operations import LookUp, Operation
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot


class _NamesAnew(Reference):
    """Names content by numbers that no other system gives."""

    _next = 0

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._names: dict[Hashable, int] = {}

    def _name(self, content: Hashable) -> int | None:
        if content is None:
            return None
        _NamesAnew._next += 1
        return self._names.setdefault(content, _NamesAnew._next)

    def snapshot(self) -> Snapshot:
        seen = super().snapshot()
        return evolve(
            seen,
            contents=list(map(self._name, seen.contents)),
            read_entries=lambda: {self._name(content): blocks for content, blocks in seen.entries.items()},
        )


class _AnswersByChance(Reference):
    """Sometimes reports no hit where there is one."""

    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        if isinstance(answer, Hit) and answer.tokens and os.urandom(1)[0] % 2:
            return Hit(0, ((),) * len(answer.blocks))
        return answer


class _StandsByChance(Reference):
    """Puts what is free in one order or another."""

    def snapshot(self) -> Snapshot:
        seen = super().snapshot()
        turned = isinstance(seen.free, list) and len(seen.free) > 4 and os.urandom(1)[0] < 16
        return evolve(seen, free=seen.free[::-1]) if turned else seen


def _case(number: int, preset: str = "hostile") -> Case:
    lane = Lane(load("gemma-hybrid"), preset)
    generator = Generator(PRESETS[preset], lane.model.geometry, lane.model.features)
    return draw_case(generator, lane, str(number), 0)


@pytest.mark.ci
@pytest.mark.parametrize("system", [Reference, _NamesAnew])
def test_the_same_twice_is_not_a_finding(system: type[Reference]) -> None:
    """Goal: no false alarm. Method: the reference, and one that gives new names to its contents in every run."""
    assert [None] * 4 == [again(Bench(system, MONITORS), _case(number), 0) for number in range(4)]


@pytest.mark.parametrize("system", [_AnswersByChance, _StandsByChance])
def test_another_outcome_is_found(system: type[Reference]) -> None:
    """Goal: an outcome that differs in the second run is found, at its first step. Method: nondeterministic systems."""
    seen = [found for number in range(6) if (found := again(Bench(system, ("leak",)), _case(number), 0))]
    assert len(seen) > 0
    for found in seen:
        assert ("twice", "KV-SYS-04") == (found.divergence.detector, found.divergence.difference.statement)
        assert found.divergence.step == len(found.case.operations) - 1
        assert found.divergence.operation == found.case.operations[-1]
    if system is _AnswersByChance:
        assert {LookUp} == {type(found.divergence.operation) for found in seen}
