"""A worker's preparations, compared with what was granted.

Goal: a worker that does as it should passes, and each single mistake is reported by the guarantee that it breaks.
Method: what a worker prepares for two requests in two groups, right, and with one thing changed.
"""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from kvgate.adapters.model_runner.compressor import OperatorInput, operator_input
from kvgate.adapters.model_runner.runner import Memory, Part, Prepared, Tensor
from kvgate.levels.worker.slot_check import (
    Granted,
    check,
    check_copies,
    check_memory,
    check_metadata,
    check_operator,
)
from kvreference.answers import Copy
from kvreference.slots import Layout

LAYOUTS = (Layout(4, compress_ratio=2), Layout(4))
GRANTED = {"a": Granted(6, 11, ((5, 6), (0, 3, 4)), left=((5, 6), (9, 3, 4))), "b": Granted(0, 2, ((7,), (8,)))}
RIGHT = Prepared(
    ("b", "a"),
    (2, 4),
    (((14, 15), (10, 11, 12, 13)), ((8,), (9, 3, 4))),
    ((28, 23, 24, -7), (32, 33, 14, 15, 16, 17, 18, -7)),
)
"""In kernel blocks of two slots and of four; of the window, block 9 was left."""


def test_what_is_right_passes() -> None:
    """Rows in any order, windows that were left, and rows after the last slot."""
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
            evolve(RIGHT, tables=(RIGHT.tables[0], ((8,), (7, 3, 4)))),
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
        (
            evolve(RIGHT, slots=((28, 23, 24, 25), RIGHT.slots[1])),
            "KV-MEM-03",
            "slots of group 0 after those of the step's tokens",
        ),
    ],
)
def test_what_is_wrong_is_reported(wrong: Prepared, statement: str, subject: str) -> None:
    """By the guarantee that it breaks, and where."""
    found = check(wrong, GRANTED, LAYOUTS)
    assert found is not None
    assert (statement, subject) == (found.statement, found.subject)


PARTS = (
    Part(((14, 0),), ((14, 15, 0, 0),), (0,), (2,), (0, 2), (0, 1), 1),
    Part(((11, 1), (12, 0), (-1, 1)), ((10, 11, 12, 13),), (6,), (11,), (0, 5), (6, 7, 8, 9, 10), 0),
)
"""Of the first group: a row that decodes, and a prompt."""
GIVEN = evolve(RIGHT, metadata=(PARTS,))


def test_attention_is_given_what_was_granted() -> None:
    """Rows go on after the table, and slots after the last one that is written."""
    assert None is check_metadata(GIVEN, GRANTED, LAYOUTS, 1)


@pytest.mark.parametrize(
    ("part", "statement", "name"),
    [
        (evolve(PARTS[1], starts=(7,)), "KV-SYS-03", "starts"),
        (evolve(PARTS[1], ends=(12,)), "KV-SYS-03", "ends"),
        (evolve(PARTS[1], offsets=(0, 6)), "KV-SYS-03", "offsets"),
        (evolve(PARTS[1], positions=(6, 7, 8, 9, 11)), "KV-SYS-03", "positions"),
        (evolve(PARTS[1], decodes=1), "KV-SYS-03", "rows that decode"),
        (evolve(PARTS[1], tables=((10, 11, 13, 12),)), "KV-SYS-03", "tables"),
        (evolve(PARTS[1], tables=(*PARTS[1].tables, *PARTS[1].tables)), "KV-SYS-03", "rows of tables"),
        (evolve(PARTS[1], slots=((11, 1), (12, 1), (-1, 1))), "KV-MEM-03", "slots"),
        (evolve(PARTS[1], slots=((11, 1), (12, 0), (12, 1))), "KV-MEM-03", "slots"),
    ],
)
def test_what_attention_is_given_wrong_is_reported(part: Part, statement: str, name: str) -> None:
    """By the guarantee that it breaks, and where."""
    found = check_metadata(evolve(GIVEN, metadata=((PARTS[0], part),)), GRANTED, LAYOUTS, 1)
    assert found is not None
    assert (statement, f"attention metadata of group 0, rows 1 to 1, {name}") == (found.statement, found.subject)


@pytest.mark.parametrize(
    ("finds", "is_right"),
    [((2, 1, 2), True), ((2, 1, 3), True), ((2, 1, 1), False), ((4, 1, 2), False), ((2, 0, 2), False), (None, False)],
)
def test_slots_that_an_operator_finds(finds: tuple[int, int, int] | None, is_right: bool) -> None:
    """In blocks of their size, for all rows, and with room for them; without an operator they have to be there."""
    given = evolve(GIVEN, metadata=((PARTS[0], evolve(PARTS[1], slots=None, finds=finds)),))
    found = check_metadata(given, GRANTED, LAYOUTS, 1)
    assert is_right is (found is None)


CALL = OperatorInput((0, 5), (6,), ((10, 11, 12, 13),), 2, 2, 2, 3, 1, (6, 8))
"""For the prompt: tokens 6 to 10 complete the slots of tokens 6 and 8."""
CALLED = evolve(PARTS[1], slots=None, finds=(2, 1, 3), found=CALL)


def test_an_operator_is_given_what_was_granted() -> None:
    """Its arguments name the slots that the step writes."""
    assert [23, 24] == CALL.slots()
    for room in (2, 3):
        given = evolve(GIVEN, metadata=((PARTS[0], evolve(CALLED, found=evolve(CALL, room=room))),))
        assert None is check_operator(given, GRANTED, LAYOUTS)


@pytest.mark.parametrize(
    ("found", "statement", "name"),
    [
        (None, "KV-MEM-03", ""),
        (evolve(CALL, starts=(7,)), "KV-SYS-03", ", starts"),
        (evolve(CALL, offsets=(1, 6)), "KV-SYS-03", ", offsets"),
        (evolve(CALL, tables=((10, 11, 13, 12),)), "KV-SYS-03", ", tables"),
        (evolve(CALL, tables=()), "KV-SYS-03", ", tables"),
        (evolve(CALL, rows=0), "KV-SYS-03", ", rows"),
        (evolve(CALL, ratio=4), "KV-MEM-03", ", ratio"),
        (evolve(CALL, block_slots=4), "KV-MEM-03", ", slots of a block"),
        (evolve(CALL, slot_format=1), "KV-MEM-03", ", format of slots"),
        (evolve(CALL, room=1), "KV-MEM-03", ", room for 2 to 3 slots"),
        (evolve(CALL, room=4), "KV-MEM-03", ", room for 2 to 3 slots"),
        (evolve(CALL, positions=(6, 9)), "KV-SYS-03", ", positions of the rotary tables"),
    ],
)
def test_what_an_operator_is_given_wrong_is_reported(found: OperatorInput | None, statement: str, name: str) -> None:
    """By the guarantee that it breaks, and where."""
    given = evolve(GIVEN, metadata=((PARTS[0], evolve(CALLED, found=found)),))
    difference = check_operator(given, GRANTED, LAYOUTS)
    assert difference is not None
    assert (statement, f"compressor_metadata of group 0, rows 1 to 1{name}") == (
        difference.statement,
        difference.subject,
    )


@pytest.mark.parametrize(
    ("move", "positions"),
    [(lambda table: table, (4, 6)), (lambda table: table[1:], (5, 7)), (lambda t: t[:5], (4, -1))],
)
def test_positions_are_read_off_rotary_tables(move: Any, positions: tuple[int, ...]) -> None:
    """Also where they are moved, or too short; a sine without its cosine is of no position."""
    torch = pytest.importorskip("torch")
    base, rows = 10**13, torch.arange(8, dtype=torch.float64)
    angles = (rows[:, None] * torch.tensor([1, base**-0.5], dtype=torch.float64)).repeat_interleave(2, dim=1)
    cos, sin = move(angles.cos().float()), move(angles.sin().float())
    others = torch.tensor([0, 4]), torch.tensor([4]), torch.tensor([[3]]), 16, 2, 2, 3, 1
    assert positions == operator_input((cos, sin, *others), base).positions
    assert (-1, -1) == operator_input((sin, sin, *others), base).positions


@pytest.mark.parametrize(
    ("drafts_max", "decodes", "is_right"), [(1, 1, True), (1, 0, False), (0, 1, False), (0, 0, True)]
)
def test_a_row_decodes_if_it_is_as_short_as_drafts(drafts_max: int, decodes: int, is_right: bool) -> None:
    """The row computes two tokens."""
    given = evolve(GIVEN, metadata=((evolve(PARTS[0], decodes=decodes), PARTS[1]),))
    found = check_metadata(given, GRANTED, LAYOUTS, drafts_max)
    assert is_right is (found is None)


def test_each_back_end_is_given_all_rows() -> None:
    """A second one that makes no difference between rows, and has no starts and positions of them."""
    both = Part(
        (*(PARTS[0].slots or ()), *(PARTS[1].slots or ())),
        (*PARTS[0].tables, *PARTS[1].tables),
        *(None, (2, 11), (0, 2, 7), None, None),
    )
    assert None is check_metadata(evolve(GIVEN, metadata=((*PARTS, both),)), GRANTED, LAYOUTS, 1)
    found = check_metadata(evolve(GIVEN, metadata=((*PARTS, evolve(both, ends=(2, 10))),)), GRANTED, LAYOUTS, 1)
    assert found is not None
    assert "attention metadata of group 0, rows 0 to 1, ends" == found.subject


def test_a_row_that_attention_is_not_given_is_reported() -> None:
    """Each row is in one part."""
    found = check_metadata(evolve(GIVEN, metadata=(PARTS[:1],)), GRANTED, LAYOUTS, 1)
    assert found is not None
    assert ("2 rows", "1 rows") == (found.expected, found.got)


VALUES, SCALES = Tensor(6, 4, 80, 16, 0), Tensor(6, 4, 80, 4, 64)
"""Of blocks of four slots: 64 bytes of values, then 16 of scales."""


@pytest.mark.parametrize(
    ("scales", "is_right"),
    [(SCALES, True), (evolve(SCALES, first_byte=60), False), (evolve(SCALES, first_byte=0), False)],
)
def test_tensors_of_a_block_do_not_overlap(scales: Tensor, is_right: bool) -> None:
    """Each has bytes of its own."""
    assert is_right is (check_memory([Memory(6, 480, (scales, VALUES))], [4]) is None)


def test_copies_without_memory_are_reported() -> None:
    """Unchecked memory does not agree."""
    assert check_copies((), (), LAYOUTS, [Copy(0, 1, 2, 4)]) is not None
    assert check_copies((), (), LAYOUTS, []) is None
