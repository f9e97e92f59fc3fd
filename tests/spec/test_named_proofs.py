"""Goal: what a comment or a docstring names as a proof is one. Method: names in double backticks are looked up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kvspec.evidence import chapter_name
from kvspec.registry import obligations

SOURCES = Path(__file__).parents[2] / "spec" / "kvspec"
_WRAPPED = re.compile(r"\n\s*(#\s*)?")
_NAME = re.compile(r"``([a-z0-9.-]+)``")


def unknown_names(text: str) -> Iterator[str]:
    """Of the names in ``text``, those that only a proof can have and none has."""
    known = obligations()
    chapters = {chapter_name(each) for each in known.values()}
    ends = {name.rpartition(".")[2] for name in known}
    for name in _NAME.findall(_WRAPPED.sub("", text)):
        chapter, _, end = name.rpartition(".")
        if (chapter in chapters and name not in known) or (
            not chapter and end.startswith("running-") and end not in ends
        ):
            yield name


def test_each_proof_that_is_named_exists() -> None:
    """In all modules of the formal model."""
    found = [(path.name, name) for path in SOURCES.rglob("*.py") for name in unknown_names(path.read_text("utf-8"))]
    assert not found


def test_a_name_that_no_proof_has_is_found() -> None:
    """With its chapter, without it, and over two lines."""
    text = "``eagle.running-nothing``, ``running-nothing`` and ``running-answer-in-\n    # a-slot``, ``not-a-proof``"
    assert [*unknown_names(text)] == ["eagle.running-nothing", "running-nothing"]
