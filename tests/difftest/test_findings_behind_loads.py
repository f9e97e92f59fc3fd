"""Findings 013 and 014 where another node's blocks are loaded: a table goes on behind what is loaded.

Goal: the pool's counter may part from its queue by as much as the table is too long, and by nothing else. Method: go
the way of their traces with the fault, and with the counter off by another amount; and look where nothing is too long.
"""

from __future__ import annotations

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.findings import explaining
from kvgate.findings.f013_compressed_block_known_by_its_slots import KnownBySlots
from kvgate.findings.f014_second_full_group_not_cut import SecondGroupUncut
from kvgate.findings.register import FOLDER, all_findings, folder_of
from kvgate.findings.shared_faults import HitsPastLoad
from kvgate.gate.case_runner import Lane
from kvgate.gate.generator import PRESETS, Generator
from kvgate.kernel.models import load
from kvgate.kernel.protocol import Factory
from kvgate.levels.manager import Bench, draw_case, run
from kvgate.levels.registry import read
from kvreference.operations import Admit
from kvreference.snapshot import Snapshot

SLOTS, UNCUT = "013-compressed-block-known-by-its-slots", "014-second-full-group-not-cut"


class Off(HitsPastLoad):
    """The pool's counter is off by another amount, where the fault puts it off."""

    def snapshot(self) -> Snapshot:
        snapshot = super().snapshot()
        more = snapshot.blocks_free - len(snapshot.free)
        return evolve(snapshot, blocks_free=len(snapshot.free) + self.instead_of(more) if more else len(snapshot.free))

    def instead_of(self, blocks: int) -> int:
        """By how much."""
        return blocks


class Twice(Off):
    """Twice as much."""

    def instead_of(self, blocks: int) -> int:
        return 2 * blocks


class TheOtherWay(Off):
    """Fewer than there are."""

    def instead_of(self, blocks: int) -> int:
        return -blocks


class Uncut(SecondGroupUncut, Reference):
    """014, as a system."""


class UncutTwice(Twice, SecondGroupUncut, Reference):
    """The same with a counter that is off by more."""


class UncutTheOtherWay(TheOtherWay, SecondGroupUncut, Reference):
    """The same with a counter that is off to the other side."""


class BySlots(KnownBySlots, Reference):
    """013, as a system."""

    release = "ascend 0.20.2rc1"


class BySlotsTwice(Twice, BySlots):
    """The same with a counter that is off by more."""


class BySlotsTheOtherWay(TheOtherWay, BySlots):
    """The same with a counter that is off to the other side."""


class BySlotsElsewhere(BySlots):
    """013 in a release that has it not."""

    release = "0.20.2"


@pytest.mark.parametrize(
    ("finding", "factory", "known"),
    [
        (UNCUT, Uncut, [UNCUT]),
        (UNCUT, UncutTwice, []),
        (UNCUT, UncutTheOtherWay, []),
        (SLOTS, BySlots, [SLOTS]),
        (SLOTS, BySlotsTwice, []),
        (SLOTS, BySlotsTheOtherWay, []),
        (SLOTS, BySlotsElsewhere, []),
    ],
)
def test_only_what_is_too_long_is_miscounted(finding: str, factory: Factory, known: list[str]) -> None:
    """Goal: no other miscount is excused. Method: the trace, with the counter off as the fault says, and otherwise."""
    trace = read(FOLDER / folder_of(finding) / "trace-load.jsonl")
    bench = Bench(factory, trace.header.detectors)
    lockstep, (divergence,) = run(bench, trace.header.settings, trace.operations)
    assert "KV-INV-03" == divergence.difference.statement
    assert known == [each.id for each in all_findings() if explaining.explains(each, divergence, lockstep)]


def test_where_no_block_of_tokens_is_the_same_014_keeps_none() -> None:
    """Goal: the trace of 013 is that one's. Method: 014 alone goes the same way, and nothing is miscounted."""
    trace = read(FOLDER / folder_of(SLOTS) / "trace-load.jsonl")
    _, found = run(Bench(Uncut, trace.header.detectors), trace.header.settings, trace.operations)
    assert [] == list(found)


class CountsAlone(HitsPastLoad, Reference):
    """Fewer than none would be taken, with hits that are right."""


def test_no_right_hit_is_too_long() -> None:
    """Goal: the miscount is a consequence of the hit, and no fault by itself. Method: in lockstep with the reference
    over drawn cases with loads, which differ in nothing."""
    lane = Lane(load("compressed+transfers"), "hostile")
    generator = Generator(PRESETS[lane.preset], lane.model.geometry, lane.model.features)
    loaded = 0
    for index in range(30):
        case = draw_case(generator, lane, f"behind/{index}", 0)
        lockstep, found = run(Bench(CountsAlone, ("lockstep", "check")), case.settings, case.operations)
        loaded += sum(isinstance(each, Admit) and each.external_tokens > 0 for each in lockstep.performed)
        assert not list(found)
    assert loaded > 30
