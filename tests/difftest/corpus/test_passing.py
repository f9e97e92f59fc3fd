"""Results on their way from one process to another.

Goal: a document arrives as it was sent, and nothing else is taken for it. Method: send one, and spoil it.
"""

from __future__ import annotations

import json

import pytest

from kvgate.kernel.errors import UsageError
from kvgate_mutants.corpus.passing import LINE_BYTES_MAX, read, written
from kvgate_mutants.corpus.probe import Result, State

RESULT = Result("a-defect", 1, State.CAUGHT, "stock", "0.20.2", "ghost", "KV-MEM-01", says="it reads", seconds=0.5)


def test_what_is_written_is_read() -> None:
    """Goal: nothing is lost. Method: there and back."""
    assert RESULT == read(written(RESULT))


@pytest.mark.parametrize("line", ["", "INFO loading", '{"format": "kvgate-trace"}'])
def test_other_lines_are_passed_over(line: str) -> None:
    """Goal: other code may print. Method: lines that are no results."""
    assert read(line) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trial": "1"}, "expected int"),
        ({"state": "missed"}, "missed"),
        ({"more": 1}, "more"),
        ({"seconds": "1"}, "numb"),
    ],
)
def test_a_spoilt_result_is_rejected(changes: dict[str, object], words: str) -> None:
    """Goal: nothing is converted silently. Method: fields of other types and names."""
    document = json.loads(written(RESULT))
    with pytest.raises(UsageError, match=words):
        read(json.dumps({"corpus_result": {**document["corpus_result"], **changes}}))


def test_a_long_line_is_rejected() -> None:
    """Goal: a limit on everything. Method: a line that is too long."""
    with pytest.raises(UsageError, match="at most"):
        read(written(RESULT) + " " * LINE_BYTES_MAX)
