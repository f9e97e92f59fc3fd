"""vLLM's caching: only blocks that a hit can reach are cached, and not before they can be reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from swa_retention.register import Patch


def cache_blocks(original: Any) -> Callable[..., None]:
    """``SingleTypeKVCacheManager.cache_blocks`` that passes over what no hit can reach.

    vLLM's own counter of cached blocks counts what was looked at: a block that is not due yet, and all behind it, are
    looked at again.
    """

    def cache_blocks(self: Any, request: Any, num_tokens: int, **_newer: Any) -> None:
        reach = getattr(self, "reach", None)
        if reach is None:
            # A coordinator of a newer vLLM says more, by keyword, than this one's managers know.
            original(self, request, num_tokens)
            return
        start = self.num_cached_block.get(request.request_id, 0)
        full = num_tokens // self.block_size
        if start >= full:
            return
        replay = self.replay_boundary_tokens(request)
        position, mask = start, []
        while position < full:
            due = reach.due_tokens(position, replay)
            if due is not None and due > num_tokens:
                break
            mask.append(due is not None)
            position += 1
        if any(mask):
            self.block_pool.cache_full_blocks(
                request=request,
                blocks=self.req_to_blocks[request.request_id],
                num_cached_blocks=start,
                num_full_blocks=position,
                block_size=self.block_size,
                kv_cache_group_id=self.kv_cache_group_id,
                block_mask=mask,
            )
        self.num_cached_block[request.request_id] = position

    return cache_blocks


def cache_full_blocks(original: Any) -> Callable[..., None]:
    """``BlockPool.cache_full_blocks`` that takes a mask, and tells of exactly what it caches."""

    def cache_full_blocks(
        self: Any,
        request: Any,
        blocks: Sequence[Any],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        kv_cache_group_id: int,
        block_mask: Sequence[bool] | None = None,
    ) -> None:
        if block_mask is None:
            original(self, request, blocks, num_cached_blocks, num_full_blocks, block_size, kv_cache_group_id)
            return
        wanted = [
            position
            for position, wants in enumerate(block_mask, num_cached_blocks)
            if wants and not blocks[position].is_null
        ]
        for first, last in _runs(wanted):
            # One run of neighbours a time: an event that told of more would name tokens of blocks that are not cached.
            original(self, request, blocks, first, last + 1, block_size, kv_cache_group_id)

    return cache_full_blocks


def _runs(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring positions together: the first and the last of each run."""
    start = 0
    for index in range(1, len(positions) + 1):
        if index == len(positions) or positions[index] != positions[index - 1] + 1:
            yield positions[start], positions[index - 1]
            start = index


_UNTIL = "vLLM 0.23, which has it"

PATCHES = (
    Patch(
        "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager.cache_blocks",
        "A block that no hit can reach is cached, and pushes out one that a hit could reach.",
        "Each block is asked when it is due; nothing changes where retention is off.",
        "vllm-project/vllm#42258, #43447, #44082",
        _UNTIL,
        "5d7039143f393685",
        cache_blocks,
    ),
    Patch(
        "vllm.v1.core.block_pool:BlockPool.cache_full_blocks",
        "Whoever caches can leave blocks out.",
        "A parameter is added: the mask of the blocks to be cached. Without it, it is vLLM's own function.",
        "vllm-project/vllm#42258",
        _UNTIL,
        "148edd95a00853de",
        cache_full_blocks,
    ),
)
