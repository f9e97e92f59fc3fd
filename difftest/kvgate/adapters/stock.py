"""The adapter for vLLM 0.20.2 as published: its ``KVCacheManager``, driven the way its scheduler drives it.

Requests are vLLM's own ``Request`` objects, hashed by vLLM's own block hasher. What the adapter adds is the
scheduler's part: how many tokens are computed, which drafts are in flight, which blocks go with which call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kvreference.answers import Answer, BlockTable, Done, Granted, Happened, Hit, Refused, Shared, Statistics, Success
from kvreference.attention import Kind
from kvreference.content import UNTAGGED, ExtraKey
from kvreference.events import Cleared, Event, Removed, Stored
from kvreference.geometry import Group
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    CommonPrefix,
    Evict,
    Finish,
    LookUp,
    Operation,
    Preempt,
    ReleaseSkipped,
    Reset,
    Sample,
    Schedule,
    TakeEvents,
    TakeStatistics,
    spell,
)
from kvreference.population import Population
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.kv_cache_interface import KVCacheSpec
    from vllm.v1.request import Request


class Stock:
    """vLLM's block manager under the gate's protocol."""

    def __init__(self, settings: Settings) -> None:
        from vllm.lora.request import LoRARequest
        from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
        from vllm.sampling_params import SamplingParams
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_manager import KVCacheManager
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.request import Request

        self.settings = settings
        self.population = Population(settings)
        geometry = settings.geometry
        init_none_hash(sha256)
        self.manager = KVCacheManager(
            KVCacheConfig(
                num_blocks=settings.blocks,
                kv_cache_tensors=[],
                kv_cache_groups=[
                    KVCacheGroupSpec([f"layer.{index}"], _spec(group), is_eagle_group=group.lookahead)
                    for index, group in enumerate(geometry.groups)
                ],
            ),
            max_model_len=settings.tokens_max,
            hash_block_size=geometry.grain_tokens,
            max_num_batched_tokens=settings.chunk_tokens,
            enable_caching=settings.caches,
            use_eagle=any(group.lookahead for group in geometry.groups),
            log_stats=True,
            enable_kv_cache_events=settings.tells_events,
        )
        self._requests: dict[int, Request] = {}
        hasher = get_request_block_hasher(geometry.grain_tokens, sha256) if settings.caches else None
        sampling = {reads: SamplingParams(skip_reading_prefix_cache=not reads) for reads in (True, False)}

        def new_request(operation: Arrive) -> Request:
            keys = operation.keys
            return Request(
                request_id=self.name_of(operation.request),
                prompt_token_ids=spell(operation.prompt),
                sampling_params=sampling[operation.reads_cache],
                pooling_params=None,
                mm_features=[
                    MultiModalFeatureSpec(
                        data=None,
                        modality="image",
                        identifier=item.identifier,
                        mm_position=PlaceholderRange(offset=item.offset_tokens, length=item.length_tokens),
                    )
                    for item in keys.media
                ],
                # The number is deprecated and must be positive; the name alone identifies the adapter.
                lora_request=None if keys.lora is None else LoRARequest(keys.lora, 1, f"/lora/{keys.lora}"),
                cache_salt=keys.salt,
                block_hasher=hasher,
            )

        self._new_request = new_request

    def name_of(self, request: int) -> str:
        return f"kvgate-request-{request}"

    def roots(self) -> Mapping[str, object]:
        return {"manager": self.manager}

    def apply(self, operation: Operation) -> Answer:
        answer = _PERFORM[type(operation)](self, operation)
        self.population.settle(operation, answer)
        if isinstance(operation, (Admit, Schedule, Sample, Preempt)):
            self._follow(operation.request)
        return answer

    def _follow(self, number: int) -> None:
        """Bring vLLM's request to where the scheduler's books have it."""
        ours, theirs = self.population[number], self._requests[number]
        theirs.num_computed_tokens = ours.tokens_computed
        theirs.num_preemptions = ours.preemptions
        theirs.spec_token_ids = list(ours.drafts)
        if len(ours.tokens) > theirs.num_tokens:
            theirs.append_output_token_ids(ours.tokens[theirs.num_tokens :])

    # Requests

    def _arrive(self, operation: Arrive) -> Done:
        self._requests[operation.request] = self._new_request(operation)
        return Done()

    def _nothing(self, _operation: Sample) -> Done:
        return Done()

    def _look_up(self, operation: LookUp) -> Hit:
        blocks, tokens = self.manager.get_computed_blocks(self._requests[operation.request])
        return Hit(tokens, _ids(blocks))

    def _admit(self, operation: Admit) -> Granted | Refused:
        request = self._requests[operation.request]
        blocks, hit_tokens = self.manager.get_computed_blocks(request)
        if self.settings.full_sequence_must_fit and not self.manager.can_fit_full_sequence(
            request, num_new_computed_tokens=hit_tokens, new_computed_blocks=blocks
        ):
            return Refused(hit_tokens, gate=True)
        granted = self.manager.allocate_slots(
            request,
            min(request.num_tokens - hit_tokens, operation.tokens, self.settings.chunk_tokens),
            num_new_computed_tokens=hit_tokens,
            new_computed_blocks=blocks,
            # vLLM's scheduler gives a request without computed tokens no look-ahead slots.
            num_lookahead_tokens=0,
        )
        return Refused(hit_tokens, gate=False) if granted is None else Granted(hit_tokens, _ids(granted))

    def _schedule(self, operation: Schedule) -> Granted | Refused:
        granted = self.manager.allocate_slots(
            self._requests[operation.request],
            self.population.tokens_to_schedule(self.population[operation.request], operation.tokens),
            num_lookahead_tokens=self.settings.lookahead_tokens,
        )
        return Refused(0, gate=False) if granted is None else Granted(0, _ids(granted))

    def _preempt(self, operation: Preempt) -> Done:
        self.manager.free(self._requests[operation.request])
        return Done()

    def _end(self, operation: Finish | Abort) -> Done:
        self.manager.free(self._requests.pop(operation.request))
        return Done()

    def _release_skipped(self, operation: ReleaseSkipped) -> Done:
        request = self._requests[operation.request]
        self.manager.remove_skipped_blocks(request.request_id, request.num_computed_tokens)
        return Done()

    def _common_prefix(self, operation: CommonPrefix) -> Shared:
        return Shared(tuple(self.manager.get_num_common_prefix_blocks(self.name_of(operation.request))))

    # The pool

    def _evict(self, operation: Evict) -> Done:
        self.manager.evict_blocks({operation.block})
        return Done()

    def _reset(self, _operation: Reset) -> Success:
        return Success(self.manager.reset_prefix_cache())

    def _take_events(self, _operation: TakeEvents) -> Happened:
        return Happened(tuple(_translate(event) for event in self.manager.take_events()))

    def _take_statistics(self, _operation: TakeStatistics) -> Statistics:
        taken = self.manager.make_prefix_cache_stats()
        assert taken is not None, "the manager was built with log_stats"
        return Statistics(
            requests=taken.requests,
            queries_tokens=taken.queries,
            hits_tokens=taken.hits,
            preempted_requests=taken.preempted_requests,
            preempted_queries_tokens=taken.preempted_queries,
            preempted_hits_tokens=taken.preempted_hits,
            reset=taken.reset,
        )

    def snapshot(self) -> Snapshot:
        pool = self.manager.block_pool
        tables = {}
        for number in self._requests:
            # What vLLM's scheduler sends to its workers.
            blocks = list(self.manager.get_block_ids(self.name_of(number)))
            if any(blocks):
                tables[number] = blocks
        return Snapshot(
            tables=tables,
            references=[block.ref_cnt for block in pool.blocks],
            free=self._free_queue(),
            blocks_free=pool.get_num_free_blocks(),
            contents=[block._block_hash for block in pool.blocks],
            read_entries=self._entries,
        )

    def _entries(self) -> dict[bytes, tuple[int, ...]]:
        cached = self.manager.block_pool.cached_block_hash_to_block._cache
        return {
            key: tuple(blocks) if isinstance(blocks, dict) else (blocks.block_id,) for key, blocks in cached.items()
        }

    def _free_queue(self) -> list[int]:
        """Walk vLLM's linked list, no further than a sound one can be long."""
        queue = self.manager.block_pool.free_block_queue
        block, end = queue.fake_free_list_head.next_free_block, queue.fake_free_list_tail
        found: list[int] = []
        while block is not None and block is not end and len(found) <= self.settings.blocks:
            found.append(block.block_id)
            block = block.next_free_block
        return found


def _spec(group: Group) -> KVCacheSpec:
    """The group in vLLM's words. Heads and head size only matter for memory, which no test of the manager needs."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec

    shape: dict[str, Any] = {
        "block_size": group.block_size_tokens,
        "num_kv_heads": 1,
        "head_size": 1,
        "dtype": torch.float32,
    }
    if group.kind is Kind.SLIDING_WINDOW:
        return SlidingWindowSpec(sliding_window=group.window_tokens or 0, **shape)
    return FullAttentionSpec(**shape)


def _ids(blocks: KVCacheBlocks) -> BlockTable:
    return tuple(tuple(group) for group in blocks.get_block_ids())


def _translate(event: Any) -> Event:
    """vLLM's KV event in the gate's words. Extra keys arrive without their domains."""
    from vllm.distributed.kv_events import AllBlocksCleared, BlockStored

    if isinstance(event, AllBlocksCleared):
        return Cleared()
    group = event.group_idx
    contents = tuple((group, block_hash) for block_hash in event.block_hashes)
    if not isinstance(event, BlockStored):
        (content,) = contents
        return Removed(content)
    parent = event.parent_block_hash
    return Stored(
        group=group,
        contents=contents,
        parent=None if parent is None else (group, parent),
        tokens=tuple(event.token_ids),
        block_size_tokens=event.block_size,
        lora=event.lora_name,
        extra_keys=tuple(_untagged(keys) for keys in event.extra_keys or [None] * len(contents)),
    )


def _untagged(keys: tuple[Any, ...] | None) -> tuple[ExtraKey, ...]:
    return tuple(ExtraKey(UNTAGGED, *key) if isinstance(key, tuple) else ExtraKey(UNTAGGED, key) for key in keys or ())


_PERFORM: dict[type, Callable[[Stock, Any], Answer]] = {
    Arrive: Stock._arrive,
    LookUp: Stock._look_up,
    Admit: Stock._admit,
    Schedule: Stock._schedule,
    Sample: Stock._nothing,
    Preempt: Stock._preempt,
    Finish: Stock._end,
    Abort: Stock._end,
    ReleaseSkipped: Stock._release_skipped,
    CommonPrefix: Stock._common_prefix,
    Evict: Stock._evict,
    Reset: Stock._reset,
    TakeEvents: Stock._take_events,
    TakeStatistics: Stock._take_statistics,
}
