"""Mutants of what the block manager reports: KV events, statistics, the common prefix, and block tables."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from kvgate_mutants.mutants.mutant import FULL, HYBRID, breaks

# Mutants of the KV events: one lost, sent twice, or reporting something else than what happened.

_POOL = "vllm.v1.core.block_pool:BlockPool"


@breaks(f"{_POOL}._maybe_evict_cached_block", violates="KV-OP-12", needs=("events",))
def removal_not_told(original: Any, self: Any, block: Any) -> Any:
    """No event reports that a block's content was forgotten."""
    evicted = original(self, block)
    if evicted:
        self.kv_event_queue.pop()
    return evicted


@breaks(f"{_POOL}._maybe_evict_cached_block", violates="KV-OP-12", models=HYBRID, needs=("events",))
def removal_told_of_the_first_group(original: Any, self: Any, block: Any) -> Any:
    """The event of a forgotten block always names the first group."""
    evicted = original(self, block)
    if evicted:
        self.kv_event_queue[-1].group_idx = 0
    return evicted


@breaks(f"{_POOL}.reset_prefix_cache", violates="KV-OP-12", needs=("events", "reset"))
def reset_not_told(original: Any, self: Any) -> Any:
    """No event reports that the cache was reset."""
    succeeded = original(self)
    if succeeded:
        self.kv_event_queue.pop()
    return succeeded


@breaks(f"{_POOL}.take_events", violates="KV-OP-12", needs=("events",))
def events_told_twice(original: Any, self: Any) -> Any:
    """Events that were taken are sent once more the next time."""
    events = original(self)
    again = vars(self).pop("told_events", [])
    self.told_events = events
    return again + events


@breaks(f"{_POOL}.take_events", violates="KV-OP-12", needs=("events",))
def last_event_not_told(original: Any, self: Any) -> Any:
    """Of the events that are taken the last one is missing."""
    return original(self)[:-1]


@breaks(f"{_POOL}.cache_full_blocks", violates="KV-OP-12", needs=("events",))
def continuation_not_told(original: Any, self: Any, **asked: Any) -> None:
    """Only the first blocks of a request are reported as cached."""
    reported = len(self.kv_event_queue)
    original(self, **asked)
    if asked["num_cached_blocks"] > 0:
        del self.kv_event_queue[reported:]


@breaks(f"{_POOL}.cache_full_blocks", violates="KV-OP-12", needs=("events",))
def parent_not_told(original: Any, self: Any, **asked: Any) -> None:
    """Blocks that continue a prefix are reported as beginning one."""
    reported = len(self.kv_event_queue)
    original(self, **asked)
    for event in self.kv_event_queue[reported:]:
        event.parent_block_hash = None


@breaks(f"{_POOL}.cache_full_blocks", violates="KV-OP-12", needs=("events",))
def tokens_told_a_block_late(original: Any, self: Any, **asked: Any) -> None:
    """An event reports the tokens from the block after the first one it names."""
    reported = len(self.kv_event_queue)
    original(self, **asked)
    for event in self.kv_event_queue[reported:]:
        start = (asked["num_cached_blocks"] + 1) * event.block_size
        event.token_ids = asked["request"].all_token_ids[start : start + len(event.token_ids)]


@breaks(f"{_POOL}.cache_full_blocks", violates="KV-OP-12", needs=("events", "salt"))
def extra_keys_not_told(original: Any, self: Any, **asked: Any) -> None:
    """An event does not report what its blocks depend on besides tokens."""
    reported = len(self.kv_event_queue)
    original(self, **asked)
    for event in self.kv_event_queue[reported:]:
        event.extra_keys = None


# Mutants of what the block manager reports to its scheduler: statistics, the common prefix, and tables for the workers.

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
    """Statistics that were taken are not reset, and keep counting."""
    taken = original(self)
    self.prefix_cache_stats = taken
    return taken


@breaks(f"{_MANAGER}.reset_prefix_cache", violates="KV-OP-13", needs=("reset", "statistics"))
def statistics_silent_about_a_reset(original: Any, self: Any) -> Any:
    """Statistics do not report that the cache was reset."""
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
    """A block table is sent to workers in reverse."""
    return tuple(blocks[::-1] for blocks in original(self, request_id))
