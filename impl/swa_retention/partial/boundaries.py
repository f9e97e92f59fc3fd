"""The boundary table: which blocks begin with a given prefix.

Where a hit may end inside a block, the prefix up to such a boundary is an entry of its own. Its key must stand for the
whole prefix. Two requests that share the first tokens of a block, and nothing before it, or that differ in salt or
adapter, have nothing that one could copy from the other. vLLM's block hashes are that already. Each is made of the one
before it, of the block's tokens and of everything else that enters the computation. So the last hash before a boundary
stands for everything before the boundary, and no token needs to be hashed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from swa_retention.reachable import GROUP_BYTES


def key_of(block_hashes: Sequence[bytes], end_tokens: int, hash_block_tokens: int, group: int) -> bytes:
    """The key of the first ``end_tokens`` tokens, a multiple of ``hash_block_tokens``, in a group."""
    return block_hashes[end_tokens // hash_block_tokens - 1] + group.to_bytes(GROUP_BYTES, "big")


class Boundaries:
    """Key to the blocks that begin with it, the one registered first in front, and back."""

    def __init__(self) -> None:
        # Dictionaries keep the order of registration, and lose any of many equal blocks at once.
        self._blocks: dict[bytes, dict[int, Any]] = {}
        self._keys: dict[int, dict[bytes, None]] = {}

    def __contains__(self, block_id: int) -> bool:
        """Whether a boundary lies inside the block."""
        return block_id in self._keys

    def __len__(self) -> int:
        return len(self._blocks)

    def block_ids(self) -> frozenset[int]:
        """The blocks inside which a boundary lies."""
        return frozenset(self._keys)

    def register(self, key: bytes, block: Any) -> None:
        """From now on ``block`` is known to begin with what ``key`` stands for; again, it changes nothing."""
        self._blocks.setdefault(key, {}).setdefault(block.block_id, block)
        self._keys.setdefault(block.block_id, {})[key] = None

    def find(self, key: bytes) -> Any | None:
        """The block that serves ``key``, the one registered first, or None."""
        blocks = self._blocks.get(key)
        return None if blocks is None else next(iter(blocks.values()))

    def forget(self, block_id: int) -> None:
        """Forget every boundary inside the block."""
        for key in self._keys.pop(block_id, ()):
            blocks = self._blocks[key]
            del blocks[block_id]
            if not blocks:
                del self._blocks[key]

    def forget_all(self, blocks: Iterable[Any]) -> None:
        """Forget every boundary inside ``blocks``. Few blocks have one, and many are allocated."""
        keys = self._keys
        for block_id in [block.block_id for block in blocks if block.block_id in keys]:
            self.forget(block_id)

    def clear(self) -> None:
        """Forget everything."""
        self._blocks.clear()
        self._keys.clear()
