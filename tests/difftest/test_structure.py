"""Documents from outside.

Goal: nothing is converted, unknown keys are rejected, and a mistake is reported on one line. Method: values that a
lenient reader would take, next to those that are exact.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import frozen

from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import CHARACTERS_MAX, DOCUMENT_ERRORS, explain, read_bytes, strict_converter


@frozen
class Part:
    """A part of a document."""

    number: int
    word: str = ""
    truth: bool = False
    maybe: int | None = None


@frozen
class Whole:
    """A document."""

    parts: tuple[Part, ...]


def structure(document: object) -> Whole:
    found: Whole = strict_converter().structure(document, Whole)
    return found


def test_an_exact_document_becomes_a_value() -> None:
    """The control."""
    expected = Whole((Part(1, "a", True, 2), Part(3)))
    assert expected == structure(
        {"parts": [{"number": 1, "word": "a", "truth": True, "maybe": 2}, {"number": 3, "maybe": None}]}
    )


BAD: dict[str, tuple[object, str]] = {
    "a number in words": ({"parts": [{"number": "1"}]}, "expected int, got '1'"),
    "a number with a point": ({"parts": [{"number": 1.0}]}, "expected int, got 1.0"),
    "a truth for a number": ({"parts": [{"number": True}]}, "expected int, got True"),
    "a number for a truth": ({"parts": [{"number": 1, "truth": 1}]}, "expected bool, got 1"),
    "a number for a word": ({"parts": [{"number": 1, "word": 1}]}, "expected str, got 1"),
    "words for what may be a number": ({"parts": [{"number": 1, "maybe": "2"}]}, "expected int, got '2'"),
    "something unknown": ({"parts": [], "more": 1}, "extra fields found (more)"),
    "something unknown that breaks a line": ({"parts": [], "mo\nre": 1}, r"extra fields found (mo\nre)"),
    "something missing": ({"parts": [{}]}, "required field missing"),
    "no list": ({"parts": 7}, ""),
    "no object": (None, ""),
}


@pytest.mark.parametrize(("document", "message"), BAD.values(), ids=BAD)
def test_anything_else_is_rejected(document: object, message: str) -> None:
    """With one line that says where."""
    with pytest.raises(DOCUMENT_ERRORS) as error:
        structure(document)
    assert message in explain(error.value)
    assert explain(error.value).isprintable()


def test_everything_that_is_wrong_is_reported() -> None:
    """On one line all the same, each with its place, and no value at length."""
    with pytest.raises(DOCUMENT_ERRORS) as error:
        structure({"parts": [{"number": "1" * 1000}, {"word": 7}]})
    message = explain(error.value)
    assert 3 == len(message.split("; "))
    assert "@ $.parts[0].number" in message
    assert len(message) < 500


def test_reports_are_bounded() -> None:
    """However much was wrong."""
    with pytest.raises(DOCUMENT_ERRORS) as error:
        structure({"parts": [], **{f"more-{i}": 1 for i in range(10_000)}})
    assert len(explain(error.value)) < CHARACTERS_MAX + 100


def test_an_error_without_a_message_is_reported_by_its_name() -> None:
    """Never by nothing at all."""
    assert "RecursionError" == explain(RecursionError())
    assert "why" == explain(ValueError("why"))


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    """One byte more is rejected, and so is a file that cannot be read."""
    path = tmp_path / "file"
    path.write_bytes(b"12345678")
    assert b"12345678" == read_bytes(path, 8)
    with pytest.raises(UsageError, match="larger than 7 bytes"):
        read_bytes(path, 7)
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_bytes(tmp_path, 8)
