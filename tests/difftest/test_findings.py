"""The findings: each is written up, is shown by its traces, and excuses nothing but itself.

Goal: what is declared is true, is told, and is narrow. Method: read what is written against what is declared; run the
traces on vLLM, where it is installed, and on the reference with the finding's fault planted, where it is not.
Their neighbours: ``test_findings_neighbours.py``.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from kvgate.adapters.reference import Reference
from kvgate.adapters.registry import load_system
from kvgate.cli.replay import where_the_reference_changed
from kvgate.findings.declared import (
    EXPLANATIONS,
    AlignedBeforeTheDrop,
    GateSubtractsSkippedBlocks,
    LookAheadVerifiedOnce,
    MediaForgottenInPromptTail,
    SaltNamedLikeAnAdapter,
)
from kvgate.findings.faults import (
    EventsSpanNullBlocks,
    ExternalTokensTakeOtherHits,
    LoadForgetsItsLastToken,
    LookAheadSpreads,
)
from kvgate.findings.faults_of_ascend import KnownBySlots
from kvgate.findings.faults_of_releases import (
    LookAheadKeptAtZero,
    MaskOmitsLookAhead,
    ReplayAboveItsLookAhead,
    SecondGroupUncut,
)
from kvgate.gate.case_runner import Bench, run
from kvgate.gate.trace_codec import Trace, Violated, read
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvgate.kernel.protocol import Factory
from kvgate.levels.scheduler.trace_codec import is_engine_trace
from kvreference.statements import STATEMENTS

ROOT = Path(__file__).parents[2]
FINDINGS = ROOT / "difftest" / "findings"
REGISTER = (FINDINGS / "README.md").read_text(encoding="utf-8")
ENGINE_TRACES = {path for path in FINDINGS.glob("*/*.jsonl") if is_engine_trace(path)}
"""Those of the scheduler's level, which have tests of their own."""
TRACES = sorted({*FINDINGS.glob("*/*.jsonl")} - ENGINE_TRACES)
SCHEDULER = {path.parent.name for path in ENGINE_TRACES}
"""The findings of that level."""

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


class KnownBySlotsAlone(KnownBySlots, Reference):
    """013, as a system."""

    release = "ascend 0.20.2rc1"


class SecondUncut(SecondGroupUncut, Reference):
    """014, as a system."""


class ReplayAbove(ReplayAboveItsLookAhead, Reference):
    """015, as a system."""

    release = "0.23.0"


class KeptAtZero(LookAheadKeptAtZero, Reference):
    """016, as a system."""

    release = "0.33.0"


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
    "013-compressed-block-known-by-its-slots": KnownBySlotsAlone,
    "014-second-full-group-not-cut": SecondUncut,
    "015-replay-above-its-look-ahead": ReplayAbove,
    "016-look-ahead-kept-at-zero": KeptAtZero,
}
"""Every finding but 001 and 012, whose faults are not one of the block manager's rules alone."""


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
    return [(Violated.by(divergence), explained(divergence, lockstep)) for divergence in divergences]


def explained(divergence: Divergence, lockstep: Lockstep) -> list[str]:
    return [finding for finding, explains in EXPLANATIONS.items() if explains(divergence, lockstep)]


def unwrapped(text: str) -> str:
    """A text without line breaks and quotation marks of Markdown."""
    return " ".join(re.sub(r"^>", " ", text, flags=re.MULTILINE).split())


# What is written


def test_what_is_declared_is_written_up() -> None:
    """Goal: no difference is excused without a story, and none is told that is not. Method: compare ids and folders."""
    folders = {path.name for path in FINDINGS.iterdir() if path.is_dir()}
    assert set(EXPLANATIONS) == folders - SCHEDULER
    assert not [
        name for name in folders for file in ("README.md", "trace.jsonl") if not (FINDINGS / name / file).is_file()
    ]


def test_the_register_has_a_row_for_every_finding() -> None:
    """Goal: the register is complete and true. Method: its ids, statements and versions against folders and traces."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in REGISTER.splitlines() if line[:3] == "| ["
    ]
    told = {re.sub(r"\[(.*)\]\(.*\)", r"\1", row[0]): (row[1], row[3]) for row in rows}
    headers = {name: trace_at(FINDINGS / name / "trace.jsonl").header for name in EXPLANATIONS}
    assert {name: (header.violates and header.violates.statement) for name, header in headers.items()} == {
        name: statement for name, (statement, _versions) in told.items() if name not in SCHEDULER
    }
    assert not [
        name
        for name, (_statement, versions) in told.items()
        if name in headers and headers[name].system_version not in versions
    ]


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


# What is not excused
