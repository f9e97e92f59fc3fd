"""Scratch: a block in which nothing is cached, so that only its holder can use it.

A block's hash is read from the field that its property reads: the property is a call for each block that is freed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def is_scratch(pool: Any, block: Any) -> bool:
    """Whether ``block`` is not cached as a whole, and no boundary inside it is an entry."""
    return block._block_hash is None and block.block_id not in getattr(pool, "boundaries", ())


def scratch_and_rest(pool: Any, blocks: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """``blocks`` in their order: those that are scratch, and the others."""
    entries = getattr(pool, "boundaries", ())
    bare = [block for block in blocks if block._block_hash is None]
    scratch = [block for block in bare if block.block_id not in entries] if entries else bare
    if not scratch:
        return [], [*blocks]
    ids = {block.block_id for block in scratch}
    return scratch, [block for block in blocks if block.block_id not in ids]
