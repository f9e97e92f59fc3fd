"""The findings: each is written up, is shown by its traces, and excuses nothing but itself.

Goal: what is declared is true, is told, and is narrow. Method: read what is written against what is declared; run the
traces on vLLM, where it is installed, and on the reference with the finding's fault planted, where it is not; plant
neighbouring faults that violate the same guarantees.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.campaign import Lane, draw_case
from kvgate.command.replay import where_the_reference_changed
from kvgate.declared import (
    EXPLANATIONS,
    AlignedBeforeTheDrop,
    GateSubtractsSkippedBlocks,
    LookAheadVerifiedOnce,
    MediaForgottenInPromptTail,
    SaltNamedLikeAnAdapter,
)
from kvgate.difference import Divergence
from kvgate.errors import SystemUnavailableError
from kvgate.faults import (
    EventsSpanNullBlocks,
    ExternalTokensTakeOtherHits,
    LoadForgetsItsLastToken,
    LookAheadSpreads,
)
from kvgate.faults_of_releases import MaskOmitsLookAhead, SecondGroupUncut
from kvgate.generators import PRESETS, Generator
from kvgate.lockstep import Lockstep
from kvgate.models import load
from kvgate.releases import fetch, release_named
from kvgate.runner import Bench, run
from kvgate.system import Factory
from kvgate.systems import load_system
from kvgate.trace import Trace, Violated, read
from kvreference.answers import Hit
from kvreference.attention import Kind
from kvreference.content import Keys, Prefix, Prefixes
from kvreference.events import Stored
from kvreference.geometry import Geometry, Group
from kvreference.hit_lookup import longest_hit
from kvreference.holdings import Allocation, Holdings, Span
from kvreference.operations import Admit, Arrive, Evict, LookUp, Run
from kvreference.population import Request
from kvreference.settings import Settings
from kvreference.statements import STATEMENTS

ROOT = Path(__file__).parents[2]
FINDINGS = ROOT / "difftest" / "findings"
REGISTER = (FINDINGS / "README.md").read_text(encoding="utf-8")
TRACES = sorted(FINDINGS.glob("*/*.jsonl"))

UNDECLARED = {"013-compressed-block-known-by-its-slots"}
"""What is shown as a divergence at every run: no rule of the reference stands for it alone."""
ELSEWHERE_SECONDS_MAX = 600

CASES = 60
"""How many cases each neighbouring fault is looked for in."""

of_every_trace = pytest.mark.parametrize("path", TRACES, ids=lambda path: f"{path.parent.name[:3]}-{path.stem}")


class GateSubtracts(GateSubtractsSkippedBlocks, Reference):
    """002, as a system."""


class SaltCollides(SaltNamedLikeAnAdapter, Reference):
    """003, as a system."""


class MediaForgotten(MediaForgottenInPromptTail, Reference):
    """004, as a system."""


class VerifiedOnce(LookAheadVerifiedOnce, Reference):
    """005, as a system."""


class AlignsFirst(AlignedBeforeTheDrop, Reference):
    """006, as a system."""


class EventsSpan(EventsSpanNullBlocks, Reference):
    """007, as a system."""


class TakesOtherHits(ExternalTokensTakeOtherHits, Reference):
    """008, as a system."""


class ForgetsLastToken(LoadForgetsItsLastToken, Reference):
    """009, as a system."""


class Spreads(LookAheadSpreads, Reference):
    """010, as a system."""


class MaskOmits(MaskOmitsLookAhead, Reference):
    """011, as a system."""

    release = "0.22.1"


class SecondUncut(SecondGroupUncut, Reference):
    """014, as a system."""


PLANTED: dict[str, Factory] = {
    "002-gate-subtracts-skipped-blocks": GateSubtracts,
    "003-salt-collides-with-adapter-name": SaltCollides,
    "004-media-forgotten-in-prompt-tail": MediaForgotten,
    "005-lookahead-verified-at-another-length": VerifiedOnce,
    "006-aligned-before-the-drop": AlignsFirst,
    "007-events-span-null-blocks": EventsSpan,
    "008-external-tokens-take-other-hits": TakesOtherHits,
    "009-load-forgets-its-last-token": ForgetsLastToken,
    "010-lookahead-spreads-to-equal-groups": Spreads,
    "011-mask-omits-look-ahead": MaskOmits,
    "014-second-full-group-not-cut": SecondUncut,
}
"""Every finding but 001, 012 and 013, whose faults are not one of the block manager's rules alone."""


@cache
def trace_at(path: Path) -> Trace:
    return read(path)


def is_stock(path: Path) -> bool:
    """Whether a trace is of the vLLM that is installed; others need a process of their own."""
    return trace_at(path).header.system == "stock"


def diverges(factory: Factory, trace: Trace, without: int | None = None) -> list[tuple[Violated, list[str]]]:
    """What a system violates on a trace, or on all of it but one operation, and every finding that explains it."""
    operations = [operation for index, operation in enumerate(trace.operations) if index != without]
    lockstep, divergences = run(Bench(factory, trace.header.detectors), trace.header.settings, operations)
    return [(violated(divergence), explained(divergence, lockstep)) for divergence in divergences]


def violated(divergence: Divergence) -> Violated:
    return Violated(divergence.detector, divergence.difference.statement, divergence.difference.subject)


def explained(divergence: Divergence, lockstep: Lockstep) -> list[str]:
    return [finding for finding, explains in EXPLANATIONS.items() if explains(divergence, lockstep)]


def unwrapped(text: str) -> str:
    """A text without line breaks and quotation marks of Markdown."""
    return " ".join(re.sub(r"^>", " ", text, flags=re.MULTILINE).split())


# What is written


def test_what_is_declared_is_written_up() -> None:
    """Goal: no difference is excused without a story, and none is told that is not. Method: compare ids and folders."""
    folders = {path.name for path in FINDINGS.iterdir() if path.is_dir()}
    assert set(EXPLANATIONS) | UNDECLARED == folders
    assert not set(EXPLANATIONS) & UNDECLARED
    assert not [
        name for name in folders for file in ("README.md", "trace.jsonl") if not (FINDINGS / name / file).is_file()
    ]


def test_the_register_has_a_row_for_every_finding() -> None:
    """Goal: the register is complete and true. Method: its ids, statements and versions against folders and traces."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in REGISTER.splitlines() if line[:3] == "| ["
    ]
    told = {re.sub(r"\[(.*)\]\(.*\)", r"\1", row[0]): (row[1], row[3]) for row in rows}
    names = {*EXPLANATIONS, *UNDECLARED}
    headers = {name: trace_at(FINDINGS / name / "trace.jsonl").header for name in names}
    assert {name: (header.violates and header.violates.statement) for name, header in headers.items()} == {
        name: statement for name, (statement, _versions) in told.items()
    }
    assert not [name for name, (_statement, versions) in told.items() if headers[name].system_version not in versions]


@of_every_trace
def test_a_write_up_quotes_the_guarantee_and_says_how_to_see_it(path: Path) -> None:
    """Goal: a reader has the guarantee's own words, and one command. Method: look for both, for every trace."""
    text = unwrapped((path.parent / "README.md").read_text(encoding="utf-8"))
    violates = trace_at(path).header.violates
    assert violates is not None
    assert violates.statement in text
    assert STATEMENTS[violates.statement] in text
    assert f"kvgate replay {path.relative_to(ROOT).as_posix()}" in text


@of_every_trace
def test_the_reference_still_goes_the_way_of_a_trace(path: Path) -> None:
    """Goal: a trace tells what the reference does today. Method: compare answers and digests."""
    assert where_the_reference_changed(trace_at(path)) is None


# What is shown


@of_every_trace
def test_the_reference_passes(path: Path) -> None:
    """Goal: a trace accuses vLLM, not its judges. Method: the reference in vLLM's place, as the positive control."""
    assert [] == diverges(load_system("reference").factory, trace_at(path))


@pytest.mark.parametrize(
    "path", [path for path in TRACES if is_stock(path)], ids=lambda path: f"{path.parent.name[:3]}-{path.stem}"
)
def test_vllm_shows_its_finding(path: Path) -> None:
    """Goal: each finding is true of the vLLM installed. Method: replay; one divergence, the one that the header names,
    and one finding alone that explains it."""
    pytest.importorskip("vllm")
    trace = trace_at(path)
    assert [(trace.header.violates, [path.parent.name])] == diverges(load_system("stock").factory, trace)


ELSEWHERE = """
import json, sys
from pathlib import Path
from kvgate.declared import EXPLANATIONS
from kvgate.runner import Bench, run
from kvgate.systems import load_system
from kvgate.trace import read
factory, told = load_system(sys.argv[1]).factory, {}
for name in sys.argv[2:]:
    trace = read(Path(name))
    lockstep, found = run(Bench(factory, trace.header.detectors), trace.header.settings, trace.operations)
    told[name] = [
        [each.detector, each.difference.statement, each.difference.subject,
         [finding for finding, explains in EXPLANATIONS.items() if explains(each, lockstep)]]
        for each in found
    ]
print(json.dumps(told))
"""


@pytest.mark.parametrize("system", sorted({trace_at(path).header.system for path in TRACES if not is_stock(path)}))
def test_another_release_shows_its_findings(system: str) -> None:
    """Goal: each finding is true of the release that it names. Method: replay its traces in a process of its own; one
    divergence each, the one that the header names, and that finding alone explains it, or none where none is
    declared."""
    pytest.importorskip("vllm")
    try:
        fetch(release_named(system))
    except SystemUnavailableError as error:
        pytest.skip(f"{system} is not to be had, and none of its findings was replayed: {error}")
    paths = [path for path in TRACES if trace_at(path).header.system == system]
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
        violates, finding = trace_at(path).header.violates, path.parent.name
        assert violates is not None
        known = [] if finding in UNDECLARED else [finding]
        expected[str(path)] = [[violates.detector, violates.statement, violates.subject, known]]
    assert expected == json.loads(finished.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "path",
    [path for path in TRACES if path.parent.name in PLANTED and path.stem != "trace-ascend"],
    ids=lambda path: f"{path.parent.name[:3]}-{path.stem}",
)
def test_the_fault_alone_shows_the_finding(path: Path) -> None:
    """Goal: the fault that explains a finding is the fault that makes it. Method: plant it into the reference; it shows
    what vLLM shows, and no shorter trace does."""
    trace, finding = trace_at(path), path.parent.name
    assert [(trace.header.violates, [finding])] == diverges(PLANTED[finding], trace)
    longer = [
        index
        for index in range(len(trace.lines))
        if any(finding in found for _, found in diverges(PLANTED[finding], trace, without=index))
    ]
    assert not longer, "these operations can go"


class SpreadsAndAligns(LookAheadSpreads, AlignedBeforeTheDrop, Reference):
    """006 and 010, as a system."""


TWO_AT_ONCE = Settings(
    Geometry(
        (
            Group(Kind.FULL, 32),
            Group(Kind.SLIDING_WINDOW, 16, 64),
            Group(Kind.SLIDING_WINDOW, 16, 64, lookahead=True),
        )
    ),
    blocks=32,
    tokens_max=128,
    chunk_tokens=128,
)
"""Blocks of two sizes, for 006; and two windows that are alike, for 010."""


@pytest.mark.parametrize("system", ["both faults", "stock"])
def test_a_look_up_with_two_findings_is_explained(system: str) -> None:
    """Goal: 010 is told where 006 takes the rest of the same hit. Method: without the first window's block behind 64
    tokens, 64 is right and with 006 too, 010 makes it 32, and both make it 0."""
    if system == "stock":
        pytest.importorskip("vllm")
    factory: Factory = load_system("stock").factory if system == "stock" else SpreadsAndAligns
    operations = (Arrive(0, (Run(0, 81),)), Admit(0, 128), Evict(8), Arrive(1, (Run(0, 82),)), LookUp(1))
    lockstep, (divergence,) = run(Bench(factory), TWO_AT_ONCE, operations)
    hits = [answer.tokens for answer in lockstep.answers if isinstance(answer, Hit)]
    assert ([64, 0], ["010-lookahead-spreads-to-equal-groups"]) == (hits, explained(divergence, lockstep))


# What is not excused


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
    assert known == explained(divergence, lockstep)


class GateOpen(Reference):
    """Every request passes the gate."""

    def _fits(self, _request: Request, _hit: Hit, _computed: int) -> bool:
        return True


class GateLenient(Reference):
    """The gate lets a request pass for which one block is lacking."""

    def _fits(self, request: Request, hit: Hit, computed: int) -> bool:
        spare = self.pool.free
        spare.append(len(self.pool.references))
        passes = super()._fits(request, hit, computed)
        spare.remove(len(self.pool.references))
        return passes


class SaltIgnored(Reference):
    """Two salts share content."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._interned = PrefixesWithout(self.geometry.grain_tokens, "salt")


class AdapterIgnored(Reference):
    """Two adapters share content."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._interned = PrefixesWithout(self.geometry.grain_tokens, "lora")


class MediaIgnored(Reference):
    """All multimodal items share content."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._interned = PrefixesWithout(self.geometry.grain_tokens, "media")


class PrefixesWithout(Prefixes):
    """Prefixes that do not depend on one kind of keys."""

    def __init__(self, grain_tokens: int, kind: str) -> None:
        super().__init__(grain_tokens)
        self.kept = {"salt", "lora", "media"} - {kind}

    def extend(self, known: list[Prefix], tokens: Sequence[int], keys: Keys) -> None:
        super().extend(known, tokens, Keys(**{kind: getattr(keys, kind) for kind in self.kept}))


class LookAheadForgotten(Reference):
    """No look-ahead block is asked for."""

    def _hit(self, request: Request) -> Hit:
        hit = super()._hit(request)
        if not (self.settings.caches and request.reads_cache):
            return hit
        return longest_hit(bare(self.geometry), self.pool.cached, self.prefixes[request.number], len(request.tokens))


class HitShortened(Reference):
    """Every hit is one alignment shorter than it could be."""

    def _hit(self, request: Request) -> Hit:
        hit = super()._hit(request)
        if hit.tokens == 0:
            return hit
        return longest_hit(bare(self.geometry), self.pool.cached, self.prefixes[request.number], hit.tokens)


class EventsWithoutParent(Reference):
    """No event tells what its blocks follow."""

    def _register(self, request: Request, tokens: int, now: bool = True) -> None:
        super()._register(request, tokens, now)
        self._events = [evolve(event, parent=None) if isinstance(event, Stored) else event for event in self._events]


class ExternalTokensInTurn(Reference):
    """Blocks for external tokens are taken in the same round as all others."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.holdings = InOneRound(settings)


class InOneRound(Holdings):
    """Nothing is provided for."""

    def allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
        return super().allocate(request, evolve(span, provided=0), hit)


class LoadKeepsTooMuch(Reference):
    """Of a whole request that is loaded, the last two tokens count as not computed."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.holdings = OneTokenFewer(settings)


class OneTokenFewer(Holdings):
    """Gives up too little before a load."""

    def allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
        if span.provided > span.computed:
            span = evolve(span, computed=span.computed - 1, tokens=span.tokens + 1)
        return super().allocate(request, span, hit)


def bare(geometry: Geometry) -> Geometry:
    """The same without look-ahead."""
    return Geometry(tuple(evolve(group, lookahead=False) for group in geometry.groups))


@pytest.mark.parametrize(
    ("neighbour", "model"),
    [
        (GateOpen, "swa"),
        (GateLenient, "swa"),
        (SaltIgnored, "full"),
        (AdapterIgnored, "full"),
        (MediaIgnored, "full"),
        (LookAheadForgotten, "two-windows+eagle"),
        (HitShortened, "mixed-blocks+eagle"),
        (LookAheadForgotten, "gemma-hybrid+mtp"),
        (HitShortened, "gemma-hybrid+mtp"),
        (GateOpen, "gemma-hybrid+mtp"),
        (EventsWithoutParent, "mamba-align"),
        (ExternalTokensInTurn, "gemma-hybrid+transfers"),
        (LoadKeepsTooMuch, "swa+transfers"),
    ],
)
def test_a_neighbouring_fault_is_not_excused(neighbour: Factory, model: str) -> None:
    """Goal: another defect that violates the same guarantee is still a divergence. Method: plant one into the
    reference, and count over hostile cases how often a finding explains it: never always, for where both do the same
    nobody can tell them apart."""
    lane = Lane(load(model), "hostile")
    generator = Generator(PRESETS[lane.preset], lane.model.geometry, lane.model.features)
    found: list[str | None] = []
    for index in range(CASES):
        case = draw_case(generator, lane, f"findings/{index}", 0)
        lockstep, divergences = run(Bench(neighbour), case.settings, case.operations)
        found += [next(iter(explained(divergence, lockstep)), None) for divergence in divergences]
    assert len(found) >= 10
    assert found.count(None) > len(found) / 3
