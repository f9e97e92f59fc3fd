"""The findings of other releases: each is shown by its traces where it is, and excuses nothing but itself.

Goal: what is declared of other releases than the installed vLLM is true, and narrow. Method: run their traces in a
process of its own for each; plant neighbouring faults.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from attrs import evolve

from kvgate.adapters.fetching import fetch
from kvgate.adapters.reference import Reference
from kvgate.adapters.releases import release_named
from kvgate.findings import explaining
from kvgate.findings.f006_aligned_before_the_drop import AlignedBeforeTheDrop
from kvgate.findings.f013_compressed_block_known_by_its_slots import KnownBySlots
from kvgate.findings.register import FOLDER, all_findings, id_of
from kvgate.gate.case_runner import Lane
from kvgate.gate.generator import PRESETS, Generator
from kvgate.gate.trace_codec import format_of
from kvgate.kernel.errors import SystemUnavailableError
from kvgate.kernel.models import load
from kvgate.kernel.protocol import Factory
from kvgate.levels.manager import Bench, draw_case, run
from kvgate.levels.registry import read
from kvgate.levels.scheduler.level import SCHEDULER
from kvreference.answers import Hit
from kvreference.attention import Kind
from kvreference.cached_map import Content
from kvreference.events import Stored
from kvreference.geometry import Geometry, Group
from kvreference.operations import Admit, Arrive, Run
from kvreference.population import Request
from kvreference.prefix_cache import no_hit
from kvreference.settings import Settings

TRACES = {
    path: trace
    for path in sorted(FOLDER.glob("*/*.jsonl"))
    if format_of(path) != SCHEDULER.trace_format
    for trace in [read(path)]
    if trace.header.system != "stock"
}
SMOKE = ("native@0.33.0", "ascend")
"""The newest release, and vLLM-Ascend; the others are run with ``-m deep``."""
ELSEWHERE_SECONDS_MAX = 600


ELSEWHERE = """
import json, sys
from pathlib import Path
from kvgate.adapters.registry import load_system
from kvgate.findings import explaining
from kvgate.findings.register import all_findings
from kvgate.levels.manager import Bench, run
from kvgate.levels.registry import read
factory, told = load_system(sys.argv[1]).factory, {}
for name in sys.argv[2:]:
    trace = read(Path(name))
    lockstep, found = run(Bench(factory, trace.header.detectors), trace.header.settings, trace.operations)
    told[name] = [
        [each.detector, each.difference.statement, each.difference.subject,
         [known.id for known in all_findings() if explaining.explains(known, each, lockstep)]]
        for each in found
    ]
print(json.dumps(told))
"""


@pytest.mark.parametrize(
    "system",
    [
        pytest.param(system, marks=pytest.mark.ci if system in SMOKE else pytest.mark.deep)
        for system in sorted({trace.header.system for trace in TRACES.values()})
    ],
)
def test_another_release_shows_its_findings(system: str) -> None:
    """Goal: each finding is true of the release that it names. Method: replay its traces in a process of its own; one
    divergence each, the one that the header names, and that finding alone explains it."""
    pytest.importorskip("vllm")
    try:
        fetch(release_named(system))
    except SystemUnavailableError as error:
        pytest.skip(f"{system} is not to be had, and none of its findings was replayed: {error}")
    paths = [path for path, trace in TRACES.items() if trace.header.system == system]
    finished = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, system, *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
        timeout=ELSEWHERE_SECONDS_MAX,
    )
    assert 0 == finished.returncode, finished.stderr[-3000:]
    expected = {}
    for path in paths:
        violates, finding = TRACES[path].header.violates, id_of(path.parent.name)
        assert violates is not None
        expected[str(path)] = [[violates.detector, violates.statement, violates.subject, [finding]]]
    assert expected == json.loads(finished.stdout.splitlines()[-1])


class TailOfWindow(Reference):
    """A block of the window in which a prompt ends is known by what of it the prompt fills."""

    release = "0.33.0"
    group = 1

    def _register(self, request: Request, tokens: int, now: bool = True) -> None:
        super()._register(request, tokens, now)
        grain, group = self.geometry.grain_tokens, self.geometry.groups[self.group]
        boundary = (request.prompt_tokens - 1) // grain * grain
        block = self.tables[request.number][self.group].blocks[boundary // group.block_size_tokens]
        assert boundary % group.block_size_tokens
        self.pool.cached.register((self.group, self.prefixes[request.number][boundary // grain - 1]), block)


class TailOfFull(TailOfWindow):
    """012, as a system, for prompts of one chunk."""

    group = 0


class TailOfFullBefore(TailOfFull):
    """The same in a release that has it not."""

    release = "0.23.0"


ODD_BLOCKS = Settings(
    Geometry((Group(Kind.FULL, 48), Group(Kind.SLIDING_WINDOW, 32, 64))),
    blocks=16,
    tokens_max=96,
    chunk_tokens=81,
    requests_max=1,
)


@pytest.mark.parametrize(
    ("factory", "known"),
    [(TailOfFull, ["012-prompt-tail-that-serves-nobody"]), (TailOfWindow, []), (TailOfFullBefore, [])],
)
def test_only_a_tail_in_full_attention_is_excused(factory: Factory, known: list[str]) -> None:
    """Goal: 012 excuses that entry in the releases that have it, and no other. Method: plant it in either group; a
    prompt of 81 tokens ends inside a block of both."""
    lockstep, (divergence,) = run(Bench(factory), ODD_BLOCKS, (Arrive(0, (Run(0, 81),)), Admit(0, 81)))
    assert known == [each.id for each in all_findings() if explaining.explains(each, divergence, lockstep)]


class Tail(Reference):
    """The end of a prompt is an entry in one group, as soon as it is computed."""

    release = "0.33.0"
    group = 0
    boundary_tokens = 80

    def _register(self, request: Request, tokens: int, now: bool = True) -> None:
        super()._register(request, tokens, now)
        if tokens >= self.boundary_tokens:
            end, size = self.boundary_tokens, self.geometry.groups[self.group].block_size_tokens
            prefix = self.prefixes[request.number][end // self.geometry.grain_tokens - 1]
            block = self.tables[request.number][self.group].blocks[(end - 1) // size]
            self.pool.cached.register((self.group, prefix), block)


class TailAndShorterHit(Tail, AlignedBeforeTheDrop):
    """012 and 006, as a system."""


class TailAndShorterHitBefore(TailAndShorterHit):
    """The same in a release that has 006 alone."""

    release = "0.23.0"


class OtherTailAndShorterHit(TailAndShorterHit):
    """006, and another entry than that of 012: a block of the window."""

    group = 1


class TailAndRefusal(Tail):
    """012, and an admission that is refused as too long, which no finding does here."""

    def _fits(self, request: Request, hit: Hit, computed: int) -> bool:
        return hit.tokens == 0 and super()._fits(request, hit, computed)


class TailAndBlocksLost(Tail):
    """012, and hits without their blocks: none of 006, whose hit is shorter here as well."""

    def _hit(self, request: Request) -> Hit:
        super()._hit(request)
        self.pool.free.put([self.pool.free.pop()], ())
        return no_hit(self.geometry)


@pytest.mark.parametrize(
    ("factory", "known"),
    [
        (TailAndShorterHit, ["006-aligned-before-the-drop"]),
        (TailAndShorterHitBefore, []),
        (OtherTailAndShorterHit, []),
        (TailAndRefusal, []),
        (TailAndBlocksLost, []),
    ],
)
def test_beside_a_tail_only_the_fault_itself_is_excused(factory: Factory, known: list[str]) -> None:
    """Goal: 012 in one step with 006 is told as 006, and excuses no other defect. Method: plant both, and neighbours of
    either, and go the way of the trace."""
    trace = read(FOLDER / "f006_aligned_before_the_drop" / "trace-beside-012.jsonl")
    _lockstep, (divergence,) = found = run(Bench(factory, ("lockstep",)), trace.header.settings, trace.operations)
    assert known == [each.id for each in all_findings() if explaining.explains(each, divergence, found[0])]


class CountsSlots(KnownBySlots, Reference):
    """013, as a system."""

    release = "ascend 0.20.2rc1"


class CountsSlotsElsewhere(CountsSlots):
    """The same in another release."""

    release = "0.20.2"


class TellsOtherwise(CountsSlots):
    """What is cached is told in words of its own."""

    def _register(self, request: Request, tokens: int, now: bool = True) -> None:
        before = len(self._events)
        super()._register(request, tokens, now)
        self._events[before:] = [
            self._told(each) if isinstance(each, Stored) else each for each in self._events[before:]
        ]

    def _told(self, event: Stored) -> Stored:
        raise NotImplementedError


class CountsTwiceTheSlots(TellsOtherwise):
    """A compressed block is known by twice its slots, and told so."""

    def content(self, request: int, group: int, index: int) -> Content:
        return super().content(request, group, 2 * index + 1 if self.geometry.groups[group].keeps_all else index)

    def _told(self, event: Stored) -> Stored:
        return evolve(event, block_size_tokens=2 * event.block_size_tokens) if event.group == 0 else event


class CutsToNothing(TellsOtherwise):
    """Hits of blocks that are counted in slots, of which the last block is lost."""

    def _hit(self, request: Request) -> Hit:
        hit = super()._hit(request)
        return evolve(hit, blocks=tuple(blocks[:-1] for blocks in hit.blocks))

    def _told(self, event: Stored) -> Stored:
        return evolve(event, tokens=())


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("factory", "share"),
    [(CountsSlots, 0.0), (CountsSlotsElsewhere, 0.8), (CountsTwiceTheSlots, 0.6), (CutsToNothing, 0.5)],
)
def test_only_slots_taken_for_tokens_are_excused(factory: Factory, share: float) -> None:
    """Goal: 013 excuses its own fault and no neighbour. Method: plant each, and count over hostile cases how often no
    finding explains what differs: never of the fault, mostly of a neighbour, for where both do the same nobody can
    tell."""
    lane = Lane(load("compressed+whole-slots"), "hostile")
    generator = Generator(PRESETS[lane.preset], lane.model.geometry, lane.model.features)
    found: list[bool] = []
    for index in range(30):
        case = draw_case(generator, lane, f"slots/{index}", 0)
        lockstep, divergences = run(Bench(factory), case.settings, case.operations)
        found += [
            not any(explaining.explains(known, each, lockstep) for known in all_findings()) for each in divergences
        ]
    assert len(found) >= 10
    assert found.count(True) >= share * len(found)
    assert share or not any(found)
