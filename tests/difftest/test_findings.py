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
from kvgate.findings import explaining, register
from kvgate.findings.__main__ import PAGE, page
from kvgate.findings.f006_aligned_before_the_drop import AlignedBeforeTheDrop
from kvgate.findings.finding import Finding
from kvgate.findings.register import FOLDER, all_findings, id_of
from kvgate.gate.trace_codec import Trace, Violated, format_of
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvgate.kernel.protocol import Factory
from kvgate.levels.manager import Bench, run
from kvgate.levels.registry import read
from kvgate.levels.scheduler.level import SCHEDULER
from kvreference.population import Request
from kvreference.statements import STATEMENTS

ROOT = Path(__file__).parents[2]
TRACES = [path for path in sorted(FOLDER.glob("*/*.jsonl")) if format_of(path) != SCHEDULER.trace_format]
"""Those of the scheduler have tests of their own."""


def name_of(path: Path) -> str:
    """A trace's name in a test's id."""
    return f"{id_of(path.parent.name)[:3]}-{path.stem}"


of_every_trace = pytest.mark.parametrize("path", TRACES, ids=name_of)


def faulty(finding: Finding) -> Factory:
    """The reference with a finding's fault, as a system."""
    assert finding.fault is not None
    release = {} if finding.releases is None else {"release": finding.releases[0]}
    return type(finding.fault.__name__, (finding.fault, Reference), release)


FAULTY = {finding.id: faulty(finding) for finding in all_findings() if finding.fault is not None}


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
    return [(Violated.by(divergence), explained_by(divergence, lockstep)) for divergence in divergences]


def explained_by(divergence: Divergence, lockstep: Lockstep) -> list[str]:
    return [finding.id for finding in all_findings() if explaining.explains(finding, divergence, lockstep)]


def unwrapped(text: str) -> str:
    """A text without line breaks and quotation marks of Markdown."""
    return " ".join(re.sub(r"^>", " ", text, flags=re.MULTILINE).split())


# What is written


def test_every_folder_is_a_finding() -> None:
    """Goal: a folder has all of a finding. Method: its files; a recogniser, or a stated reason why there is none."""
    found = all_findings()
    assert {path.name for path in FOLDER.glob("f[0-9]*")} == {register.folder_of(finding.id) for finding in found}
    assert len(found) == len({finding.rank for finding in found})
    for finding in found:
        folder = FOLDER / register.folder_of(finding.id)
        assert {"README.md", "trace.jsonl", "__init__.py"} <= {path.name for path in folder.iterdir()}
        recognised = finding.fault or finding.explains or finding.explains_engine
        assert bool(recognised) != bool(finding.unrecognised), finding.id


def test_the_page_has_a_row_for_every_finding() -> None:
    """Goal: the page is complete and true. Method: write it again; compare with the headers of the traces."""
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text)
    rows = {
        cells[0].strip("| [").partition("]")[0]: cells for line in text.splitlines() if (cells := line.split(" | "))
    }
    for path in (path for path in TRACES if path.stem == "trace"):
        header, cells = trace_at(path).header, rows[id_of(path.parent.name)]
        assert header.violates is not None
        assert header.violates.statement == cells[1]
        assert header.system_version in cells[3]


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


@pytest.mark.parametrize("path", [path for path in TRACES if is_stock(path)], ids=name_of)
def test_vllm_shows_its_finding(path: Path) -> None:
    """Goal: each finding is true of the vLLM installed. Method: replay; one divergence, the one that the header names,
    and one finding alone that explains it."""
    pytest.importorskip("vllm")
    trace = trace_at(path)
    assert [(trace.header.violates, [id_of(path.parent.name)])] == diverges(load_system("stock").factory, trace)


@pytest.mark.few(6)
@pytest.mark.parametrize(
    "path",
    [path for path in TRACES if id_of(path.parent.name) in FAULTY and path.stem != "trace-ascend"],
    ids=name_of,
)
def test_the_fault_alone_shows_the_finding(path: Path) -> None:
    """Goal: the fault that explains a finding is the fault that makes it. Method: plant it into the reference; it shows
    what vLLM shows, and no shorter trace does."""
    trace, finding = trace_at(path), id_of(path.parent.name)
    assert [(trace.header.violates, [finding])] == diverges(FAULTY[finding], trace)
    longer = [
        index
        for index in range(len(trace.lines))
        if any(finding in found for _, found in diverges(FAULTY[finding], trace, without=index))
    ]
    assert not longer, "these operations can go"


# What a deleted folder leaves


def hide(monkeypatch: pytest.MonkeyPatch, *hidden: str) -> None:
    """Discover all folders but those of some findings."""
    there = [name for name in register.folders() if id_of(name) not in hidden]
    monkeypatch.setattr("kvgate.findings.register.folders", lambda: tuple(there))


@pytest.mark.parametrize(
    "path", [path for path in TRACES if path.stem == "trace" and id_of(path.parent.name) in FAULTY], ids=name_of
)
def test_without_its_folder_a_finding_is_a_new_divergence(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a folder holds all that a finding is recognised by. Method: hide it, and run its trace."""
    finding = id_of(path.parent.name)
    hide(monkeypatch, finding)
    assert [[]] == [found for _, found in diverges(FAULTY[finding], trace_at(path))]


@pytest.mark.parametrize(
    ("hidden", "explained"),
    [(None, ["006-aligned-before-the-drop"]), ("012-prompt-tail-that-serves-nobody", [])],
)
def test_without_a_finding_that_acts_in_the_same_step(
    hidden: str | None, explained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a finding needs no other's folder, and explains less without it. Method: 006 and 012 in one step."""

    class TailAndShorterHit(AlignedBeforeTheDrop, Reference):
        release = "0.33.0"

        def _register(self, request: Request, tokens: int, now: bool = True) -> None:
            super()._register(request, tokens, now)
            if tokens >= 80:
                prefix = self.prefixes[request.number][80 // self.geometry.grain_tokens - 1]
                block = self.tables[request.number][0].blocks[79 // self.geometry.groups[0].block_size_tokens]
                self.pool.cached.register((0, prefix), block)

    if hidden is not None:
        hide(monkeypatch, hidden)
    trace = trace_at(FOLDER / "f006_aligned_before_the_drop" / "trace-beside-012.jsonl")
    lockstep, (divergence,) = run(Bench(TailAndShorterHit, ("lockstep",)), trace.header.settings, trace.operations)
    assert explained == explained_by(divergence, lockstep)
    alone = trace_at(FOLDER / "f006_aligned_before_the_drop" / "trace.jsonl")
    assert [["006-aligned-before-the-drop"]] == [
        found for _, found in diverges(FAULTY["006-aligned-before-the-drop"], alone)
    ]
