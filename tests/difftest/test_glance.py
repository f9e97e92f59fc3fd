"""Glances.

Goal: between two comparisons of the whole states, the parts that an operation may have changed are compared after it.
Any other change of the system is found later and shown where it happened. Method: the reference as a system that can be
read in part, and subclasses of it with an injected fault.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import islice
from typing import ClassVar

import pytest

from kvgate.adapters.reference import Reference
from kvgate.gate.case_runner import Lane, Trials
from kvgate.kernel.glance import WHOLE_EVERY
from kvgate.kernel.models import MODELS
from kvgate.kernel.protocol import Parts
from kvgate.levels.manager import Bench, run
from kvreference.answers import Answer
from kvreference.free_queue import FreeQueue
from kvreference.operations import Admit, Arrive, Finish, Operation, Run, Sample, Schedule, TakeEvents
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot

SETTINGS = Settings(MODELS["gemma-hybrid"].geometry, blocks=600, tokens_max=400, chunk_tokens=64)
DECODES: tuple[Operation, ...] = (Sample(0, 0, 7, 0), Schedule(0, 1))
STEPS: tuple[Operation, ...] = (Arrive(0, (Run(0, 200),)), Admit(0, 64), *[Schedule(0, 64)] * 3, *DECODES * 20)
LANE = Lane(MODELS["full"], "hostile")


class InPart(Reference):
    """Can be read in part, and counts how often it is read as a whole."""

    whole: ClassVar[int] = 0

    def tables_of(self, request: int) -> list[list[int]]:
        return [list(table.blocks) for table in self.tables.get(request, ())]

    def snapshot(self) -> Snapshot:
        InPart.whole += 1
        return super().snapshot()

    def references_of(self, blocks: Sequence[int]) -> list[int]:
        return [self.pool.references[block] for block in blocks]

    def contents_of(self, blocks: Sequence[int]) -> list[Hashable]:
        return [self.pool.cached.content_of(block) for block in blocks]

    def listed(self, contents: Sequence[Hashable]) -> list[tuple[int, ...]]:
        return [self.pool.cached.entries().get(content, ()) for content in contents]  # type: ignore[call-overload]  # a system may be asked for none

    def blocks_free(self) -> int:
        return len(self.pool.free)

    def free_ends(self, blocks: int) -> tuple[list[int], list[int]]:
        return list(islice(self.pool.free, blocks)), list(islice(reversed(self.pool.free), blocks))


class HeadFirst(InPart):
    """Releases the blocks of a request that finishes from its head on."""

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, Finish):
            for table in self.tables[operation.request]:
                table.blocks.reverse()
        return super().apply(operation)


class SwapsElsewhere(InPart):
    """With the fifth operation, two blocks in the middle of the free queue change places."""

    def apply(self, operation: Operation) -> Answer:
        if self.performed == 4:
            order = list(self.pool.free)
            middle = len(order) // 2
            order[middle : middle + 2] = order[middle : middle + 2][::-1]
            self.pool.free = FreeQueue(order)
        return super().apply(operation)


class LosesATable(InPart):
    """With the fourth operation, the table of a request names a block twice."""

    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        if self.performed == 4:
            table = self.tables[0][1].blocks
            table[-1] = table[-2]
        return answer


def test_the_whole_is_read_now_and_then_alone() -> None:
    """Every few operations, and after each of those that end the run."""
    assert isinstance(InPart(SETTINGS), Parts)
    InPart.whole = 0
    lockstep, divergences = run(Bench(InPart, ("lockstep", "ghost")).glancing(), SETTINGS, STEPS)
    assert ([], True) == (divergences, lockstep.glances)
    closing = len(lockstep.performed) - len(STEPS)
    assert len(STEPS) // WHOLE_EVERY + closing == InPart.whole


@pytest.mark.parametrize("system", [HeadFirst, LosesATable])
def test_what_an_operation_may_change_is_compared_at_once(system: type[InPart]) -> None:
    """The divergence is the same as that of whole comparisons, and none was due."""
    steps: tuple[Operation, ...] = (*STEPS[:8], Finish(0), *[TakeEvents()] * 4)
    bench = Bench(system, ("lockstep",))
    (_, whole), (_, glanced) = (run(each, SETTINGS, steps) for each in (bench, bench.glancing()))
    assert whole == glanced != []


def test_what_changes_elsewhere_is_found_with_the_whole_and_shown_where_it_happened() -> None:
    """A run with glances finds it later; a trial runs the case again, and says which operation it was."""
    bench = Bench(SwapsElsewhere, ("lockstep",))
    (whole,), (glanced,) = (run(each, SETTINGS, STEPS)[1] for each in (bench, bench.glancing()))
    assert (4, WHOLE_EVERY - 1) == (whole.step, glanced.step)
    (found,) = Trials(bench).trial(LANE, "0/0", 0).found
    assert (4, 5) == (found.divergence.step, len(found.case.operations))


def test_what_a_finding_explains_earlier_hides_nothing_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a new divergence stays one. Method: the same trial, where a finding explains the earlier one."""
    monkeypatch.setattr("kvgate.levels.manager.explain", lambda found, _lockstep: "known" if found.step == 4 else None)
    (found,) = Trials(Bench(SwapsElsewhere, ("lockstep",))).trial(LANE, "0/0", 0).found
    assert WHOLE_EVERY - 1 == found.divergence.step


def test_the_whole_is_compared_at_the_end() -> None:
    """However short the run is."""
    bench = Bench(SwapsElsewhere, ("lockstep",)).glancing()
    (found,) = run(bench, SETTINGS, STEPS[:6])[1]
    assert 6 == found.step


def test_a_system_that_cannot_be_read_in_part_is_compared_as_a_whole() -> None:
    """The control: with the reference as it is nothing is glanced at."""
    lockstep, divergences = run(Bench(Reference).glancing(), SETTINGS, STEPS)
    assert ([], False) == (divergences, lockstep.glances)
