"""Mutants of the pinned tier: what is pinned, how long, and who gives way."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks, vllms_own

_TIER = "swa_retention.pinned_tier:PinnedTier"
_POOL = "vllm.v1.core.block_pool:BlockPool"
_MANAGER = "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager"
_COORDINATOR = "vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator"

_PINNED = "mixed-blocks+pinned=1"
_DROPS = "mixed-blocks+pinned=2"
_BOTH = "mixed-blocks+eagle+pinned=1+retention=1+scratch"


@breaks(f"{_POOL}.touch", violates="KV-INV-03", models=(_PINNED,))
def hit_taken_from_the_wrong_queue(original: Any, *arguments: Any, **named: Any) -> Any:
    """A pinned block that is hit is taken out of the free queue, where it is not."""
    return vllms_own(original)(*arguments, **named)


@breaks(f"{_POOL}.evict_blocks", violates="KV-OP-22", models=(_BOTH,))
def pin_stays_behind(original: Any, *arguments: Any, **named: Any) -> Any:
    """A pin does not end with the content of its block."""
    return vllms_own(original)(*arguments, **named)


@breaks(f"{_POOL}.reset_prefix_cache", violates="KV-OP-11", models=(_PINNED,), needs=("reset",))
def reset_refused_for_pins(original: Any, *arguments: Any, **named: Any) -> Any:
    """Pinned blocks count as used, and no reset succeeds."""
    return vllms_own(original)(*arguments, **named)


@breaks(f"{_MANAGER}.remove_skipped_blocks", violates="KV-OP-21", models=(_PINNED,))
def drops_are_not_pinned(original: Any, *arguments: Any, **named: Any) -> Any:
    """What a window leaves behind is not pinned."""
    return vllms_own(original)(*arguments, **named)


@breaks(f"{_MANAGER}.free", violates="KV-OP-21", models=(_PINNED,))
def ends_are_not_pinned(original: Any, *arguments: Any, **named: Any) -> Any:
    """What a request leaves behind is not pinned."""
    return vllms_own(original)(*arguments, **named)


@breaks(f"{_COORDINATOR}.get_num_blocks_to_allocate", violates="KV-OP-03", models=(_PINNED,))
def gates_do_not_demote(original: Any, *arguments: Any, **named: Any) -> Any:
    """Whoever lacks blocks is refused, whatever is pinned."""
    return vllms_own(original)(*arguments, **named)


@breaks(f"{_TIER}.pin", violates="KV-OP-21", models=(_PINNED,))
def scratch_pinned(_original: Any, self: Any, blocks: Any) -> None:
    """What is not cached is pinned too."""
    for block in blocks:
        self.pinned[block.block_id] = not block.is_null


@breaks(f"{_TIER}.pin", violates="KV-OP-21", models=(_PINNED,))
def nothing_pinned(_original: Any, _self: Any, _blocks: Any) -> None:
    """Nothing is ever pinned."""


@breaks(f"{_TIER}.forget", violates="KV-OP-22", models=(_BOTH,))
def pin_outlives_content(_original: Any, _self: Any, _block: Any) -> None:
    """A block whose content is forgotten stays pinned."""


@breaks(f"{_TIER}.make_room", violates="KV-OP-23", models=(_PINNED,))
def newest_demoted(_original: Any, self: Any, count: int, kept: Any) -> None:
    """The newest pinned blocks are demoted first."""
    lacking = count - self.pool.free_block_queue.num_free_blocks
    waiting = [block for block in self.queue.get_all_free_blocks() if block.block_id not in kept]
    if 0 < lacking <= len(waiting):
        for block in waiting[-lacking:]:
            self.unpin(block)


@breaks(f"{_TIER}.make_room", violates="KV-OP-23", models=(_PINNED,))
def own_hit_demoted(original: Any, self: Any, count: int, _kept: Any) -> None:
    """Whoever asks loses the pins of its own hit."""
    original(self, count, ())


@breaks(f"{_TIER}.make_room", violates="KV-OP-03", models=(_PINNED,))
def never_demoted(_original: Any, _self: Any, _count: int, _kept: Any) -> None:
    """Nobody who lacks blocks gets those that are pinned."""


@breaks(f"{_TIER}.make_room", violates="KV-OP-23", models=(_PINNED,))
def demoted_in_vain(original: Any, self: Any, count: int, kept: Any) -> None:
    """What is pinned is demoted although it is not enough."""
    lacking = count - self.pool.free_block_queue.num_free_blocks
    waiting = [block for block in self.queue.get_all_free_blocks() if block.block_id not in kept]
    original(self, min(count, count - lacking + len(waiting)), kept)


@breaks(f"{_TIER}.unpin", violates="KV-OP-23", models=(_PINNED,))
def demoted_to_the_front(original: Any, self: Any, block: Any) -> None:
    """A demoted block is the next to be handed out."""
    original(self, block)
    self.pool.free_block_queue.remove(block)
    self.pool.free_block_queue.prepend_n([block])


@breaks(f"{_TIER}.unpin", violates="KV-INV-07", models=(_PINNED,))
def demoted_and_still_pinned(original: Any, self: Any, block: Any) -> None:
    """A demoted block is said to be pinned."""
    original(self, block)
    self.pinned[block.block_id] = True


@breaks(f"{_TIER}.resume", violates="KV-OP-22", models=(_PINNED,))
def hit_unpins(original: Any, self: Any, blocks: Any) -> None:
    """A pinned block that is hit is pinned no longer."""
    original(self, blocks)
    for block in blocks:
        self.pinned[block.block_id] = False


@breaks(f"{_POOL}.free_blocks", violates="KV-INV-07", models=(_PINNED,))
def pinned_freed_like_others(original: Any, self: Any, ordered_blocks: Any, **named: Any) -> None:
    """A pinned block that nobody holds any more goes to the free queue."""
    tier, self.pinned_tier = getattr(self, "pinned_tier", None), None
    original(self, ordered_blocks, **named)
    self.pinned_tier = tier


@breaks(f"{_MANAGER}.remove_skipped_blocks", violates="KV-OP-21", models=(_DROPS,))
def short_drops_pinned(original: Any, self: Any, *arguments: Any) -> None:
    """A window drop of one block is pinned although it is too short."""
    tier = self.block_pool.pinned_tier
    least, tier.min_drop_blocks = tier.min_drop_blocks, 1
    original(self, *arguments)
    tier.min_drop_blocks = least


@breaks(f"{_COORDINATOR}.get_num_blocks_to_allocate", violates="KV-OP-03", models=(_PINNED,))
def pinned_hit_counted_as_taken(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """A hit on pinned blocks is thought to take as many from the free queue."""
    tier = self.block_pool.pinned_tier
    hit = arguments[2] if len(arguments) > 2 else named["new_computed_blocks"]
    waiting = sum(block.ref_cnt == 0 and tier.holds(block) for blocks in hit for block in blocks)
    return original(self, *arguments, **named) + waiting


@breaks(f"{_POOL}.reset_prefix_cache", violates="KV-OP-11", models=(_PINNED,), needs=("reset",))
def reset_frees_pins_in_use(original: Any, self: Any) -> Any:
    """A reset that is refused has freed what was pinned."""
    tier = self.pinned_tier
    for block in tier.queue.get_all_free_blocks():
        tier.unpin(block)
    return original(self)
