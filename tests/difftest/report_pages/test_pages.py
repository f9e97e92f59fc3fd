"""The pages of a verdict.

Goal: a report directory has a page for each divergence and one that leads to them, and every other report names the
pages. A page that cannot be made takes nothing with it. Method: verdicts of faulty systems, written and read back; the
command on the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote

import pytest
from attrs import evolve

from kvgate.adapters.registry import Loaded
from kvgate.gate.verdict import Found, Tally, Verdict
from kvgate.kernel.errors import UsageError
from kvgate.kernel.output import Format
from kvgate.report.campaign import report_of
from kvgate.report.formats import FILES, render, write
from kvgate.report.page.pages import write_pages
from kvgate.report.page.recording import Recording, once_more

from .stage import TWICE, HitsNothing, recorded
from .test_page import Document

_, FOUND = recorded(HitsNothing, TWICE)
DETECTORS = ("lockstep", "ghost", "leak", "work")
VERDICT = Verdict("mine:Own", "1", "quick", 7, DETECTORS, (Tally("full", "tiny", 2, 8),), (FOUND, FOUND))
RECORD = once_more(Loaded("mine:Own", "1", HitsNothing), DETECTORS)


def links(path: Path) -> set[str]:
    """Where a page leads to."""
    document = Document(path.read_text(encoding="utf-8"))
    return {unquote(link) for _, each in document.elements if (link := each.get("href"))}


def test_every_divergence_has_a_page(tmp_path: Path) -> None:
    """And trace events; the first page leads to both, and to the other reports."""
    traces = {0: tmp_path / "divergence-1.jsonl", 1: tmp_path / "divergence-2.jsonl"}
    pages = write_pages(VERDICT, tmp_path, RECORD, not_tested=("Much.",), reproducers=traces, files=tuple(FILES))
    names = [f"divergence-{n}.{kind}" for n in (1, 2) for kind in ("html", "trace-events.json")]
    assert [*names, "index.html"] == [path.name for path in pages.written]
    assert ({0: tmp_path / names[0], 1: tmp_path / names[2]}, ()) == (pages.of, pages.missing)
    assert {*names, "divergence-1.jsonl", "divergence-2.jsonl", *FILES} == links(tmp_path / "index.html")
    assert {"index.html", "divergence-2.jsonl", names[3]} == links(tmp_path / names[2])
    assert "divergence 2 of 2" in Document((tmp_path / names[2]).read_text(encoding="utf-8")).text("header")
    assert json.loads((tmp_path / names[1]).read_text(encoding="utf-8"))["traceEvents"]


def test_the_first_page_has_the_verdict(tmp_path: Path) -> None:
    """The claims, what was tested, what was found, and what was not tested."""
    write_pages(VERDICT, tmp_path, RECORD, not_tested=("Much.",))
    document = Document((tmp_path / "index.html").read_text(encoding="utf-8"))
    assert "2 divergences in 8 operations, 2 cases." == document.text("h1")
    assert "Request 1 is served 0 of its 12 tokens" in document.text("article")
    assert "lockstep: every answer" in document.text("ul")
    assert "Much." in document.text("ul")
    cells = [text.strip() for text in document.texts["td"] if text.strip()]
    assert ["full", "tiny", "2", "8", "all", "2", "8"] == cells


def test_an_agreement_has_a_first_page(tmp_path: Path) -> None:
    """It has no findings, and no other page is written."""
    pages = write_pages(evolve(VERDICT, found=()), tmp_path / "new", RECORD)
    assert [tmp_path / "new" / "index.html"] == list(pages.written) == list((tmp_path / "new").iterdir())
    document = Document((tmp_path / "new" / "index.html").read_text(encoding="utf-8"))
    assert "No divergence in 8 operations, 2 cases." == document.text("h1")
    assert "no divergences" in document.text("section")


def test_a_run_that_cannot_be_repeated_is_said(tmp_path: Path) -> None:
    """The other pages are written, and the first page has the story without a link."""
    calls: list[Found] = []

    def record(found: Found) -> Recording:
        calls.append(found)
        if len(calls) == 1:
            raise UsageError("gone")
        return RECORD(found)

    pages = write_pages(VERDICT, tmp_path, record)
    assert ("divergence-1.html: the run could not be repeated: UsageError: gone",) == pages.missing
    assert {1: tmp_path / "divergence-2.html"} == pages.of
    assert "divergence-1.html" not in links(tmp_path / "index.html")
    assert 2 == Document((tmp_path / "index.html").read_text(encoding="utf-8")).text("article").count(
        "KV-OP-01 The hit"
    )


@pytest.mark.parametrize("format_name", list(Format))
def test_every_report_names_the_pages(format_name: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the story; GitHub's in the annotation and in the summary, too."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    pages = {0: Path("out") / "divergence-1.html"}
    report = report_of(VERDICT, pages=pages)
    shown = render(report, format_name)
    assert "step by step, in a browser: out/divergence-1.html" in shown
    write(report, tmp_path)
    assert {"out/divergence-1.html"} == {
        word
        for name in FILES
        for word in (tmp_path / name).read_text(encoding="utf-8").replace('"', " ").replace("\\n", " ").split()
        if word.endswith(".html")
    }
