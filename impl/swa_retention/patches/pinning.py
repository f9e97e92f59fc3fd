"""vLLM's block pool and managers, with a pinned tier.

A pool that has one carries it as ``pinned_tier``; where it has none, each of these is vLLM's own function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from swa_retention.partial.hit import sources_of
from swa_retention.patches import free_queue
from swa_retention.register import Patch


def _tier(pool: Any) -> Any:
    return getattr(pool, "pinned_tier", None)


def touch(original: Any) -> Callable[..., None]:
    """``BlockPool.touch`` that takes a pinned block out of the queue that it waits in."""

    def touch(self: Any, blocks: Sequence[Any]) -> None:
        tier = getattr(self, "pinned_tier", None)
        if tier is not None:
            tier.resume(blocks)
        original(self, blocks)

    return touch


def reset_prefix_cache(original: Any) -> Callable[..., bool]:
    """``BlockPool.reset_prefix_cache``, for which a pinned block that nobody holds is not in use."""

    def reset_prefix_cache(self: Any) -> bool:
        tier = _tier(self)
        if tier is not None and self.num_gpu_blocks - self.get_num_free_blocks() - tier.queue.num_free_blocks == 1:
            for block in tier.queue.get_all_free_blocks():
                # What it holds is about to be forgotten.
                tier.queue.remove(block)
                tier.pinned[block.block_id] = False
                if tier.scratch_first:
                    self.free_block_queue.prepend_n([block])
                else:
                    self.free_block_queue.append(block)
        succeeded = bool(original(self))
        boundaries = getattr(self, "boundaries", None)
        if succeeded and boundaries is not None:
            boundaries.clear()
        return succeeded

    return reset_prefix_cache


def remove_skipped_blocks(original: Any) -> Callable[..., None]:
    """``SingleTypeKVCacheManager.remove_skipped_blocks`` that pins the anchor in a long window drop."""

    def remove_skipped_blocks(self: Any, request_id: str, total_computed_tokens: int) -> None:
        anchor: Any = getattr(self, "anchor", None)
        if anchor is not None and request_id in self.req_to_blocks:
            blocks, tier = self.req_to_blocks[request_id], self.block_pool.pinned_tier
            end = min(self.get_num_skipped_tokens(total_computed_tokens) // self.block_size, len(blocks))
            # What was dropped before is null, and in front: one look says whether this drop is long enough.
            if end >= tier.min_drop_blocks and not blocks[end - tier.min_drop_blocks].is_null:
                first, last = anchor.before(end)
                tier.pin(blocks[first:last])
        original(self, request_id, total_computed_tokens)

    return remove_skipped_blocks


def free(original: Any) -> Callable[..., None]:
    """``SingleTypeKVCacheManager.free`` that pins whatever is cached: the next turn begins with it."""

    def free(self: Any, request_id: str) -> None:
        tier = _tier(self.block_pool)
        if tier is not None:
            tier.pin(self.req_to_blocks.get(request_id, ()))
        original(self, request_id)

    return free


def get_num_blocks_to_allocate(original: Any) -> Callable[..., int]:
    """``KVCacheCoordinator.get_num_blocks_to_allocate`` that demotes before anybody is refused.

    Every gate of vLLM asks it how many blocks are needed, and then compares with what is free. The sources of copies
    are held with the hit. A hit that must wait for the step to be dispatched needs more than there is.
    """

    def get_num_blocks_to_allocate(
        self: Any,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: tuple[Sequence[Any], ...],
        num_encoder_tokens: int,
        total_computed_tokens: int,
        *arguments: Any,
        **keywords: Any,
    ) -> int:
        needed: int = original(
            self,
            request_id,
            num_tokens,
            new_computed_blocks,
            num_encoder_tokens,
            total_computed_tokens,
            *arguments,
            **keywords,
        )
        kept_free = getattr(self, "kept_free", 0)
        if not any(new_computed_blocks):
            # A request that runs already hits nothing, and this is asked in every step.
            if kept_free is not None and needed + kept_free > self.block_pool.free_block_queue.num_free_blocks:
                tier = _tier(self.block_pool)
                if tier is not None:
                    tier.make_room(needed + kept_free, ())
            return needed
        partial = getattr(self, "partial", None)
        if partial is not None and partial.is_fenced(new_computed_blocks):
            return int(self.block_pool.num_gpu_blocks) + 1
        tier = _tier(self.block_pool)
        sources = [source.block for source in sources_of(new_computed_blocks)]
        needed += len([block for block in sources if not block.ref_cnt])
        if tier is not None:
            hit = sources + [
                block
                for manager, blocks in zip(self.single_type_managers, new_computed_blocks, strict=True)
                for block in blocks[manager.get_num_skipped_tokens(total_computed_tokens) // manager.block_size :]
            ]
            # vLLM counts every block of the hit that nobody holds; a pinned one takes nothing from the free queue.
            needed -= len([block for block in hit if not block.ref_cnt and tier.pinned[block.block_id]])
            if kept_free is not None:
                tier.make_room(needed + kept_free, {block.block_id for block in hit})
        return needed

    return get_num_blocks_to_allocate


def allocate_slots(original: Any) -> Callable[..., Any]:
    """``KVCacheManager.allocate_slots``, whose gates also ask for the blocks that must stay free for other requests.

    Only they demote: a scheduler that counts what its requests still need asks for nothing.
    """

    def allocate_slots(self: Any, *arguments: Any, reserved_blocks: int = 0, **keywords: Any) -> Any:
        coordinator = self.coordinator
        coordinator.kept_free = reserved_blocks
        try:
            return original(self, *arguments, reserved_blocks=reserved_blocks, **keywords)
        finally:
            coordinator.kept_free = None

    return allocate_slots


def get_usage(original: Any) -> Callable[..., float]:
    """``BlockPool.get_usage``, for which a pinned block that no request holds is free: any request can have it."""

    def get_usage(self: Any) -> float:
        tier, usable = _tier(self), self.num_gpu_blocks - 1
        if tier is None or not usable:
            return float(original(self))
        return float(1.0 - (self.get_num_free_blocks() + tier.queue.num_free_blocks) / usable)

    return get_usage


_POOL = "vllm.v1.core.block_pool:BlockPool"
_MANAGER = "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager"
_UPSTREAM = "vllm-project/vllm#40676, closed in favour of #43447"
_UNTIL = "nobody needs pins any more: retention covers most of what they are for"

PATCHES = (
    Patch(
        f"{_POOL}.touch",
        "A pinned block that is hit waits in another queue than vLLM takes it from.",
        "It is moved to the free queue, from where vLLM takes it.",
        _UPSTREAM,
        _UNTIL,
        "b3df81c93d24f2ac",
        touch,
    ),
    free_queue.EVICT,
    Patch(
        f"{_POOL}.reset_prefix_cache",
        "Blocks that are pinned and held by nobody would count as used, and no reset would succeed.",
        "They are freed first, if nothing else is in use.",
        _UPSTREAM,
        _UNTIL,
        "c24ac5cac145061e",
        reset_prefix_cache,
    ),
    Patch(
        f"{_POOL}.get_usage",
        "vllm:kv_cache_usage_perc would show a pool that is full at rest, to routers and autoscalers that go by it.",
        "Pinned blocks that no request holds count as free.",
        _UPSTREAM,
        _UNTIL,
        "ea958d97d13808d2",
        get_usage,
    ),
    Patch(
        f"{_MANAGER}.remove_skipped_blocks",
        "The blocks before the window are the anchor of the next request with the same prefix.",
        "What a hit reads at the last boundary in a drop that is long enough is pinned before vLLM frees it.",
        _UPSTREAM,
        _UNTIL,
        {"0.20.2": "474a2d5d0d5a5afe", "0.23.0": "2b5a3bcdfa6c6a83"},
        remove_skipped_blocks,
    ),
    Patch(
        f"{_MANAGER}.free",
        "What a request leaves behind is the beginning of the next turn.",
        "Whatever is cached is pinned before vLLM frees it.",
        _UPSTREAM,
        _UNTIL,
        "fb628d9b9f79859b",
        free,
    ),
    Patch(
        "vllm.v1.core.single_type_kv_cache_manager:SlidingWindowManager.free",
        "What a request leaves behind is the beginning of the next turn.",
        "Whatever is cached is pinned before vLLM frees it.",
        _UPSTREAM,
        _UNTIL,
        {"0.23.0": "caa083a1ba0728cc"},
        free,
    ),
    Patch(
        "vllm.v1.core.kv_cache_manager:KVCacheManager.allocate_slots",
        "A load is admitted only if blocks stay free for other requests: pinned ones would keep it out.",
        "Whoever asks for slots has as many demoted as it needs, and as must stay free.",
        _UPSTREAM,
        _UNTIL,
        {"0.23.0": "62ba301aef63ba92"},
        allocate_slots,
    ),
    Patch(
        "vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator.get_num_blocks_to_allocate",
        "A gate that counts what is free and does not demote refuses for ever.",
        "Whoever asks how many blocks are needed has as many demoted as are missing, if that is enough.",
        _UPSTREAM,
        _UNTIL,
        "b9e3dd59be109943",
        get_num_blocks_to_allocate,
    ),
)
