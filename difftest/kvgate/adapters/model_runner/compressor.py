"""What vLLM-Ascend's callers pass to the compiled operator ``compressor_metadata``, which maps compressed slots.

The operator itself needs an NPU. A stand-in returns its arguments, so the caller that is published returns them too,
or those of an earlier call if it keeps results.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import frozen

from kvreference.slots import Layout

OPERATOR = "compressor_metadata"


@frozen
class OperatorInput:
    """The arguments of one call, for some rows of the batch."""

    offsets: tuple[int, ...]
    """By row, and for the row after the last one: how many tokens the rows before it compute."""
    starts: tuple[int, ...]
    """By row: how many tokens were computed before the step."""
    tables: tuple[tuple[int, ...], ...]
    """By row: the kernel blocks, and what follows them up to the end of the row."""
    block_slots: int
    slot_format: int
    """1: the number of a slot in memory. 2: a block, and a slot of it."""
    ratio: int
    room: int
    """For how many slots there is room in what it returns."""
    rows: int
    """In how many rows, from the first one on, it finds slots."""
    positions: tuple[int, ...]
    """By slot that these arguments name: the position that the rotary tables have at the slot's first token; -1 if
    they have none."""

    def slots(self) -> list[int | None]:
        """The slots of memory that these arguments name, row after row; what the operator returns is not known.

        Raises:
            IndexError: a table ends before a slot.
        """
        layout, rows = Layout(self.block_slots, self.ratio), range(self.rows)
        counts = [end - begin for begin, end in zip(self.offsets, self.offsets[1:], strict=False)]
        return [
            slot
            for row in rows
            for slot in layout.written(self.tables[row], self.starts[row], self.starts[row] + counts[row])
        ]


def operator_input(arguments: Sequence[Any], base: int) -> OperatorInput:
    """What a caller returned, which has rotary tables of ``base``."""
    cos, sin, offsets, starts, tables, block_slots, slot_format, ratio, room, rows = arguments
    begins, ends = starts.tolist(), (starts + offsets.diff()[: len(starts)]).tolist()
    tokens = [
        slot * ratio
        for begin, end in zip(begins[:rows], ends[:rows], strict=True)
        for slot in range(begin // ratio, end // ratio)
    ]
    return OperatorInput(
        tuple(offsets.tolist()),
        tuple(begins),
        tuple(map(tuple, tables.tolist())),
        block_slots,
        slot_format,
        ratio,
        room,
        rows,
        tuple(_positions(cos, sin, base, tokens)),
    )


def _positions(cos: Any, sin: Any, base: int, tokens: Sequence[int]) -> Iterator[int]:
    """Of each token: the last angle is small and distinguishes positions, and the others have to agree with it."""
    width = sin.shape[1]
    frequencies = [base ** (-2 * (column // 2) / width) for column in range(width)]
    read = [token for token in tokens if token < len(sin)]
    for cosines, sines in zip(cos[read].tolist(), sin[read].tolist(), strict=True):
        position = round(math.asin(sines[-1]) / frequencies[-1])
        angles = [position * frequency for frequency in frequencies]
        agrees = all(
            abs(cosine - math.cos(angle)) < _TOLERANCE and abs(sine - math.sin(angle)) < _TOLERANCE
            for cosine, sine, angle in zip(cosines, sines, angles, strict=True)
        )
        yield position if agrees else -1
    yield from (-1 for _ in tokens[len(read) :])


_TOLERANCE = 1e-2
"""Tables have single precision."""
