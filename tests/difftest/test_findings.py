"""The findings: each is written up, and is shown by its traces.

Goal: the pages of findings are true, and each finding is a difference of a system that has it, and of no other. Method:
read the pages against the traces; run the traces on the reference with the findings of their release, and on the
release itself.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from attrs import evolve
from tests.published import published

from kvgate.adapters.registry import load_system
from kvgate.adapters.release_variants import release_of
from kvgate.adapters.releases import release_named
from kvgate.adapters.releases.description import Release
from kvgate.cli.replay import where_the_reference_changed
from kvgate.findings import register
from kvgate.findings.__main__ import TABLE, table
from kvgate.findings.gate_counts import all_at_once, blocks_to_take, counted_with, counts_by
from kvgate.findings.register import FOLDER, all_findings, id_of
from kvgate.gate.case_runner import CaseRun, run_case
from kvgate.gate.trace_codec import Trace, Violated, level_of
from kvgate.kernel.data_file import read_csv
from kvgate.levels.manager import Bench
from kvgate.levels.registry import read
from kvgate.levels.scheduler.level import SCHEDULER
from kvgate.levels.tiers.level import TIERS
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.settings import Settings
from kvreference.statements import STATEMENTS

from .having import having, played

ROOT = Path(__file__).parents[2]
TRACES = [path for path in sorted(FOLDER.glob("*/*.jsonl")) if not level_of(path, [SCHEDULER, TIERS])]
"""Those of the scheduler have tests of their own."""
SLOTS = "013-compressed-block-known-by-its-slots"
SMOKE = ("native@0.33.0", "ascend")
"""The newest release, and vLLM-Ascend; the others are run with ``-m deep``."""
ELSEWHERE_SECONDS_MAX = 600


def name_of(path: Path) -> str:
    """A trace's name in a test's id."""
    return f"{id_of(path.parent.name)[:3]}-{path.stem}"


of_every_trace = pytest.mark.parametrize("path", TRACES, ids=name_of)
EXPLAINED = {
    "001-trace": ["001-new-block-ids-never-drained"],
    "037-trace": ["037-fewer-drafts-end-the-process"],
}
"""Findings that change no rule of the reference: the remains at the end, a failed assertion."""
MODELLED = [path for path in TRACES if name_of(path) not in EXPLAINED]
"""Those of the findings that change a rule of the reference."""

UNDESCRIBED = [path for path in MODELLED if path.stem != "trace-ascend"]
"""In a compressed group of vLLM-Ascend, 014 is part of 013."""


@cache
def trace_at(path: Path) -> Trace:
    return read(path)


def system_of(path: Path) -> str:
    """The system that a trace names; all but the vLLM that is installed need a process of their own."""
    return trace_at(path).header.system


def release_at(path: Path) -> Release:
    release = release_of(system_of(path))
    assert release is not None
    return release


def unwrapped(text: str) -> str:
    """A text without line breaks and quotation marks of Markdown."""
    return " ".join(re.sub(r"^>", " ", text, flags=re.MULTILINE).split())


MODELLED_IDS = {id_of(path.parent.name) for path in MODELLED}
OF_ENGINES = {
    "020-preempted-in-its-step-stays-cached",
    "021-behind-a-failed-load-stays-cached",
    "022-given-up-while-in-flight",
    "028-window-left-while-in-flight",
    "034-window-released-before-a-failed-load",
    "041-session-keeps-a-stale-hash",
    "042-session-says-an-old-stop",
    "046-adapters-of-one-name-share-blocks",
    "057-experts-of-released-blocks",
    "058-next-item-cuts-a-whole-one",
    "059-null-blocks-gone-over-once",
    "061-sent-with-what-follows-the-end",
    "066-sharer-of-a-failed-load-stays-cached",
    "071-freed-late-counts-as-shared",
    "072-state-before-a-gap-stays-held",
}
"""Those that ghost memory knows by a mark on a block, and those that act on a rule under a scheduler alone."""

# The pages


def test_every_folder_is_a_finding() -> None:
    """Goal: a folder has all of a finding. Method: its files; its recogniser, or why it has none."""
    found = all_findings()
    assert {path.name for path in FOLDER.glob("f[0-9]*")} == {register.folder_of(finding.id) for finding in found}
    assert len(found) == len({finding.rank for finding in found})
    for finding in found:
        folder = FOLDER / register.folder_of(finding.id)
        assert {"README.md", "trace.jsonl", "__init__.py"} <= {path.name for path in folder.iterdir()}
        acts = finding.id in MODELLED_IDS
        by_level = finding.explains or finding.explains_engine or finding.explains_tiers
        recognised = acts or by_level or finding.id in OF_ENGINES
        assert bool(recognised) != bool(finding.unrecognised), finding.id
        assert finding.statement in STATEMENTS
        assert finding.condition


def test_the_table_has_a_row_for_every_finding() -> None:
    """Goal: the table is complete and true. Method: make it again; compare with the headers of the traces."""
    text = TABLE.read_text(encoding="utf-8")
    assert text == table(), "run: python -m kvgate.findings"
    rows = {row["id"]: row for row in read_csv(text)}
    for path in (path for path in TRACES if path.stem == "trace"):
        header, cells = trace_at(path).header, rows[id_of(path.parent.name)]
        assert header.violates is not None
        assert header.violates.statement == cells["guarantee"]
        assert header.system_version in cells["versions"]


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
    """Goal: a trace has what the reference does today. Method: compare answers and digests."""
    assert where_the_reference_changed(trace_at(path)) is None


# The traces


def shown(run: CaseRun) -> tuple[list[str], list[str | None]]:
    """The findings that acted, and what was found, by its finding."""
    return [str(each.finding) for each in run.known()], [each.finding for each in run.found()]


def expected_of(path: Path) -> str:
    """The finding that acts in a trace."""
    return id_of(path.parent.name) if path not in MODELLED or path in UNDESCRIBED else SLOTS


@pytest.mark.parametrize("path", MODELLED, ids=name_of)
def test_a_system_with_the_finding_shows_it(path: Path) -> None:
    """Goal: a finding is counted and ends nothing. Method: its trace on the reference with the findings of its release;
    all operations are performed, and nothing else is found."""
    trace = trace_at(path)
    run = played(having(release_at(path)), trace.header.settings, trace.operations)
    acted, found = shown(run)
    assert expected_of(path) in acted
    assert [] == found
    assert len(trace.operations) == run.performed


AS_BEGINNINGS = "012-trace", "012-trace-alias"
"""Their headers were written when the end of a prompt was compared as the content of its block."""


def violated_at(path: Path) -> Violated | None:
    """The violation of a trace if its finding is not known."""
    if name_of(path) in AS_BEGINNINGS:
        return Violated("lockstep", "KV-OP-18", "boundaries inside block 2")
    return trace_at(path).header.violates


@pytest.mark.parametrize("path", UNDESCRIBED, ids=name_of)
def test_undescribed_it_is_a_divergence(path: Path) -> None:
    """Goal: a finding is known of the releases that list it alone. Method: the same without its id in the description;
    then the divergence is the one that the header names."""
    trace, system = trace_at(path), having(release_at(path), undescribed=[id_of(path.parent.name)])
    run = played(system, trace.header.settings, trace.operations, trace.header.detectors)
    assert [violated_at(path)] == [Violated.by(each) for each in run.divergences]
    assert [None] == [each.finding for each in run.found()]


@pytest.mark.few(6)
@pytest.mark.parametrize("path", UNDESCRIBED, ids=name_of)
def test_no_operation_can_go(path: Path) -> None:
    """Goal: a trace is as short as it can be. Method: without any one operation, the undescribed finding is not seen,
    or as another divergence."""
    trace, system = trace_at(path), having(release_at(path), undescribed=[id_of(path.parent.name)])
    longer = []
    for index in range(len(trace.operations)):
        rest = (*trace.operations[:index], *trace.operations[index + 1 :])
        run = played(system, trace.header.settings, rest, trace.header.detectors)
        if violated_at(path) in [Violated.by(each) for each in run.divergences]:
            longer.append(index)
    assert [] == longer, "these operations can go"


@of_every_trace
def test_the_reference_passes(path: Path) -> None:
    """Goal: a trace accuses vLLM, not its checkers. Method: the reference in vLLM's place, as the positive control."""
    trace = trace_at(path)
    run = run_case(Bench(load_system("reference").factory, trace.header.detectors), trace.case)
    assert ([], []) == shown(run)


def check_release(path: Path, performed: int, acted: list[str], found: list[str | None]) -> None:
    """A run on the release that the trace names shows its finding and continues to its end."""
    assert EXPLAINED.get(name_of(path), []) == found
    assert path not in MODELLED or expected_of(path) in acted
    assert len(trace_at(path).operations) == performed


@pytest.mark.parametrize("path", [path for path in TRACES if system_of(path) == "stock"], ids=name_of)
def test_vllm_shows_its_finding(path: Path) -> None:
    """Goal: each finding is true of the vLLM installed. Method: its trace there."""
    pytest.importorskip("vllm")
    run = run_case(Bench(load_system("stock").factory), trace_at(path).case)
    check_release(path, run.performed, *shown(run))


ELSEWHERE = """
import json, sys
from pathlib import Path
from kvgate.adapters.registry import load_system
from kvgate.gate.case_runner import run_case
from kvgate.levels.manager import Bench
from kvgate.levels.registry import read
factory, shown = load_system(sys.argv[1]).factory, {}
for name in sys.argv[2:]:
    run = run_case(Bench(factory), read(Path(name)).case)
    shown[name] = [run.performed, [each.finding for each in run.known()], [each.finding for each in run.found()]]
print(json.dumps(shown))
"""


@pytest.mark.parametrize(
    "system",
    [
        pytest.param(system, marks=pytest.mark.ci if system in SMOKE else pytest.mark.deep)
        for system in sorted(set(map(system_of, TRACES)) - {"stock"})
    ],
)
def test_another_release_shows_its_findings(system: str) -> None:
    """Goal: each finding is true of the release that it names. Method: its traces there, in a process of its own."""
    pytest.importorskip("vllm")
    published(release_named(system))
    paths = [path for path in TRACES if system_of(path) == system]
    finished = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, system, *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
        timeout=ELSEWHERE_SECONDS_MAX,
    )
    assert 0 == finished.returncode, finished.stderr[-3000:]
    answers = json.loads(finished.stdout.splitlines()[-1])
    assert len(paths) == len(answers)
    for path in paths:
        check_release(path, *answers[str(path)])


def test_without_its_folder_a_finding_is_a_new_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a folder holds all that a finding is known by. Method: hide one where the system is compared."""
    path = FOLDER / "f006_aligned_before_the_drop" / "trace.jsonl"
    trace = trace_at(path)
    system = having()(trace.header.settings)
    there = [name for name in register.folders() if name != path.parent.name]
    monkeypatch.setattr("kvgate.findings.register.folders", lambda: tuple(there))
    (divergence,) = run_case(Bench(lambda _settings: system), trace.case).divergences
    assert trace.header.violates == Violated.by(divergence)


def test_a_gate_may_count_all_steps_in_flight_as_one() -> None:
    """Where 002 and 033 act, the count before them is one of the two; anything else is a broken count."""
    geometry = Geometry((Group(Kind.SLIDING_WINDOW, 4, window_tokens=8),))
    settings = Settings(geometry, 20, tokens_max=64, chunk_tokens=8, steps_in_flight_max=2)
    at_once = evolve(settings, chunk_tokens=16)
    asked = (60, 0, ((),))
    one, both = (blocks_to_take(each, *asked) for each in (settings, at_once))
    assert one < both
    assert settings == counted_with(settings, one, *asked)
    assert at_once == counted_with(settings, both, *asked)
    assert counted_with(settings, both + 1, *asked) is None


def test_the_gate_is_counted_by_the_steps_that_its_release_counts() -> None:
    """Goal: where one step and all in flight count a request alike, 002 still takes off what the release counts."""
    geometry = Geometry((Group(Kind.CHUNKED_LOCAL, 16, window_tokens=64),))
    settings = Settings(geometry, 60, tokens_max=512, chunk_tokens=64, steps_in_flight_max=2)
    # 164 tokens after a hit of 128, whose blocks are dead: three blocks are still to be allocated for any step size.
    asked = (164, 128, ((0,) * 8,))
    assert blocks_to_take(settings, *asked) == blocks_to_take(all_at_once(settings), *asked) == 3
    assert counts_by(settings, blocks_to_take) == settings
    # Another finding may act on the same count.
    for fewer in (0, 1):
        found = counts_by(settings, lambda each, *of, less=fewer: blocks_to_take(all_at_once(each), *of) - less)
        assert found.chunk_tokens == 128
