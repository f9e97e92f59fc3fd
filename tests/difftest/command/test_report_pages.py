"""Pages from the command line.

Goal: ``kvgate check --report`` and ``kvgate replay --html --chrome`` write them, and change neither what is printed nor
the exit code. Method: the command in this process, on a faulty system and on a sound one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path

import pytest

from .stage import Ended, stored

Kvgate = Callable[..., Ended]


def headline(path: Path) -> str:
    """The first line of a page."""
    found = re.search("<h1>(.*?)</h1>", path.read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def test_a_report_directory_has_pages(here: Path, kvgate: Kvgate) -> None:
    """And what is printed names them."""
    ended = kvgate("check", "--sut", "faulty:HeadFirst", "--model", "full", "--report", "out")
    assert 1 == ended.code
    assert "step by step, in a browser: out/divergence-1.html" in ended.out
    assert {"index.html", "divergence-1.html", "divergence-1.trace-events.json", "divergence-1.jsonl"} <= {
        path.name for path in (here / "out").iterdir()
    }
    assert "free queue" in headline(here / "out" / "divergence-1.html")
    verdict = json.loads((here / "out" / "verdict.json").read_text(encoding="utf-8"))
    assert "out/divergence-1.html" == verdict["found"][0]["page"]


@pytest.mark.ci
def test_without_a_directory_there_are_none(here: Path, kvgate: Kvgate) -> None:
    """The reproducer alone is always written."""
    kvgate("check", "--sut", "faulty:HeadFirst", "--model", "full")
    assert ["divergence-1.jsonl"] == [path.name for path in (here / "kvgate-report").iterdir()]


def test_an_agreement_has_the_first_page(here: Path, kvgate: Kvgate) -> None:
    """It says that nothing was found."""
    ended = kvgate("check", "--sut", "reference", "--model", "full", "--report", "out")
    assert 0 == ended.code
    assert headline(here / "out" / "index.html").startswith("No divergence in ")


def test_a_stored_case_is_drawn(here: Path, kvgate: Kvgate) -> None:
    """On the system that it is run on, whether it diverges there or not."""
    trace = stored(here, "faulty:HeadFirst")
    arguments = ("--html", "page.html", "--chrome", "trace.json")
    plain = kvgate("replay", str(trace), "--sut", "faulty:HeadFirst")
    drawn = kvgate("replay", str(trace), "--sut", "faulty:HeadFirst", *arguments)
    assert (1, plain) == (drawn.code, drawn)
    assert "free queue" in headline(here / "page.html")
    assert json.loads((here / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert 0 == kvgate("replay", str(trace), "--sut", "reference", "--html", "page.html").code
    assert headline(here / "page.html").startswith("No divergence: both sides agree")


def test_a_file_that_cannot_be_written_in_the_end(here: Path, kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is exit code 2; but a divergence counts for more."""

    def full(*_arguments: object) -> None:
        raise OSError(ENOSPC, "No space left on device", "page.html")

    monkeypatch.setattr("kvgate.report.page.pages.draw", full)
    trace = stored(here, "reference")
    ended = kvgate("replay", str(trace), "--html", "page.html")
    assert (2, "kvgate: page.html: cannot be written: No space left on device\n") == (ended.code, ended.err)
    ended = kvgate("replay", str(trace), "--sut", "faulty:HeadFirst", "--html", "page.html")
    assert (1, "kvgate: page.html: cannot be written: No space left on device\n") == (ended.code, ended.err)


def test_what_lies_there_stays_until_there_is_something_new(here: Path, kvgate: Kvgate) -> None:
    """Whether a file can be written is seen without touching what is in it; a pipe is not ended by it."""
    (here / "page.html").write_text("before", encoding="utf-8")
    assert 2 == kvgate("replay", "no.jsonl", "--html", "page.html", "--chrome", "trace.json").code
    assert "before" == (here / "page.html").read_text(encoding="utf-8")
    assert not (here / "trace.json").exists()
    assert 0 == kvgate("replay", str(stored(here, "reference")), "--html", "/dev/null").code
