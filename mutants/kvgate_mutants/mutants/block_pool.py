"""Mutants of the block pool: who holds a block, and what handing it out or releasing it does.

What the cached map says about a block's content is broken in ``cached_map``.
"""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import WINDOWED, breaks

_POOL = "vllm.v1.core.block_pool:BlockPool"


@breaks(f"{_POOL}.free_blocks", violates="KV-INV-01")
def first_block_released_twice(original: Any, self: Any, ordered_blocks: Any) -> None:
    """Of the blocks released together the first is released twice."""
    blocks = list(ordered_blocks)
    original(self, [*blocks[:1], *blocks])


@breaks(f"{_POOL}.free_blocks", violates="KV-INV-01")
def every_third_reference_kept(original: Any, self: Any, ordered_blocks: Any) -> None:
    """Every third block keeps its reference when it is released."""
    original(self, [block for block in ordered_blocks if block.block_id % 3 != 2])


@breaks(f"{_POOL}.free_blocks", violates="KV-INV-02")
def shared_block_queued(original: Any, self: Any, ordered_blocks: Any) -> None:
    """A block that one of its holders releases is queued although others still hold it."""
    blocks = [block for block in ordered_blocks if not block.is_null]
    original(self, blocks)
    self.free_block_queue.append_n([block for block in blocks if block.ref_cnt > 0])


@breaks(f"{_POOL}.free_blocks", violates="KV-INV-06", models=WINDOWED)
def null_block_queued(original: Any, self: Any, ordered_blocks: Any) -> None:
    """The null block is queued when a table that names it is released."""
    blocks = list(ordered_blocks)
    original(self, blocks)
    if self.null_block in blocks and self.null_block.next_free_block is None:
        self.free_block_queue.append(self.null_block)


@breaks(
    f"{_POOL}.free_blocks",
    violates="KV-INV-01",
    models=WINDOWED,
    equivalent="Whoever reads a reference count passes over the null block first, and nobody else sees its count.",
)
def null_block_references_not_dropped(original: Any, self: Any, ordered_blocks: Any) -> None:
    """A table that is released does not drop its references to the null block."""
    original(self, [block for block in ordered_blocks if not block.is_null])


@breaks(f"{_POOL}.touch", violates="KV-INV-01")
def hits_not_held(_original: Any, _self: Any, _blocks: Any) -> None:
    """The blocks of a hit are used without being held."""


@breaks(f"{_POOL}.touch", violates="KV-INV-02")
def held_hit_still_queued(_original: Any, _self: Any, blocks: Any) -> None:
    """A free block that serves a hit counts its holder, but stays in the free queue."""
    for block in blocks:
        block.ref_cnt += 1


@breaks(f"{_POOL}.touch", violates="KV-INV-01")
def second_holder_not_counted(original: Any, self: Any, blocks: Any) -> None:
    """A block that is held already does not count a further holder."""
    original(self, [block for block in blocks if block.ref_cnt == 0])


@breaks(f"{_POOL}.touch", violates="KV-INV-01")
def free_hit_counted_twice(original: Any, self: Any, blocks: Any) -> None:
    """A free block that serves a hit counts two holders instead of one."""
    free = [block for block in blocks if block.ref_cnt == 0 and not block.is_null]
    original(self, blocks)
    original(self, free)


@breaks(f"{_POOL}.get_new_blocks", violates="KV-OP-10")
def content_outlives_handing_out(original: Any, self: Any, num_blocks: int) -> Any:
    """A block that is handed out stays cached under its old content."""
    caching, self.enable_caching = self.enable_caching, False
    try:
        return original(self, num_blocks)
    finally:
        self.enable_caching = caching


@breaks(f"{_POOL}.evict_blocks", violates="KV-OP-10", needs=("evict",))
def held_block_not_evicted(original: Any, self: Any, block_ids: Any) -> None:
    """A block that somebody holds is not evicted by its id."""
    original(self, {block_id for block_id in block_ids if self.blocks[block_id].ref_cnt == 0})


@breaks(f"{_POOL}.get_num_free_blocks", violates="KV-INV-03")
def one_free_block_concealed(original: Any, self: Any) -> Any:
    """One block fewer is reported free than is in the free queue."""
    return max(0, original(self) - 1)


@breaks(f"{_POOL}._maybe_evict_cached_block", violates="KV-LEAK-02")
def evicted_content_remembered(original: Any, self: Any, block: Any) -> Any:
    """The hash of everything ever evicted is kept for good."""
    if block.block_hash is not None:
        vars(self).setdefault("evicted_hashes", []).append(block.block_hash)
    return original(self, block)
