"""vLLM's block pool and managers, with a pinned tier.

A pool that has one carries it as ``pinned_tier``; where it has none, each of these is vLLM's own function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

from swa_retention.partial.hit import sources_of
from swa_retention.register import UNPATCHED, Patch


def _tier(pool: Any) -> Any:
    return getattr(pool, "pinned_tier", None)


def touch(original: Any) -> Callable[..., None]:
    """``BlockPool.touch`` that takes a pinned block out of the queue that it waits in."""

    def touch(self: Any, blocks: Sequence[Any]) -> None:
        tier = getattr(self, "pinned_tier", None)
        original(self, blocks if tier is None else tier.resume(blocks))

    return touch


def reset_prefix_cache(original: Any) -> Callable[..., bool]:
    """``BlockPool.reset_prefix_cache``, for which a pinned block without a holder is not in use."""

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

    def remove_skipped_blocks(
        self: Any, request_id: str, total_computed_tokens: int, num_prompt_tokens: int | None = None
    ) -> None:
        anchor: Any = getattr(self, "anchor", None)
        if anchor is not None and request_id in self.req_to_blocks:
            blocks, tier = self.req_to_blocks[request_id], self.block_pool.pinned_tier
            end = self.get_num_skipped_tokens(total_computed_tokens) // self.block_size
            if end > len(blocks):
                end = len(blocks)
            # What was dropped before is null, and in front: one look says whether there is a drop, another whether it
            # is long enough. Most steps drop nothing, and vLLM would free an empty list.
            if not end or blocks[end - 1].is_null:
                return
            if end >= tier.min_drop_blocks and not blocks[end - tier.min_drop_blocks].is_null:
                first, last = anchor.before(end)
                tier.pin(blocks[first:last])
        # vLLM 0.33 alone says how long the prompt is.
        newer = () if num_prompt_tokens is None else (num_prompt_tokens,)
        original(self, request_id, total_computed_tokens, *newer)

    return remove_skipped_blocks


def free(original: Any) -> Callable[..., None]:
    """``SingleTypeKVCacheManager.free`` that pins cached blocks as it frees them: the next turn begins with them."""

    def free(self: Any, request_id: str) -> None:
        tier = _tier(self.block_pool)
        if tier is None:
            original(self, request_id)
            return
        tier.keeps_all = True
        try:
            original(self, request_id)
        finally:
            tier.keeps_all = False

    return free


def give_up(original: Any) -> Callable[..., Any]:
    """``SingleTypeKVCacheManager.pop_blocks_for_free`` that pins cached blocks.

    It may hand the blocks to vLLM's queue of deferred frees. Pinned and still held, they wait there until the steps
    that write them are over, and in the pinned tier after that.
    """

    def give_up(self: Any, request_id: str) -> Any:
        tier = _tier(self.block_pool)
        if tier is not None:
            tier.pin(self.req_to_blocks.get(request_id, ()))
        return original(self, request_id)

    return give_up


def free_blocks(original: Any) -> Callable[..., None]:
    """``BlockPool.free_blocks``, for which a pinned block without a holder waits in the pinned tier."""

    def free_blocks(self: Any, ordered_blocks: Iterable[Any], *where: Any, **named: Any) -> None:
        tier = _tier(self)
        original(self, ordered_blocks if tier is None else tier.release_pinned([*ordered_blocks]), *where, **named)

    return free_blocks


def get_num_blocks_to_allocate(original: Any) -> Callable[..., int]:
    """``KVCacheCoordinator.get_num_blocks_to_allocate`` that demotes before it rejects a request.

    Every gate of vLLM asks it how many blocks are needed, and then compares with what is free. The sources of copies
    are held with the hit. A hit that must wait for the step to be dispatched needs more than there is.
    """

    # After these, the arguments of vLLM 0.33 differ.
    def since_33(
        self: Any,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: tuple[Sequence[Any], ...],
        num_encoder_tokens: int,
        total_computed_tokens: int,
        *more: Any,
        **named: Any,
    ) -> int:
        leading = (request_id, num_tokens, new_computed_blocks, num_encoder_tokens, total_computed_tokens, *more)
        needed: int = original(self, *leading, **named)
        is_whole = named.get("apply_admission_cap", False)
        return _with_room(self, needed, new_computed_blocks, total_computed_tokens, is_whole)

    def get_num_blocks_to_allocate(
        self: Any,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: tuple[Sequence[Any], ...],
        num_encoder_tokens: int,
        total_computed_tokens: int,
        num_tokens_main_model: int,
        apply_admission_cap: bool = False,
    ) -> int:
        needed: int = original(
            self,
            request_id,
            num_tokens,
            new_computed_blocks,
            num_encoder_tokens,
            total_computed_tokens,
            num_tokens_main_model,
            apply_admission_cap,
        )
        if needed or any(new_computed_blocks) or getattr(self, "kept_free", 0):
            return _with_room(self, needed, new_computed_blocks, total_computed_tokens, apply_admission_cap)
        # Most steps hit nothing and need nothing.
        return 0

    return since_33 if "prefill_end" in inspect.signature(original).parameters else get_num_blocks_to_allocate


def _with_room(
    coordinator: Any, needed: int, hit_blocks: tuple[Sequence[Any], ...], computed_tokens: int, is_whole: bool
) -> int:
    """How many blocks count for a request that needs ``needed``; as many are demoted as are missing."""
    kept_free, tier = getattr(coordinator, "kept_free", 0), _tier(coordinator.block_pool)
    if kept_free and is_whole:
        # The gate for a whole request leaves other requests nothing.
        kept_free -= coordinator.kept_for_others
    hit: list[Any] = []
    # A request that runs already hits nothing.
    if any(hit_blocks):
        partial = getattr(coordinator, "partial", None)
        if partial is not None and partial.is_fenced(hit_blocks):
            return int(coordinator.block_pool.num_gpu_blocks) + 1
        hit = [source.block for source in sources_of(hit_blocks)]
        needed += len([block for block in hit if not block.ref_cnt])
    free = coordinator.block_pool.free_block_queue.num_free_blocks
    # If there is room in any case, a gate need not know how many blocks of the hit are pinned.
    if tier is not None and (kept_free is None or needed + kept_free > free):
        pinned = tier.pinned
        for manager, blocks in zip(coordinator.single_type_managers, hit_blocks, strict=True):
            hit += blocks[manager.get_num_skipped_tokens(computed_tokens) // manager.block_size :] if blocks else ()
        # vLLM counts every block of the hit that is not held; a pinned one takes nothing from the free queue.
        needed -= len([block for block in hit if not block.ref_cnt and pinned[block.block_id]])
        if kept_free is not None and needed + kept_free > free:
            tier.make_room(needed + kept_free, {block.block_id for block in hit})
    return needed


def allocate_slots(original: Any) -> Callable[..., Any]:
    """``KVCacheManager.allocate_slots``, whose gates also ask for blocks that must stay free.

    They stay so for other requests that load, and as the watermark of vLLM 0.33. Only these gates demote: a scheduler
    that counts what its requests still need asks for nothing.
    """
    from vllm.v1.request import RequestStatus

    waiting = (RequestStatus.WAITING, RequestStatus.PREEMPTED)

    @wraps(original)
    def allocate_slots(self: Any, request: Any, *arguments: Any, reserved_blocks: int = 0, **keywords: Any) -> Any:
        coordinator, watermark = self.coordinator, getattr(self, "watermark_blocks", 0)
        if watermark and not (keywords.get("has_scheduled_reqs", True) and request.status in waiting):
            watermark = 0
        coordinator.kept_free, coordinator.kept_for_others = watermark + reserved_blocks, reserved_blocks
        try:
            return original(self, request, *arguments, reserved_blocks=reserved_blocks, **keywords)
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
_UNTIL = "pins are not needed any more: retention covers most of what they are for"

PATCHES = (
    Patch(
        f"{_POOL}.touch",
        "A pinned block that is hit waits in another queue than vLLM takes it from.",
        "It is taken out of its own queue and held; vLLM takes the others.",
        _UPSTREAM,
        _UNTIL,
        {"0.20.2": "b3df81c93d24f2ac", "0.33.0": "191cb0620050da8c"},
        touch,
    ),
    Patch(
        f"{_POOL}.reset_prefix_cache",
        "Blocks that are pinned and not held would count as used, and no reset would succeed.",
        "They are freed first, if nothing else is in use.",
        _UPSTREAM,
        _UNTIL,
        {"0.20.2": "c24ac5cac145061e", "0.33.0": "d91112e8d05a8e00"},
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
        {"0.20.2": "474a2d5d0d5a5afe", "0.23.0": "2b5a3bcdfa6c6a83", "0.33.0": "ffdceea6f51d5fa5"},
        remove_skipped_blocks,
    ),
    Patch(
        f"{_MANAGER}.free",
        "The blocks of a finished request are the beginning of the next turn.",
        "Cached blocks are pinned as vLLM frees them.",
        _UPSTREAM,
        _UNTIL,
        {"0.20.2": "fb628d9b9f79859b", "0.33.0": UNPATCHED},
        free,
    ),
    Patch(
        "vllm.v1.core.single_type_kv_cache_manager:SlidingWindowManager.free",
        "The blocks of a finished request are the beginning of the next turn.",
        "Cached blocks are pinned as vLLM frees them.",
        _UPSTREAM,
        _UNTIL,
        {"0.23.0": "caa083a1ba0728cc", "0.33.0": UNPATCHED},
        free,
    ),
    Patch(
        f"{_MANAGER}.pop_blocks_for_free",
        "The blocks of a finished request are the beginning of the next turn, also if vLLM frees them later.",
        "Cached blocks are pinned before vLLM takes them out of the request's table.",
        _UPSTREAM,
        _UNTIL,
        {"0.33.0": "1a5fe68d2c5ad1ca"},
        give_up,
    ),
    Patch(
        f"{_POOL}.free_blocks",
        "A pinned block without a holder is not free.",
        "It is released here, into the pinned tier; vLLM frees the others.",
        _UPSTREAM,
        _UNTIL,
        {"0.23.0": "b44d34bd17daf745", "0.33.0": "4ccfd1ea0911017b"},
        free_blocks,
    ),
    Patch(
        "vllm.v1.core.kv_cache_manager:KVCacheManager.allocate_slots",
        "A load is admitted only if blocks stay free for other requests: pinned ones would keep it out.",
        "A call for slots demotes as many blocks as it needs, and as must stay free.",
        _UPSTREAM,
        _UNTIL,
        {"0.23.0": "62ba301aef63ba92", "0.33.0": "f9bca7688e808089"},
        allocate_slots,
    ),
    Patch(
        "vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator.get_num_blocks_to_allocate",
        "A gate that counts free blocks without demoting rejects permanently.",
        "A call for the number of needed blocks demotes as many as are missing, if that is enough.",
        _UPSTREAM,
        _UNTIL,
        {"0.20.2": "b9e3dd59be109943", "0.33.0": "c9c6224264b842bd"},
        get_num_blocks_to_allocate,
    ),
)
