"""What a worker prepared, compared with what was granted.

Goal: a worker that does as it should passes, and each single mistake is reported by the guarantee that it breaks.
Method: what a worker prepares for two requests in two groups, right, and with one thing changed.
"""

from __future__ import annotations

import pytest
from attrs import evolve

from kvgate.adapters.model_runner.runner import Prepared
from kvgate.levels.worker.slot_check import Granted, check
from kvreference.slots import Layout

LAYOUTS = (Layout(4, compress_ratio=2), Layout(4))
GRANTED = {"a": Granted(6, 11, ((5, 6), (0, 3, 4))), "b": Granted(0, 2, ((7,), (8,)))}
RIGHT = Prepared(
    ("b", "a"),
    (2, 4),
    (((14, 15), (10, 11, 12, 13)), ((8,), (9, 3, 4))),
    ((28, 23, 24, -7), (32, 33, 14, 15, 16, 17, 18, -7)),
)
"""In kernel blocks of two slots and of four; of the window, block 9 was left."""


def test_what_is_right_passes() -> None:
    """Rows in any order, windows that were left, and what is behind the last slot."""
    assert None is check(RIGHT, GRANTED, LAYOUTS)


@pytest.mark.parametrize(
    ("wrong", "statement", "subject"),
    [
        (evolve(RIGHT, requests=("b",)), "KV-SYS-03", "the worker's batch"),
        (evolve(RIGHT, requests=("a", "b")), "KV-SYS-03", "a in row 0, group 0, block table of the worker"),
        (evolve(RIGHT, kernel_block_sizes=(4, 4)), "KV-SYS-03", "b in row 0, group 0, block table of the worker"),
        (evolve(RIGHT, kernel_block_sizes=(3, 4)), "KV-MEM-03", "kernel blocks of group 0"),
        (
            evolve(RIGHT, tables=(RIGHT.tables[0], ((8,), (9, 3)))),
            "KV-SYS-03",
            "a in row 1, group 1, block table of the worker",
        ),
        (
            evolve(RIGHT, slots=((28, 24, 24, -7), RIGHT.slots[1])),
            "KV-MEM-03",
            "a in row 1, group 0, slot of tokens 6 to 7",
        ),
        (
            evolve(RIGHT, slots=(RIGHT.slots[0], (32, 33, 14, 15, 16, 17, -7, -7))),
            "KV-MEM-03",
            "a in row 1, group 1, slot of token 10",
        ),
    ],
)
def test_what_is_wrong_is_reported(wrong: Prepared, statement: str, subject: str) -> None:
    """By the guarantee that it breaks, and where."""
    found = check(wrong, GRANTED, LAYOUTS)
    assert found is not None
    assert (statement, subject) == (found.statement, found.subject)
