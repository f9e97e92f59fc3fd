"""Mutants of the pinned tier: what is pinned, how long, and who gives way."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks, vllms_own
from kvgate_mutants.mutants.plugin import checks

_PINNING = "swa_retention.patches.pinning"
_TIER = "swa_retention.pinned_tier:PinnedTier"
_POOL = "vllm.v1.core.block_pool:BlockPool"
_MANAGER = "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager"
_COORDINATOR = "vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator"

_PINNED = "mixed-blocks+pinned=1"
_DROPS = "mixed-blocks+pinned=2"
_BOTH = "mixed-blocks+eagle+pinned=1+retention=32+scratch"


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
    """Blocks that a window drops are not pinned."""
    return vllms_own(original)(*arguments, **named)


@breaks(f"{_MANAGER}.free", violates="KV-OP-21", models=(_PINNED,))
def ends_are_not_pinned(original: Any, *arguments: Any, **named: Any) -> Any:
    """Blocks of a finished request are not pinned."""
    return vllms_own(original)(*arguments, **named)


@breaks(f"{_MANAGER}.free", violates="KV-OP-21", models=(_DROPS,))
def drops_after_an_end_are_pinned(original: Any, self: Any, request_id: str) -> None:
    """Once a request has ended, all cached blocks of a window drop are pinned, however short it is."""
    original(self, request_id)
    self.block_pool.pinned_tier.keeps_all = True


@breaks(f"{_COORDINATOR}.get_num_blocks_to_allocate", violates="KV-OP-03", models=(_PINNED,))
def gates_do_not_demote(original: Any, *arguments: Any, **named: Any) -> Any:
    """A request that lacks blocks is rejected, even if blocks are pinned."""
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
    """A request that asks loses the pins of its own hit."""
    original(self, count, ())


@breaks(f"{_TIER}.make_room", violates="KV-OP-03", models=(_PINNED,))
def never_demoted(_original: Any, _self: Any, _count: int, _kept: Any) -> None:
    """A request that lacks blocks never gets pinned ones."""


@breaks(f"{_TIER}.make_room", violates="KV-OP-23", models=(_PINNED,))
def demoted_in_vain(original: Any, self: Any, count: int, kept: Any) -> None:
    """What is pinned is demoted although it is not enough."""
    lacking = count - self.pool.free_block_queue.num_free_blocks
    waiting = [block for block in self.queue.get_all_free_blocks() if block.block_id not in kept]
    original(self, min(count, count - lacking + len(waiting)), kept)


@breaks(f"{_TIER}.demote_oldest", violates="KV-OP-23", models=(_PINNED,))
def demoted_to_the_front(original: Any, self: Any, count: int) -> None:
    """A demoted block is the next to be allocated."""
    blocks = self.queue.get_all_free_blocks()[:count]
    original(self, count)
    for block in blocks:
        self.pool.free_block_queue.remove(block)
        self.pool.free_block_queue.prepend_n([block])


@breaks(f"{_TIER}.demote_oldest", violates="KV-INV-07", models=(_PINNED,))
def demoted_and_still_pinned(original: Any, self: Any, count: int) -> None:
    """A demoted block is said to be pinned."""
    blocks = self.queue.get_all_free_blocks()[:count]
    original(self, count)
    for block in blocks:
        self.pinned[block.block_id] = True


@breaks(f"{_TIER}.demote", violates="KV-INV-07", models=(_PINNED,))
def demoted_beside_a_hit_and_still_pinned(original: Any, self: Any, blocks: Any) -> None:
    """A block that is demoted for a request with a hit is said to be pinned."""
    original(self, blocks)
    for block in blocks:
        self.pinned[block.block_id] = True


@breaks(f"{_TIER}.resume", violates="KV-OP-22", models=(_PINNED,))
def hit_unpins(original: Any, self: Any, blocks: Any) -> None:
    """A pinned block that is hit is pinned no longer."""
    original(self, blocks)
    for block in blocks:
        self.pinned[block.block_id] = False


@breaks(f"{_POOL}.free_blocks", violates="KV-INV-07", models=(_PINNED,))
def pinned_freed_like_others(original: Any, self: Any, ordered_blocks: Any, **named: Any) -> None:
    """A pinned block without a holder goes to the free queue."""
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
    """A rejected reset has freed what was pinned."""
    tier = self.pinned_tier
    for block in tier.queue.get_all_free_blocks():
        tier.unpin(block)
    return original(self)


# Mutants of what later releases need besides: frees that are deferred, and blocks that must stay free.


@breaks(f"{_PINNING}:free_blocks", shown_by=checks.freed_pins_wait)
def pins_are_freed_by_later_releases(_original: Any, vllms: Any) -> Any:
    """A release that puts scratch first itself frees what is pinned."""
    return vllms


@breaks(f"{_TIER}.release_pinned", shown_by=checks.freed_pins_wait)
def pins_wait_while_held(original: Any, self: Any, blocks: Any) -> Any:
    """A pinned block that another request still holds waits in the pinned tier."""
    blocks = [*blocks]
    rest = original(self, blocks)
    self.queue.append_n([block for block in blocks if self.holds(block) and block.ref_cnt])
    return rest


@breaks(f"{_PINNING}:give_up", shown_by=checks.what_is_freed_later_is_pinned)
def pinned_when_the_table_is_gone(_original: Any, vllms: Any) -> Any:
    """What is freed later is pinned when its request has no table any more."""

    def give_up(self: Any, request_id: str) -> Any:
        blocks = vllms(self, request_id)
        self.block_pool.pinned_tier.pin(self.req_to_blocks.get(request_id, ()))
        return blocks

    return give_up


@breaks(f"{_PINNING}:allocate_slots", shown_by=checks.what_must_stay_free_is_asked_for)
def watermark_is_not_kept(original: Any, vllms: Any) -> Any:
    """A request has no pinned blocks demoted for the watermark, and is rejected for it."""
    allocate_slots = original(vllms)
    return lambda *asked, **named: allocate_slots(*asked, **{**named, "has_scheduled_reqs": False})
