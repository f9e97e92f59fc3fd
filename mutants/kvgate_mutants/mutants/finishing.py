"""Mutants of a request's end: what is released, in which order, and what remains of it."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import HYBRID, breaks

_COORDINATOR = "vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator.free"
_GROUP = "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager.free"


@breaks(_GROUP, violates="KV-OP-07")
def table_released_front_first(original: Any, self: Any, request_id: str) -> None:
    """A request that ends releases its first block first."""
    if request_id in self.req_to_blocks:
        self.req_to_blocks[request_id].reverse()
    original(self, request_id)


@breaks(_COORDINATOR, violates="KV-OP-07", models=HYBRID)
def groups_released_in_reverse(_original: Any, self: Any, request_id: str) -> None:
    """A request that ends releases the blocks of the last group first."""
    for manager in reversed(self.single_type_managers):
        manager.free(request_id)


@breaks(_COORDINATOR, violates="KV-LEAK-01", models=HYBRID)
def first_group_alone_released(_original: Any, self: Any, request_id: str) -> None:
    """A request that ends releases the blocks of the first group alone."""
    self.single_type_managers[0].free(request_id)


@breaks("vllm.v1.core.kv_cache_manager:KVCacheManager.free", violates="KV-LEAK-01", needs=("preemption",))
def last_block_kept_after_preemption(original: Any, self: Any, request: Any) -> None:
    """A request that was preempted before never gives its last block back."""
    for table in self.coordinator.get_blocks(request.request_id):
        if request.num_preemptions > 0:
            self.block_pool.touch(table[-1:])
    original(self, request)


@breaks(_GROUP, violates="KV-LEAK-01")
def cached_count_outlives_request(original: Any, self: Any, request_id: str) -> None:
    """How many of its blocks are cached is remembered of a request that is gone."""
    count = self.num_cached_block.get(request_id)
    original(self, request_id)
    if count is not None:
        self.num_cached_block[request_id] = count


@breaks(_GROUP, violates="KV-LEAK-01")
def empty_table_outlives_request(original: Any, self: Any, request_id: str) -> None:
    """An empty table remains of a request that is gone."""
    original(self, request_id)
    self.req_to_blocks[request_id].clear()


@breaks(_GROUP, violates="KV-INV-01")
def table_outlives_request(original: Any, self: Any, request_id: str) -> None:
    """A request's table still names the blocks that were released."""
    table = self.req_to_blocks.get(request_id)
    original(self, request_id)
    if table:
        self.req_to_blocks[request_id] = table


@breaks(_GROUP, violates="KV-OP-08")
def content_ends_with_its_request(original: Any, self: Any, request_id: str) -> None:
    """The content of a request that ends is forgotten with it, unless others use it."""
    table = list(self.req_to_blocks.get(request_id, ()))
    original(self, request_id)
    self.block_pool.evict_blocks({block.block_id for block in table if block.ref_cnt == 0 and not block.is_null})


@breaks(_GROUP, violates="KV-SYS-01")
def end_without_table_raises(original: Any, self: Any, request_id: str) -> None:
    """A request that is aborted before it got a block has no table, and that is an error."""
    if request_id not in self.req_to_blocks:
        raise KeyError(request_id)
    original(self, request_id)
