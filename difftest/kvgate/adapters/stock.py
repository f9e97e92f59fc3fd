"""The adapter for vLLM 0.20.2 as published: its ``KVCacheManager``, driven the way its scheduler drives it.

Requests are vLLM's own ``Request`` objects, hashed by vLLM's own block hasher. What the adapter adds is the
scheduler's part: how many tokens are computed, which drafts are in flight, what other nodes provide, load and read,
which blocks go with which call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

from attrs import frozen

from kvgate.adapters.groups import group_specs, unsupported
from kvgate.adapters.releases import INSTALLED
from kvgate.adapters.translate import event_of, ids_of, to_statistics
from kvgate.adapters.work_meter import WorkMeter, counted_hash, following
from kvgate.kernel.errors import UsageError
from kvreference.answers import (
    Answer,
    BlockTable,
    Copies,
    Copy,
    Done,
    Granted,
    Happened,
    Hit,
    Partial,
    Refused,
    Shared,
    Statistics,
    Success,
)
from kvreference.geometry import Geometry
from kvreference.operations import (
    Abort,
    Admit,
    Arrive,
    CommonPrefix,
    Dispatch,
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
    Transferred,
    spell,
)
from kvreference.population import Population, Status, holds_on
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.kv_cache_interface import KVCacheGroupSpec
    from vllm.v1.request import Request


@frozen
class Given:
    """What a waiting request brings: a hit, and what other nodes have for it."""

    blocks: KVCacheBlocks
    hit_tokens: int
    external_tokens: int
    loads: bool


def hasher_of(settings: Settings) -> Callable[[Any], list[Any]] | None:
    """vLLM's own hasher of the blocks of a request, counted; None where nothing is cached."""
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher

    geometry = settings.geometry
    ahead = (geometry.hashed_ahead_tokens,) if geometry.hashed_ahead_tokens else ()
    return get_request_block_hasher(geometry.grain_tokens, counted_hash(sha256), *ahead) if settings.caches else None


@contextmanager
def managers_built_by(building: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Adapters that are made meanwhile have what ``building`` makes of vLLM's class of block managers."""
    from vllm.v1.core import kv_cache_manager

    with mock.patch.object(kv_cache_manager, "KVCacheManager", building(kv_cache_manager.KVCacheManager)):
        yield


class Stock:
    """vLLM's block manager under the gate's protocol.

    Raises:
        ValueError: settings for which vLLM 0.20.2 has nothing.
    """

    description = INSTALLED
    """The release whose block manager it is."""

    @property
    def release(self) -> str:
        """What findings call it: a finding applies to some releases."""
        return self.description.label

    def fixes(self) -> frozenset[str]:
        """The findings of vLLM that this system does not have."""
        return frozenset()

    def __init__(self, settings: Settings) -> None:
        refused = self.refusal(settings)
        if refused is not None:
            raise ValueError(refused)

        from vllm.lora.request import LoRARequest
        from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
        from vllm.sampling_params import SamplingParams
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import init_none_hash
        from vllm.v1.request import Request

        self.settings = settings
        self.population = Population(settings)
        init_none_hash(sha256)
        self.manager = self.build()
        self._requests: dict[int, Request] = {}
        self._tables_read: tuple[int, list[list[int]]] | None = None
        """The request whose tables were read after the last change, and these."""
        hasher = hasher_of(settings)
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

    def refusal(self, settings: Settings) -> str | None:
        """The first of ``settings`` that this system does not have, and what it has instead; None if there is none."""
        return unsupported(settings)

    def build(self) -> KVCacheManager:
        """vLLM's block manager with the settings of this system."""
        from vllm.v1.core.kv_cache_manager import KVCacheManager
        from vllm.v1.kv_cache_interface import KVCacheConfig

        settings, geometry = self.settings, self.settings.geometry
        return KVCacheManager(
            KVCacheConfig(num_blocks=settings.blocks, kv_cache_tensors=[], kv_cache_groups=self.groups(geometry)),
            max_model_len=settings.tokens_max,
            hash_block_size=geometry.grain_tokens,
            max_num_batched_tokens=settings.chunk_tokens,
            enable_caching=settings.caches,
            use_eagle=any(group.lookahead for group in geometry.groups),
            log_stats=True,
            enable_kv_cache_events=settings.tells_events,
        )

    def groups(self, geometry: Geometry) -> list[KVCacheGroupSpec]:
        """The groups as the block manager is given them."""
        return group_specs(geometry)

    @contextmanager
    def configured(self, settings: Settings) -> Iterator[Mapping[str, Any]]:
        """Managers built in this context have the features of ``settings``; yields what their configuration must say of
        them."""
        del settings
        yield {}

    def found(self, request: Request) -> tuple[KVCacheBlocks, int]:
        """The longest hit of a request: its blocks, and how many tokens."""
        return self.manager.get_computed_blocks(request)

    def admit(self, request: Request, tokens: int, lookahead_tokens: int, given: Given) -> KVCacheBlocks | bool | None:
        """Pass the gate and allocate: the blocks, None if the step does not fit, or False if the gate rejects it."""
        computed: dict[str, Any] = {
            "num_new_computed_tokens": given.hit_tokens,
            "new_computed_blocks": given.blocks,
            "num_external_computed_tokens": given.external_tokens,
        }
        if self.settings.full_sequence_must_fit and not self.manager.can_fit_full_sequence(request, **computed):
            return False
        return self.manager.allocate_slots(
            request, tokens, num_lookahead_tokens=lookahead_tokens, delay_cache_blocks=given.loads, **computed
        )

    def partials_of(self, _blocks: KVCacheBlocks) -> tuple[Partial, ...]:
        """Where a hit ends inside blocks: nowhere in vLLM 0.20.2."""
        return ()

    def take_copies(self) -> tuple[Copy, ...]:
        """What the worker copies between blocks before it computes the step: nothing in vLLM 0.20.2."""
        return ()

    def name_of(self, request: int) -> str:
        return f"kvgate-request-{request}"

    def roots(self) -> Mapping[str, object]:
        return {"manager": self.manager}

    def count_work(self) -> WorkMeter:
        return WorkMeter(self.manager)

    def apply(self, operation: Operation) -> Answer:
        if not isinstance(operation, Sample):
            # The block manager hears nothing of a sample: its tables are as they were.
            self._tables_read = None
        answer = _PERFORM[type(operation)](self, operation)
        self.population.settle(operation, answer)
        if isinstance(operation, (Admit, Schedule, Sample, Preempt, Transferred)):
            self._follow(operation.request)
        return answer

    def _follow(self, number: int) -> None:
        """Bring vLLM's request to where the scheduler's books have it."""
        ours, theirs = self.population.alive.get(number), self._requests.get(number)
        if ours is None or theirs is None:
            return
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
        blocks, tokens = self.found(self._requests[operation.request])
        return Hit(tokens, ids_of(blocks), self.partials_of(blocks))

    def _admit(self, operation: Admit) -> Granted | Refused:
        """What vLLM's scheduler does with a waiting request, up to its slots."""
        ours, request = self.population[operation.request], self._requests[operation.request]
        blocks, hit, external = self.manager.empty_kv_cache_blocks, 0, 0
        if request.num_computed_tokens == 0:
            blocks, hit = self.found(request)
            # The last token is computed here: now, or again after the load, unless its state could not be taken back.
            left = 0 if operation.loads and not self.settings.geometry.keeps_states else 1
            external = max(0, min(operation.external_tokens, request.num_tokens - hit - left))
            if external and self.settings.geometry.state_block_tokens is not None:
                raise UsageError(
                    "the system does not support transfers where states are kept in mode align: the scheduler of vLLM "
                    "0.20.2 asserts that there are no external tokens"
                )
        # What was loaded is held, even if all of it is to be computed again: a prompt of one token.
        held = self._tables(operation.request)
        had = held if any(held) else ids_of(blocks)
        loads = operation.loads and external > 0
        start = request.num_computed_tokens + hit + external
        granted = self.admit(
            request,
            0 if loads else self.population.tokens_from(ours, start, operation.tokens),
            # vLLM's scheduler gives a request without computed tokens no look-ahead slots.
            self.settings.lookahead_tokens if request.num_computed_tokens else 0,
            Given(blocks, hit, external, loads),
        )
        if granted is None or granted is False:
            return Refused(hit, gate=granted is False)
        return Granted(hit, self._gained(operation.request, had, start), external, loads)

    def _schedule(self, operation: Schedule) -> Granted | Refused:
        request, before = self._requests[operation.request], self._tables(operation.request)
        granted = self.manager.allocate_slots(
            request,
            self.population.tokens_to_schedule(self.population[operation.request], operation.tokens),
            num_lookahead_tokens=self.settings.lookahead_tokens,
        )
        return Refused(0, gate=False) if granted is None else Granted(0, self._gained(operation.request, before))

    def _tables(self, number: int) -> list[list[int]]:
        """What vLLM's scheduler sends to its workers."""
        return list(self.manager.get_block_ids(self.name_of(number)))

    def _gained(self, number: int, before: Sequence[Sequence[int]], start: int = 0) -> BlockTable:
        """What the tables have after their earlier entries: vLLM's answer leaves out the blocks for external tokens.

        At an admission they had the hit, and nothing where no token from ``start`` on reads.
        """
        groups, tables = self.settings.geometry.groups, self._tables(number)
        self._tables_read = number, tables
        return tuple(
            tuple(table[max(len(had), group.attention.tokens_unread(start) // group.block_size_tokens) :])
            for group, had, table in zip(groups, before, tables, strict=True)
        )

    def _preempt(self, operation: Preempt) -> Done:
        self.manager.free(self._requests[operation.request])
        return Done()

    def _end(self, operation: Finish | Abort) -> Done:
        ours, request = self.population[operation.request], self._requests[operation.request]
        if holds_on(ours, operation):
            # Before a connector receives the tables of a request that ended, they lose what is out of the window. The
            # drafts that were not accepted are taken back by then.
            verified = request.num_computed_tokens - ours.drafts_in_flight
            self.manager.remove_skipped_blocks(request.request_id, verified)
        else:
            self.manager.free(self._requests.pop(operation.request))
        return Done()

    def _transferred(self, operation: Transferred) -> Done:
        ours, request = self.population[operation.request], self._requests[operation.request]
        if ours.status is Status.LOADING and operation.succeeded:
            self.manager.cache_blocks(request, request.num_computed_tokens)
        else:
            self.manager.free(request)
        if ours.status is Status.ENDING:
            del self._requests[operation.request]
        return Done()

    def _dispatch(self, _operation: Dispatch) -> Copies:
        # A step ends for vLLM when the next one starts. Where states are kept, its scheduler has new blocks zeroed.
        self.manager.new_step_starts()
        if self.settings.geometry.keeps_states:
            self.manager.take_new_block_ids()
        return Copies(self.take_copies())

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
        return Happened(tuple(event_of(event) for event in self.manager.take_events()))

    def _take_statistics(self, _operation: TakeStatistics) -> Statistics:
        taken = self.manager.make_prefix_cache_stats()
        assert taken is not None, "the manager was built with log_stats"
        return to_statistics(taken)

    def snapshot(self) -> Snapshot:
        pool = self.manager.block_pool
        tables = {number: tables for number in self._requests if any(tables := self._tables(number))}
        return Snapshot(
            tables=tables,
            references=[block.ref_cnt for block in pool.blocks],
            free=self._walk(self.manager.block_pool.free_block_queue),
            blocks_free=pool.get_num_free_blocks(),
            contents=[block._block_hash for block in pool.blocks],
            read_entries=self._entries,
        )

    # Parts of the state

    def tables_of(self, request: int) -> list[list[int]]:
        if self._tables_read is not None and self._tables_read[0] == request:
            return self._tables_read[1]
        tables = self._tables(request)
        return tables if any(tables) else []

    def references_of(self, blocks: Sequence[int]) -> list[int]:
        all_blocks = self.manager.block_pool.blocks
        return [all_blocks[block].ref_cnt for block in blocks]

    def contents_of(self, blocks: Sequence[int]) -> list[Hashable]:
        all_blocks = self.manager.block_pool.blocks
        return [all_blocks[block]._block_hash for block in blocks]

    def listed(self, contents: Sequence[Hashable]) -> list[tuple[int, ...]]:
        cached: Any = self.manager.block_pool.cached_block_hash_to_block._cache
        return [_listed(dict.get(cached, content)) for content in contents]

    def blocks_free(self) -> int:
        return self.manager.block_pool.get_num_free_blocks()

    def free_ends(self, blocks: int) -> tuple[list[int], list[int]]:
        queue = self.manager.block_pool.free_block_queue
        return self._walk(queue, blocks), self._walk(queue, blocks, backward=True)

    def _entries(self) -> dict[bytes, tuple[int, ...]]:
        cached = self.manager.block_pool.cached_block_hash_to_block._cache
        return {key: _listed(blocks) for key, blocks in cached.items()}

    def _walk(self, queue: Any, blocks_max: int | None = None, backward: bool = False) -> list[int]:
        """The first blocks in one of vLLM's linked lists, or the last; no further than a sound one can be long."""
        block, end = queue.fake_free_list_head, queue.fake_free_list_tail
        if backward:
            block, end = end, block
        follow = following(block, backward)
        most = self.settings.blocks + 1 if blocks_max is None else blocks_max
        found: list[int] = []
        while len(found) < most and (block := follow(block)) is not None and block is not end:
            found.append(block.block_id)
        return found


def _listed(blocks: Any) -> tuple[int, ...]:
    """The blocks that the cached map has for one hash: none, one, or several by their ids."""
    if blocks is None:
        return ()
    return tuple(blocks) if isinstance(blocks, dict) else (blocks.block_id,)


_PERFORM: dict[type, Callable[[Stock, Any], Answer]] = {
    Arrive: Stock._arrive,
    LookUp: Stock._look_up,
    Admit: Stock._admit,
    Schedule: Stock._schedule,
    Sample: Stock._nothing,
    Preempt: Stock._preempt,
    Finish: Stock._end,
    Abort: Stock._end,
    Transferred: Stock._transferred,
    Dispatch: Stock._dispatch,
    ReleaseSkipped: Stock._release_skipped,
    CommonPrefix: Stock._common_prefix,
    Evict: Stock._evict,
    Reset: Stock._reset,
    TakeEvents: Stock._take_events,
    TakeStatistics: Stock._take_statistics,
}
