"""The chapters: what they say is said once, in the reference's own words, and what they show was run."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from kvreference.statements import STATEMENTS
from kvspec.chapter_proofs import NOT_PROVED, first_page_written, not_proved
from kvspec.chapters import Chapter, read_all
from kvspec.evidence import LEFT, WITHOUT, proofs_of
from kvspec.pictures.gallery import path_of

from .lints import (
    SPEC,
    evidence_wrong,
    example_wrong,
    functions_missing,
    numbers_strange,
    operations_wrong,
    proofs_wrong,
    statements_wrong,
)

CHAPTERS = read_all()
PAGES = sorted(SPEC.glob("*.md"))
README = (SPEC / "README.md").read_text(encoding="utf-8")


each_chapter = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.number)
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def test_every_statement_has_a_chapter() -> None:
    """Goal: a chapter states what the gate quotes and the functions do. Method: compare row by row."""
    assert [] == statements_wrong(CHAPTERS)


def test_evidence_is_distinguished() -> None:
    """Goal: a test is never taken for a proof. Method: look at the kinds of evidence of every row."""
    assert [] == evidence_wrong(CHAPTERS)


@each_chapter
def test_proofs_are_described(chapter: Chapter) -> None:
    """Goal: a reader learns what is proved, and what is not. Method: words, and the table that the registry gives."""
    assert [] == proofs_wrong(chapter, (SPEC / chapter.file).read_text(encoding="utf-8"))


def left_wrong(left: Collection[str]) -> set[str]:
    """Statements without a note of what their proofs leave open, or with one but without proofs."""
    proved = {statement for statement in STATEMENTS if proofs_of(statement)}
    return proved ^ set(left)


def test_what_proofs_leave_over_is_said() -> None:
    """Goal: a proof of a part is not taken for one of the whole. Method: all that proofs name, no other."""
    assert set() == left_wrong(LEFT)
    assert {"KV-INV-01"} == left_wrong(set(LEFT) - {"KV-INV-01"})
    assert {"KV-LEAK-02"} == left_wrong({*LEFT, "KV-LEAK-02"})


def test_what_is_not_proved_stands_in_one_list() -> None:
    """Goal: one page lists them. Method: every guarantee has a proof or a reason; the page is written anew."""
    assert set() == left_wrong(set(STATEMENTS) - set(WITHOUT))
    assert not_proved() == (SPEC / NOT_PROVED).read_text(encoding="utf-8"), "run: python -m kvspec.chapter_proofs"


@each_chapter
def test_it_opens_with_its_theorem(chapter: Chapter) -> None:
    """Goal: the first sentence is what the chapter claims, and the picture comes next. Method: read the beginning."""
    title, theorem, picture, heading, *_ = (SPEC / chapter.file).read_text(encoding="utf-8").split("\n\n")
    assert title.startswith("# ")
    assert theorem.startswith("**Theorem.** ")
    assert theorem.replace("\n", " ").endswith(". How much of it is proved: [Proofs](#proofs).")
    assert picture.startswith("![")
    assert path_of(chapter) in picture
    assert "## Purpose and scope" == heading


@each_chapter
def test_operations(chapter: Chapter) -> None:
    """Goal: a caller knows what may go wrong. Method: look for every error where it is said to be raised."""
    assert [] == operations_wrong(chapter)


@each_page
def test_named_functions_are_there(page: Path) -> None:
    """Goal: every named function leads to its code. Method: import and walk to it."""
    assert [] == functions_missing(page.read_text(encoding="utf-8"))


@each_chapter
def test_worked_example(chapter: Chapter) -> None:
    """Goal: the example of a chapter is true. Method: run its program, which asserts the numbers."""
    assert [] == example_wrong(chapter)


def test_lemmas_are_current() -> None:
    """Goal: the first page lists what the proofs rest on. Method: write it anew; without marks it cannot."""
    assert first_page_written(README) == README, "run: python -m kvspec.chapter_proofs"
    with pytest.raises(ValueError, match="no place for its proofs"):
        first_page_written(README.replace("<!-- end of proofs -->", ""))


def test_there_are_chapters_in_a_clone_only(tmp_path: Path) -> None:
    """Goal: an installed package says where the chapters are, instead of printing an empty page. Method: elsewhere."""
    with pytest.raises(FileNotFoundError, match="a clone of the repository"):
        read_all(tmp_path)


@each_chapter
def test_numbers_are_those_of_the_program(chapter: Chapter) -> None:
    """Goal: text and program agree. Method: every number of ours stands in the program, which asserts it."""
    assert [] == numbers_strange(chapter)
