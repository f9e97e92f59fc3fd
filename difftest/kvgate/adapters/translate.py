"""What vLLM answers, in the gate's words: block tables, events, statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvreference.answers import BlockTable, Statistics
from kvreference.content import UNTAGGED, ExtraKey
from kvreference.events import DEVICE, Cleared, Event, Removed, Stored

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks


def to_statistics(taken: Any) -> Statistics:
    """vLLM's prefix-cache statistics as an answer."""
    return Statistics(
        requests=taken.requests,
        queries_tokens=taken.queries,
        hits_tokens=taken.hits,
        preempted_requests=taken.preempted_requests,
        preempted_queries_tokens=taken.preempted_queries,
        preempted_hits_tokens=taken.preempted_hits,
        reset=taken.reset,
    )


def ids_of(blocks: KVCacheBlocks) -> BlockTable:
    """Per group, the ids of vLLM's blocks."""
    return tuple(tuple(group) for group in blocks.get_block_ids())


def event_of(event: Any) -> Event:
    """vLLM's KV event in the gate's words. Extra keys arrive without their domains."""
    from vllm.distributed.kv_events import AllBlocksCleared, BlockStored

    if isinstance(event, AllBlocksCleared):
        return Cleared()
    group = event.group_idx
    contents = tuple((group, block_hash) for block_hash in event.block_hashes)
    medium = DEVICE if event.medium == "GPU" else str(event.medium)
    if not isinstance(event, BlockStored):
        (content,) = contents
        return Removed(content, medium)
    parent = event.parent_block_hash
    return Stored(
        group=group,
        contents=contents,
        parent=None if parent is None else (group, parent),
        tokens=tuple(event.token_ids),
        block_size_tokens=event.block_size,
        lora=event.lora_name,
        extra_keys=tuple(_untagged(keys) for keys in event.extra_keys or [None] * len(contents)),
        medium=medium,
        ahead=tuple(map(tuple, getattr(event, "lookahead_token_ids", None) or ())),
    )


def _untagged(keys: tuple[Any, ...] | None) -> tuple[ExtraKey, ...]:
    return tuple(ExtraKey(UNTAGGED, *key) if isinstance(key, tuple) else ExtraKey(UNTAGGED, key) for key in keys or ())
