"""Mutants of what the block manager tells its scheduler: statistics, the common prefix, and tables for the workers."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from kvgate_mutants.mutants.mutant import FULL, breaks

_MANAGER = "vllm.v1.core.kv_cache_manager:KVCacheManager"
_RECORD = "vllm.v1.metrics.stats:PrefixCacheStats.record"
_COMMON_PREFIX = "vllm.v1.core.single_type_kv_cache_manager:FullAttentionManager.get_num_common_prefix_blocks"


@breaks(_RECORD, violates="KV-OP-13", needs=("preemption", "statistics"))
def preempted_counted_as_new(original: Any, self: Any, **counts: Any) -> None:
    """Look-ups of preempted requests are counted among those of new ones."""
    original(self, **counts | {"preempted": False})


@breaks(_RECORD, violates="KV-OP-13", needs=("statistics",))
def misses_not_counted(original: Any, self: Any, **counts: Any) -> None:
    """A look-up that hits nothing is not counted."""
    if counts["num_hits"] > 0:
        original(self, **counts)


@breaks(f"{_MANAGER}.make_prefix_cache_stats", violates="KV-OP-13", needs=("statistics",))
def statistics_never_start_anew(original: Any, self: Any) -> Any:
    """Statistics that were taken go on counting from there."""
    taken = original(self)
    self.prefix_cache_stats = taken
    return taken


@breaks(f"{_MANAGER}.reset_prefix_cache", violates="KV-OP-13", needs=("reset", "statistics"))
def statistics_silent_about_a_reset(original: Any, self: Any) -> Any:
    """Statistics do not tell that the cache was reset."""
    succeeded = original(self)
    self.prefix_cache_stats.reset = False
    return succeeded


@breaks(_COMMON_PREFIX, violates="KV-OP-14", models=FULL, needs=("common-prefix",))
def common_prefix_one_block_short(original: Any, self: Any, running_request_id: str) -> Any:
    """The common prefix ends one block before what all requests share."""
    return max(0, original(self, running_request_id) - 1)


@breaks(_COMMON_PREFIX, violates="KV-OP-14", models=FULL, needs=("common-prefix",))
def common_prefix_of_some(_original: Any, self: Any, running_request_id: str) -> Any:
    """The common prefix is what at least two requests share, not what all do."""
    blocks = self.req_to_blocks[running_request_id]
    return sum(1 for _ in takewhile(lambda block: block.ref_cnt > 1, blocks))


@breaks(f"{_MANAGER}.get_block_ids", violates="KV-OP-05")
def tables_told_in_reverse(original: Any, self: Any, request_id: str) -> Any:
    """What workers are told of a block table stands in reverse."""
    return tuple(blocks[::-1] for blocks in original(self, request_id))
