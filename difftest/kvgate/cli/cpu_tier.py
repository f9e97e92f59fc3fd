"""``--cpu-tier SIZE``: how many blocks a second tier of that size has."""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

import typer

from kvgate.kernel.errors import UsageError

_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_BLOCKS_MAX = 10**9

CpuTier: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--cpu-tier",
        metavar="SIZE",
        help="Also say what a tier of that size on the host adds: 64GiB (of each worker), or 8000blocks. The tier is "
        "ideal: it has every full block at once, evicts what was used longest ago, and loads in no time. What a "
        "connector brings depends on its eviction, and is mostly less.",
    ),
]


def blocks_of(size: str | None, block_bytes: int | None) -> int | None:
    """How many blocks of that many bytes fit; None if no size is given.

    Raises:
        UsageError: it is not a size, no block fits, or the bytes of a block are not known.
    """
    if size is None:
        return None
    found = re.fullmatch(r"(\d{1,12})(KiB|MiB|GiB|TiB|blocks)", size)
    if found is None:
        raise UsageError(f"--cpu-tier {size[:40]}: not a size; write, for example, 64GiB or 8000blocks")
    number, unit = int(found[1]), found[2]
    if unit == "blocks":
        blocks = number
    elif not block_bytes:
        raise UsageError(f"--cpu-tier {size}: how many bytes a block has is not known here: give a number of blocks")
    else:
        blocks = number * _UNITS[unit] // block_bytes
    if not 1 <= blocks <= _BLOCKS_MAX:
        raise UsageError(f"--cpu-tier {size}: {blocks:,} blocks; there are 1 to {_BLOCKS_MAX:,}")
    return blocks
