"""Mutants of the KV events: one lost, told twice, or saying something else than what happened."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import HYBRID, breaks

_POOL = "vllm.v1.core.block_pool:BlockPool"


@breaks(f"{_POOL}._maybe_evict_cached_block", violates="KV-OP-12", needs=("events",))
def removal_not_told(original: Any, self: Any, block: Any) -> Any:
    """No event tells that a block's content was forgotten."""
    evicted = original(self, block)
    if evicted:
        self.kv_event_queue.pop()
    return evicted


@breaks(f"{_POOL}._maybe_evict_cached_block", violates="KV-OP-12", models=HYBRID, needs=("events",))
def removal_told_of_the_first_group(original: Any, self: Any, block: Any) -> Any:
    """The event of a forgotten block names the first group, whichever it was."""
    evicted = original(self, block)
    if evicted:
        self.kv_event_queue[-1].group_idx = 0
    return evicted


@breaks(f"{_POOL}.reset_prefix_cache", violates="KV-OP-12", needs=("events", "reset"))
def reset_not_told(original: Any, self: Any) -> Any:
    """No event tells that the cache was reset."""
    succeeded = original(self)
    if succeeded:
        self.kv_event_queue.pop()
    return succeeded


@breaks(f"{_POOL}.take_events", violates="KV-OP-12", needs=("events",))
def events_told_twice(original: Any, self: Any) -> Any:
    """Events that were taken are told once more the next time."""
    events = original(self)
    again = vars(self).pop("told_events", [])
    self.told_events = events
    return again + events


@breaks(f"{_POOL}.cache_full_blocks", violates="KV-OP-12", needs=("events",))
def continuation_not_told(original: Any, self: Any, **asked: Any) -> None:
    """Only the first blocks of a request are told to be cached."""
    told = len(self.kv_event_queue)
    original(self, **asked)
    if asked["num_cached_blocks"] > 0:
        del self.kv_event_queue[told:]


@breaks(f"{_POOL}.cache_full_blocks", violates="KV-OP-12", needs=("events",))
def parent_not_told(original: Any, self: Any, **asked: Any) -> None:
    """Blocks that continue a prefix are told to begin one."""
    told = len(self.kv_event_queue)
    original(self, **asked)
    for event in self.kv_event_queue[told:]:
        event.parent_block_hash = None


@breaks(f"{_POOL}.cache_full_blocks", violates="KV-OP-12", needs=("events",))
def tokens_told_a_block_late(original: Any, self: Any, **asked: Any) -> None:
    """An event tells the tokens from the block behind the first one it names."""
    told = len(self.kv_event_queue)
    original(self, **asked)
    for event in self.kv_event_queue[told:]:
        start = (asked["num_cached_blocks"] + 1) * event.block_size
        event.token_ids = asked["request"].all_token_ids[start : start + len(event.token_ids)]


@breaks(f"{_POOL}.cache_full_blocks", violates="KV-OP-12", needs=("events", "salt"))
def extra_keys_not_told(original: Any, self: Any, **asked: Any) -> None:
    """An event does not tell what besides tokens its blocks depend on."""
    told = len(self.kv_event_queue)
    original(self, **asked)
    for event in self.kv_event_queue[told:]:
        event.extra_keys = None
