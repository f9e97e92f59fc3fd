"""Scratch: a block in which nothing is cached, so that nobody but its holder could use it."""

from __future__ import annotations

from typing import Any


def is_scratch(pool: Any, block: Any) -> bool:
    """Whether ``block`` is not cached as a whole, and no boundary inside it is an entry."""
    return block.block_hash is None and block.block_id not in getattr(pool, "boundaries", ())
