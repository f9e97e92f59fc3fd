"""The reports of a verdict, in every format.

Goal: each format says the same, in the four sections, escaped and bounded. Method: a verdict whose names are hostile to
every format is rendered, and read back with that format's own reader where one exists.
"""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from attrs import evolve
from rich.console import Console

from kvgate.gate.verdict import Found, Tally, Verdict
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.output import Format
from kvgate.levels.manager import MANAGER
from kvgate.report.campaign import report_of
from kvgate.report.formats import render, write
from kvgate.report.text import show
from kvreference.attention import Kind
from kvreference.content import Keys, Media
from kvreference.geometry import Geometry, Group
from kvreference.operations import Admit, Arrive, Finish, Operation, Run
from kvreference.settings import Settings

HOSTILE = "a<b>&%|`*_[red]\n::error::,\x1b[2J\ud800"
SETTINGS = Settings(Geometry((Group(Kind.FULL, 4), Group(Kind.SLIDING_WINDOW, 4, window_tokens=6))), blocks=16)
OPERATIONS: tuple[Operation, ...] = (
    Arrive(0, (Run(0, 8),), Keys("salt", media=(Media("picture", 2, 3),))),
    Admit(0, 64),
    Finish(0),
)
DIFFERENCE = Difference("KV-OP-07", "free queue at position 9", "3", "1")
FOUND = Found(
    Divergence(2, Finish(0), "lockstep", DIFFERENCE),
    MANAGER.case(SETTINGS, OPERATIONS, model="flash", preset="tiny", seed=7),
)
DECLARED = evolve(FOUND, finding="F-3", times=12)
AGREEING = Verdict(
    system="stock",
    version="0.20.2",
    profile="exact",
    seed=7,
    detectors=("lockstep", "check", "ghost", "leak", "work"),
    tallies=(Tally("flash", "tiny", 40, 1100), Tally("flash", "legal", 2, 100)),
    seconds=1.25,
)
DIVERGING = evolve(AGREEING, found=(FOUND,), declared=(DECLARED,))
HOSTILE_VERDICT = evolve(
    AGREEING,
    system=HOSTILE,
    version=HOSTILE,
    profile=HOSTILE,
    tallies=(Tally(HOSTILE, HOSTILE, 1, 3),),
    found=(
        evolve(
            FOUND,
            case=MANAGER.case(
                SETTINGS,
                (Arrive(0, (Run(0, 8),), Keys(HOSTILE)), *OPERATIONS[1:]),
                model=HOSTILE,
                preset=HOSTILE,
                seed=7,
            ),
            divergence=evolve(FOUND.divergence, difference=Difference("KV-SYS-01", HOSTILE, HOSTILE, HOSTILE)),
        ),
    ),
    declared=(evolve(DECLARED, finding=HOSTILE, case=evolve(FOUND.case, model=HOSTILE, preset=HOSTILE)),),
    ended=HOSTILE,
)
MANY = evolve(AGREEING, found=(FOUND,) * 25, declared=(DECLARED,) * 25)
NOT_TESTED = ("Pinned blocks.", "More than 8 requests at once.")
FORMATS = tuple(Format)


@pytest.fixture(autouse=True)
def _outside_of_a_workflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test writes into the summary of the workflow that runs it."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


def rendered(verdict: Verdict, format_name: Format) -> str:
    return render(report_of(verdict, NOT_TESTED, {0: Path("traces/0.jsonl")}), format_name)


def test_the_text_report_of_an_agreement() -> None:
    """The verdict in the first line, then the four sections."""
    expected = """\
no divergence in 1200 operations, 42 cases

Claimed
- lockstep: every answer, and the observable state after every operation, is the reference's
- check: the KV-INV statements hold in the system's state after every operation
- ghost: the slot of every token that a computed token reads holds that token (KV-MEM)
- leak: once no request is alive, nothing of any request remains (KV-LEAK)
- work: a decode step does the same work at any length of the context (KV-WORK), counted in operations

Tested
system stock, version 0.20.2, profile exact, seed 7, 1.2 s, completed

 model   preset   cases   operations
─────────────────────────────────────
 flash   tiny        40         1100
 flash   legal        2          100

 all                 42         1200

Found

no divergences

Not tested
- Pinned blocks.
- More than 8 requests at once.
"""
    assert expected == rendered(AGREEING, Format.TEXT)


def test_the_text_report_has_what_was_found() -> None:
    """The story, and the declared difference with its finding and how often it was seen."""
    report = rendered(DIVERGING, Format.TEXT)
    assert report.startswith("1 divergence in 1200 operations, 42 cases\n")
    assert "\n[1 of 1] KV-OP-07: A request that ends or is preempted" in report
    assert "\n>    2  Finish request 0 -> done\n" in report
    assert "\n  kvgate replay traces/0.jsonl\n" in report
    assert "\n- F-3: KV-OP-07, free queue at position 9, found by lockstep, seen 12 times\n" in report


def test_the_text_report_shows_colour_where_there_is_any() -> None:
    """Colour is all that is added."""
    report = report_of(DIVERGING, NOT_TESTED, {0: Path("traces/0.jsonl")})
    console = Console(file=StringIO(), width=120, force_terminal=True, color_system="standard")
    with console.capture() as capture:
        show(report, console)
    assert "\x1b[1;31m1 divergence in 1200 operations, 42 cases\x1b[0m" in capture.get()
    assert "\x1b[36m  kvgate replay traces/0.jsonl\x1b[0m" in capture.get()


def test_a_command_to_paste_is_not_wrapped() -> None:
    """However long it is."""
    path = Path("traces/" + "long/" * 40 + "0.jsonl")
    report = render(report_of(DIVERGING, (), {0: path}), Format.TEXT)
    assert f"\n  kvgate replay {path}\n" in report
    assert "\n- Anything outside these cases.\n" in report


@pytest.mark.parametrize("format_name", FORMATS)
def test_no_report_says_correct(format_name: Format) -> None:
    """The absence of differences is reported in operations and cases."""
    assert "correct" not in rendered(AGREEING, format_name).lower()
    assert "no divergence in 1200 operations, 42 cases" in rendered(AGREEING, format_name).replace("%2C", ",")


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_run_of_nothing_says_so(format_name: Format) -> None:
    """An agreement about nothing does not count."""
    assert "no divergence in 0 operations, 0 cases: nothing was run" in rendered(
        evolve(AGREEING, tallies=()), format_name
    )


def test_cases_that_ended_early_are_reported() -> None:
    """Goal: a report says what a declared difference hides. Method: three of 42 cases ended at one; then none did."""
    note = "3 of 42 cases ended early"
    cut = evolve(DIVERGING, tallies=(Tally("flash", "tiny", 40, 1100, cut=3), Tally("flash", "legal", 2, 100)))
    assert [True, False] == [note in render(report_of(each), Format.TEXT) for each in (cut, DIVERGING)]


def test_what_was_not_made_smaller_is_reported() -> None:
    """How many of the divergences had no time left; nothing if all had."""
    note = "the profile's time for them ended before 1 of 1 divergence had the smallest"
    late = evolve(DIVERGING, found=(evolve(DIVERGING.found[0], out_of_time=True),))
    assert [True, False] == [
        note in render(report_of(each), Format.TEXT).replace("\n  ", " ") for each in (late, DIVERGING)
    ]


def test_what_the_verdict_leaves_open_is_not_tested() -> None:
    """A detector that was absent, and a run that ended early."""
    verdict = evolve(AGREEING, detectors=("check",), ended="time budget")
    report = rendered(verdict, Format.TEXT)
    assert "\n- What leak checks: once no request is alive, nothing of any request remains" in report
    assert "\n- The run ended early (time budget); the remaining cases were not run.\n" in report
    assert "No case was run of" not in report
    lanes = tuple(Tally("flash", f"preset-{number}", 0, 0) for number in range(12))
    report = rendered(evolve(verdict, tallies=(*verdict.tallies, *lanes)), Format.JSON)
    assert "No case was run of flash preset-0, flash preset-1, " in report
    assert "flash preset-9 and 2 more." in report


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_report_is_bounded(format_name: Format) -> None:
    """Twenty stories, and how many were left out."""
    report = rendered(MANY, format_name)
    assert report.count("operations, each with the reference's answer") <= 20
    assert len(report) < 110_000


def test_the_text_report_counts_what_it_leaves_out() -> None:
    """Divergences and declared differences."""
    report = rendered(MANY, Format.TEXT)
    assert report.count("] KV-OP-07: ") == 20
    assert "\n5 more divergences, not shown\n" in report
    assert "\n- 5 more known findings, not shown\n" in report


def test_the_text_report_escapes_names() -> None:
    """No markup is read, no line is broken, no terminal is steered."""
    report = rendered(HOSTILE_VERDICT, Format.TEXT)
    assert r"profile a<b>&%|`*_[red]\n::error::,\x1b[2J\ud800, seed 7" in report
    assert all(line.isprintable() for line in report.splitlines())


def test_a_report_directory_holds_every_format(tmp_path: Path) -> None:
    """The directory is made, and names in every alphabet can be written."""
    written = write(report_of(evolve(HOSTILE_VERDICT, system="模型"), NOT_TESTED), tmp_path / "a" / "b")
    assert [path.name for path in written] == ["report.txt", "verdict.json", "junit.xml", "summary.md"]
    assert "模型" in written[0].read_text(encoding="utf-8")
    assert json.loads(written[1].read_text(encoding="utf-8"))["circumstances"]["system"] == "模型"
    assert ElementTree.parse(written[2]).getroot().tag == "testsuites"
    assert written[3].read_text(encoding="utf-8").startswith("## kvgate: 1 divergence in 3 operations, 1 case\n")


def test_known_findings_are_counted() -> None:
    """Below Found, where nothing is new."""
    report = rendered(evolve(DIVERGING, found=()), Format.TEXT)
    assert "\nFound\n\nno new divergences (1 known finding seen)\n" in report
