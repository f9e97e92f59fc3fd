"""The questions of a reviewer: every answer quotes the chapters, and what is quoted stands there."""

from __future__ import annotations

import re

import pytest

from .lints import SPEC

PAGE = (SPEC / "questions.md").read_text(encoding="utf-8")
QUESTIONS_MIN = 10


def plain(text: str) -> str:
    """``text`` on one line, without the marks of tables and lists."""
    return re.sub(r"[\s|]+", " ", re.sub(r"\]\([^)]*\)", "]", text)).strip()


def quotes(page: str) -> list[tuple[str, str, str]]:
    """Every quotation, with the file and the section that it is said to be from."""
    found = []
    for block in re.findall(r"(?:^>.*\n?)+", page, re.MULTILINE):
        told = " ".join(line.removeprefix(">").strip() for line in block.splitlines())
        quoted, _, source = told.rpartition(" ([")
        target = re.search(r"\]\(([^)#]+)#([^)]+)\)", source)
        found.append((quoted, target[1], target[2]) if target else (quoted, "", ""))
    return found


def section(file: str, anchor: str) -> str:
    """The section of a page that an anchor names; empty if there is none."""
    parts = re.split(r"^## (.+)$", (SPEC / file).read_text(encoding="utf-8"), flags=re.MULTILINE)
    titles = [title.lower().replace(" ", "-") for title in parts[1::2]]
    return parts[2 * titles.index(anchor) + 2] if anchor in titles else ""


def not_there(page: str) -> list[str]:
    """The quotations that do not stand where they are said to be."""
    return [
        quoted for quoted, file, anchor in quotes(page) if not file or plain(quoted) not in plain(section(file, anchor))
    ]


def test_there_are_ten_and_each_is_answered_from_the_chapters() -> None:
    """Goal: no answer that the chapters do not give. Method: count questions, and quotations in each."""
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    questions = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert len(questions) >= QUESTIONS_MIN
    assert [] == [title for title in questions if not title.endswith("?")]
    assert [] == [title for title, answer in questions.items() if not quotes(answer) or answer.strip().startswith(">")]


def test_what_is_quoted_stands_there() -> None:
    """Goal: a quotation is one. Method: look every one of them up in the section that it names."""
    assert [] == not_there(PAGE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("its source and its destination are held", "its source is held"),
        ("(09-partial-hits.md#statements), KV-INV-09)", "(09-partial-hits.md#words), KV-INV-09)"),
        ("(09-partial-hits.md#statements), KV-INV-09)", "(01-blocks-and-references.md#statements), KV-INV-09)"),
        ("([09](09-partial-hits.md#statements), KV-INV-09)", ""),
    ],
)
def test_what_is_not_there_is_found(old: str, new: str) -> None:
    """Goal: the search can fail. Method: another word, another section, another chapter, no source."""
    assert old in PAGE
    assert 1 == len(not_there(PAGE.replace(old, new)))
