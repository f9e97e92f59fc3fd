"""The report for GitHub Actions.

Goal: annotations and a summary that no name can forge. Method: commands are decoded as the runner decodes them; the
summary is searched for anything of a name that Markdown would read.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from kvgate.gate.diagnosis import Anomaly, Diagnosis
from kvgate.gate.suspects import Suspect
from kvgate.gate.verdict import Found, Tally, Verdict
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.output import Format
from kvgate.levels.manager import MANAGER
from kvgate.report.campaign import report_of
from kvgate.report.formats import render
from kvgate.report.github import command, github_report, summary
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.operations import Admit, Arrive, Finish, Run
from kvreference.settings import Settings

SETTINGS = Settings(Geometry((Group(Kind.FULL, 4),)), blocks=16)
FOUND = Found(
    Divergence(2, Finish(0), "lockstep", Difference("KV-OP-07", "free queue", "100%\n```", "1")),
    MANAGER.case(SETTINGS, (Arrive(0, (Run(0, 8),)), Admit(0, 64), Finish(0)), model="flash", preset="tiny", seed=7),
)
DECLARED = evolve(FOUND, finding="F-3", times=12)
VERDICT = Verdict(
    "stock", "0.20.2", "exact", 7, ("lockstep",), (Tally("flash", "tiny", 2, 100),), (FOUND,), (DECLARED,)
)


def report(verdict: Verdict, environment: dict[str, str] | None = None) -> list[str]:
    return github_report(report_of(verdict, ("Pinned blocks.",), {}), environment or {}).splitlines()


def test_a_command_is_percent_encoded() -> None:
    """A title more strictly than a message; the runner undoes both."""
    assert command("error", "50%: a,b", "50%: a,b\r\nc") == "::error title=50%25%3A a%2Cb::50%25: a,b%0D%0Ac"


def test_a_command_is_bounded_and_its_title_is_one_line() -> None:
    """GitHub would cut or reject longer ones."""
    line = command("error", "t\n" * 1000, "m" * 10_000)
    assert len(line) < 4_500
    assert "more characters)::mmm" in line


def test_a_divergence_is_an_error_and_the_declared_are_a_notice() -> None:
    """The error has the story without the operations."""
    error, outcome, declared = report(VERDICT)
    assert error.startswith("::error title=KV-OP-07 at step 2%3A Finish request 0::KV-OP-07: A request that ends")
    assert r"%0Aexpected: 100%25\n```%0Agot: 1%0A" in error
    assert "Admit" not in error
    assert outcome == "::notice title=kvgate::1 divergence in 100 operations, 2 cases"
    assert declared.startswith(
        "::notice title=kvgate%2C known findings seen::F-3: KV-OP-07, free queue, found by lockstep"
    )


def test_a_divergence_stands_next_to_the_line_that_did_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its path is that from the folder that was checked out; of other files it is the whole."""
    monkeypatch.chdir(tmp_path)
    for file, named in ((tmp_path / "my_patch.py", "my_patch.py"), (Path("/else/a,b.py"), "/else/a%2Cb.py")):
        suspect = Suspect("vllm.v1.core.block_pool:BlockPool.touch", str(file), 12)
        (error, *_) = report(evolve(VERDICT, found=(evolve(FOUND, diagnosis=Diagnosis(Anomaly.LEAK, (suspect,))),)))
        assert error.startswith(f"::error file={named},line=12,title=LEAK%2C KV-OP-07 at step 2")


def test_an_agreement_has_no_error() -> None:
    """One notice with the outcome."""
    assert report(evolve(VERDICT, found=(), declared=())) == [
        "::notice title=kvgate::no divergence in 100 operations, 2 cases"
    ]


def test_what_github_would_not_show_is_counted() -> None:
    """Ten annotations of a kind, the last of which says how many more exist."""
    errors = [line for line in report(evolve(VERDICT, found=(FOUND,) * 25)) if line.startswith("::error")]
    assert len(errors) == 10
    assert errors[-1].endswith("::25 divergences in 100 operations, 2 cases; 16 divergences not shown")


def test_no_name_makes_a_command_of_its_own() -> None:
    """Every line is one that the report meant."""
    hostile = evolve(FOUND, case=evolve(FOUND.case, model="a\n::stop-commands::x\n"), finding="\n::error::x")
    lines = report(evolve(VERDICT, found=(hostile,), declared=(hostile,)))
    assert [line.partition(" ")[0] for line in lines] == ["::error", "::notice", "::notice"]


def test_the_summary_is_appended_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output of earlier steps stays."""
    path = tmp_path / "summary.md"
    path.write_text("before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    render(report_of(VERDICT), Format.GITHUB)
    assert path.read_text(encoding="utf-8").startswith("before\n## kvgate: 1 divergence in 100 operations, 2 cases\n")


def test_a_summary_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    """The verdict is not lost with it."""
    lines = report(VERDICT, {"GITHUB_STEP_SUMMARY": str(tmp_path)})
    assert lines[0].startswith("::error title=KV-OP-07")
    assert lines[-1].startswith("::warning title=kvgate::the job summary was not written: ")


def test_the_summary_has_the_four_sections() -> None:
    """The table, the story in a fence that nothing in it closes, the declared, what was not tested."""
    lines = summary(report_of(VERDICT, ("Pinned blocks.",), {})).splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "## kvgate: 1 divergence in 100 operations, 2 cases",
        "### Claimed",
        "### Tested",
        "### Found",
        "### Not tested",
    ]
    assert "| flash | tiny | 2 | 100 |" in lines
    assert lines.count("````") == 1
    assert lines.count("````text") == 1
    assert "- F-3&#58; KV-OP-07, free queue, found by lockstep, seen 12 times" in lines
    assert lines[-1] == "- Pinned blocks."


def test_the_summary_gives_names_no_meaning() -> None:
    """No tag, no link, no table cell, no mention."""
    name = "<img>[x](y)|@all `*_~:+1: a&b"
    verdict = evolve(VERDICT, tallies=(Tally(name, "tiny", 2, 100),), found=(), declared=())
    (row,) = (line for line in summary(report_of(verdict, (), {})).splitlines() if "| tiny |" in line)
    cell = row.removeprefix("| ").partition(" |")[0]
    assert set(cell) <= set("abcdefghijklmnopqrstuvwxyz0123456789&#; +")
    assert cell.startswith("&#60;img&#62;&#91;x&#93;")


def test_the_summary_counts_what_it_leaves_out() -> None:
    """And stays below what GitHub takes."""
    text = summary(report_of(evolve(VERDICT, found=(FOUND,) * 25), (), {}))
    assert "\n5 more divergences, not shown\n" in text
    assert len(text.encode()) < 1024**2
    assert "no new divergences (1 known finding seen)" in summary(report_of(evolve(VERDICT, found=()), (), {}))
