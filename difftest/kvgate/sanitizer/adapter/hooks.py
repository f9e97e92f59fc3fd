"""The sanitizer's hooks on the classes of vLLM's block manager, and of vLLM-Ascend's where it derives from them.

A hook is a generator: what it does before its ``yield`` happens before the engine's own call, what comes after it
afterwards. The engine's own call is always made, with its own arguments, and its answer is what the caller gets. A hook
that fails is a defect of the sanitizer. It is noted in ``failures``, the engine's call is made all the same, and from
then on only the rules are checked that need no history.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary, ref

import vllm
from vllm.v1.core.block_pool import BlockHashToBlockMap, BlockPool
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue

from kvgate.adapters.tap import Raises, Tap
from kvgate.kernel.errors import UsageError
from kvgate.kernel.versions import Version, version_of
from kvgate.sanitizer.content import Contents
from kvgate.sanitizer.ledger import (
    ANSWER,
    CACHED,
    DOUBLE_FREE,
    EVENTS,
    FOREIGN_HIT,
    LEAK,
    QUEUE,
    RAISED,
    REFERENCES,
    TABLE,
    USE_AFTER_FREE,
    Content,
    Ledger,
    tables_of,
)
from kvgate.sanitizer.misuse import Misuse, MisuseError, site_here

EXACT = ((0, 20, 2),)
"""The releases of which all rules were tried on vLLM's own tests. In others only those that hold in every release."""
TABLES_UNTIL = (0, 23, 0)
"""The last release of which the rules on tables were tried. Later ones have blocks that no table names, and others that
several requests' tables name with one reference: tails of Mamba states, and HiSparse."""
Hook: TypeAlias = Generator[Any, Any, None]
"""Yields None, or the positional and the named arguments that the engine's own call gets instead."""
FAILURES_MAX = 20
"""How many different failures of the sanitizer's own checks are kept and logged."""

_MARK = "kvgate_sanitizer"
"""An attribute of every wrapper, so that no method is wrapped twice."""
_FULL, _WINDOW, _CHUNKED = "FullAttentionManager", "SlidingWindowManager", "ChunkedLocalAttentionManager"
_RETENTION = frozenset(
    ("anchor", "boundaries", "cut_groups", "looks_up_tokens", "partial", "pinned_tier", "reach", "scratch_first")
)
"""The attributes that the plug-in ``swa_retention`` adds to what it changes: some rules do not hold there."""
_FAULTS = (AssertionError, KeyError, IndexError, AttributeError, RuntimeError)
"""What a block manager raises if it is broken; with a ValueError it rejects its caller's arguments."""


# As in ``kvgate.sanitizer.plugin``: below vLLM's own logger, whose handler and format it then has.
_LOGGER = logging.getLogger("vllm.kvgate_sanitizer")


class Sanitizer:
    """Watches every block pool and block manager of this process, from ``install`` until ``remove``."""

    def __init__(
        self, report: Callable[[Misuse], None], is_exact: bool | None = None, keeps_pools: bool = False
    ) -> None:
        self._report = report
        release = _release()
        self.is_exact = release in EXACT if is_exact is None else is_exact
        self.knows_tables = release is not None and release <= TABLES_UNTIL
        self.failures: list[str] = []
        """Checks of the sanitizer that failed themselves, each once, and hooks that were left out."""
        self._keeps_pools = keeps_pools
        self.pools: list[Any] = []
        """The pools that were built since ``forget_pools``, if they are kept: those of one test."""
        self._contents = Contents()
        self._ledgers: WeakKeyDictionary[Any, Ledger] = WeakKeyDictionary()
        self._pool_of_queue: WeakKeyDictionary[Any, Ledger] = WeakKeyDictionary()
        self._active: set[tuple[int, str]] = set()
        self._raised: Exception | None = None
        """What vLLM itself raised, while a hook is at it."""
        self._tap = Tap(Raises())
        self._hooks: dict[type, dict[str, Callable[..., Hook]]] = {
            FreeKVCacheBlockQueue: {
                "popleft": self._popleft,
                "popleft_n": self._popleft_n,
                "remove": self._remove,
                "append": self._append,
                "append_n": self._append_n,
            },
            BlockHashToBlockMap: {"insert": self._insert, "pop": self._pop},
            BlockPool: {
                "__init__": self._pool_built,
                "get_new_blocks": self._get_new_blocks,
                "touch": self._touch,
                "free_blocks": self._free_blocks,
                "cache_full_blocks": self._cache_full_blocks,
                "get_cached_block": self._get_cached_block,
                "evict_blocks": self._evict_blocks,
                "reset_prefix_cache": self._reset_prefix_cache,
                "get_num_free_blocks": self._get_num_free_blocks,
                "take_events": self._take_events,
            },
            KVCacheManager: {
                "__init__": self._manager_built,
                "get_computed_blocks": self._get_computed_blocks,
                "can_fit_full_sequence": self._can_fit_full_sequence,
                "allocate_slots": self._allocate_slots,
                "cache_blocks": self._cache_blocks,
                "free": self._free,
                "remove_skipped_blocks": self._remove_skipped_blocks,
                "get_block_ids": self._get_block_ids,
                "get_num_common_prefix_blocks": self._get_num_common_prefix_blocks,
            },
        }

    # Placing hooks

    def install(self) -> None:
        """Watch everything from now on; what this release lacks is left out."""
        for base in self._hooks:
            self._cover(base, base)

    def install_at_first_pool(self) -> None:
        """Watch everything as soon as a block pool is built: other plug-ins of vLLM, which are loaded until then, find
        vLLM's own functions and may replace them.
        """
        original = FreeKVCacheBlockQueue.__init__

        @functools.wraps(original)
        def build(queue: Any, *arguments: Any, **named: Any) -> None:
            if not self._tap.is_closed:
                self._run(self.install, "install")
            original(queue, *arguments, **named)

        self._tap.put(FreeKVCacheBlockQueue, "__init__", build)

    def remove(self) -> None:
        """Watch nothing any more."""
        self._tap.close()

    def _cover(self, owner: type, base: type) -> None:
        """Put the hooks of ``base`` on a class and on what derives from it, wherever they define a method anew."""
        for name, hook in self._hooks[base].items():
            method = vars(owner).get(name)
            if method is None or hasattr(method, _MARK):
                continue
            mismatch = _mismatch(method, hook)
            if mismatch is None:
                self._tap.put(owner, name, self._around(method, name, hook))
            else:
                self._failed(f"{owner.__name__}.{name} is not watched: {mismatch}")
        subclasses: list[type] = owner.__subclasses__()
        for each in subclasses:
            self._cover(each, base)

    def _around(self, original: Callable[..., Any], name: str, hook: Callable[..., Hook]) -> Callable[..., Any]:
        active, tap = self._active, self._tap

        @functools.wraps(original)
        def call(target: Any, *arguments: Any, **named: Any) -> Any:
            key = (id(target), name)
            if key in active or tap.is_closed:
                return original(target, *arguments, **named)
            active.add(key)
            try:
                running: Any = self._run(functools.partial(hook, target, *arguments, **named), name)
                if running is None:
                    return original(target, *arguments, **named)
                instead: Any = self._run(running.__next__, name)
                if instead is not None:
                    arguments, named = instead
                try:
                    answer = original(target, *arguments, **named)
                except Exception as error:
                    self._run(functools.partial(running.throw, error), name, error)
                    raise
                self._run(functools.partial(running.send, answer), name)
                return answer
            finally:
                active.discard(key)

        setattr(call, _MARK, True)
        return call

    def _run(self, step: Callable[[], object], name: str, raised: Exception | None = None) -> object:
        """One step of a hook. Only a misuse reaches the caller; if the step fails otherwise, it is noted."""
        try:
            self._raised = raised
            return step()
        except (StopIteration, MisuseError) as ended:
            if isinstance(ended, MisuseError) and ended is not raised:
                raise
        except Exception as error:
            if error is not raised:
                self._failed(f"{name}: {type(error).__name__}: {error}")
        return None

    def _failed(self, what: str) -> None:
        """Note a failure of the sanitizer, and trust nothing that was remembered."""
        for ledger in self._ledgers.values():
            ledger.distrust()
        if what not in self.failures and len(self.failures) < FAILURES_MAX:
            self.failures.append(what)
            _LOGGER.error("kvgate sanitizer: a check failed and was left out: %s", what)

    # Ledgers

    def ledger(self, pool: Any) -> Ledger:
        """What is remembered of a pool."""
        found = self._ledgers.get(pool)
        if found is None:
            found = self._ledgers[pool] = Ledger(self._report, self._contents, self.is_exact, self.knows_tables)
            found.follows = self.knows_tables and not any(block.ref_cnt for block in pool.blocks if not block.is_null)
            self._pool_of_queue[pool.free_block_queue] = found
            if self._keeps_pools:
                self.pools.append(pool)
            if self.failures:
                found.distrust()
        return found

    def _managed(self, manager: Any) -> Ledger:
        """The ledger of a block manager's pool."""
        ledger = self.ledger(manager.block_pool)
        if ledger.manager is None or ledger.manager() is not manager:
            ledger.manager = ref(manager)
            parts = (manager.block_pool, manager.coordinator, *manager.coordinator.single_type_managers)
            if not all(_RETENTION.isdisjoint(vars(each)) for each in parts):
                ledger.is_exact = False
        return ledger

    def at_end(self) -> None:
        """At the end of a test: check what must hold when no request is left."""
        for pool in self.pools:
            self.ledger(pool).check_rest(pool)

    def forget_pools(self) -> int:
        """Keep the pools no longer; how many there were."""
        count = len(self.pools)
        self.pools.clear()
        return count

    @contextmanager
    def _within(self, pool: Any) -> Iterator[Ledger]:
        """A call of a pool."""
        ledger = self.ledger(pool)
        ledger.depth += 1
        try:
            yield ledger
        finally:
            ledger.depth -= 1

    # The free queue: what its docstrings promise

    def _queue_used(self, queue: Any) -> Ledger | None:
        """Its ledger; a queue that is used without its pool takes blocks that are not followed."""
        ledger = self._pool_of_queue.get(queue)
        if ledger is not None and not ledger.depth:
            ledger.follows = False
        return ledger

    def _found(self, ledger: Ledger | None, kind: str, what: str, block: int | None = None) -> None:
        (ledger or Ledger(self._report, self._contents, False)).found(kind, what, block)

    def _popleft(self, queue: Any, *_more: Any, **_named: Any) -> Hook:
        yield from self._taken(queue, 1, _as_list)

    def _popleft_n(self, queue: Any, n: int, *_more: Any, **_named: Any) -> Hook:
        yield from self._taken(queue, n, list)

    def _taken(self, queue: Any, count: int, blocks_in: Callable[[Any], list[Any]]) -> Hook:
        ledger, free, first = self._queue_used(queue), queue.num_free_blocks, _first_of(queue, count)
        answer = yield
        taken = blocks_in(answer)
        if [id(block) for block in taken] != [id(block) for block in first]:
            got, wanted = ([block.block_id for block in blocks] for blocks in (taken, first))
            self._found(ledger, QUEUE, f"the first {count} blocks were {wanted}, and {got} were taken")
        if queue.num_free_blocks != free - count:
            counted = queue.num_free_blocks
            self._found(ledger, QUEUE, f"{count} blocks were taken of {free}, and {counted} are counted as free")
        head = queue.fake_free_list_head
        if head.next_free_block is not None and head.next_free_block.prev_free_block is not head:
            self._found(ledger, QUEUE, "the first block of the free queue is not linked back to its head")
        for block in taken:
            if block.ref_cnt > 0:
                what = f"block {block.block_id} is taken from the free queue, and has {block.ref_cnt} references"
                self._found(ledger, USE_AFTER_FREE, what, block.block_id)

    def _remove(self, queue: Any, block: Any, *_more: Any, **_named: Any) -> Hook:
        ledger, free, before, after = self._queue_used(queue), queue.num_free_blocks, *_links(block)
        yield
        if before is not None and before.next_free_block is block:
            what = f"block {block.block_id} was removed from the free queue, and is still linked"
            self._found(ledger, QUEUE, what, block.block_id)
        elif before is not None and (before.next_free_block is not after or after.prev_free_block is not before):
            self._found(ledger, QUEUE, f"the neighbours of block {block.block_id} are not linked", block.block_id)
        if queue.num_free_blocks != free - 1:
            counted = queue.num_free_blocks
            self._found(ledger, QUEUE, f"one block of {free} was removed, and {counted} are counted as free")

    def _append(self, queue: Any, block: Any, *_more: Any, **_named: Any) -> Hook:
        yield from self._queued(queue, [block])

    def _append_n(self, queue: Any, blocks: list[Any], *_more: Any, **_named: Any) -> Hook:
        yield from self._queued(queue, list(blocks))

    def _queued(self, queue: Any, blocks: list[Any]) -> Hook:
        ledger, free, times = self._queue_used(queue), queue.num_free_blocks, Counter(map(id, blocks))
        # A queue without a pool is a test's own, and its blocks may be in any state.
        for block in blocks if ledger is not None else ():
            number = block.block_id
            if block.next_free_block is not None or times[id(block)] > 1:
                self._found(ledger, DOUBLE_FREE, f"block {number} is queued, and is in the free queue already", number)
            elif block.is_null:
                self._found(ledger, QUEUE, "the null block is queued as free", number)
            elif block.ref_cnt > 0:
                what = f"block {number} is queued as free, and has {block.ref_cnt} references"
                self._found(ledger, USE_AFTER_FREE, what, number)
        yield
        if queue.num_free_blocks != free + len(blocks):
            counted = queue.num_free_blocks
            self._found(ledger, QUEUE, f"{len(blocks)} blocks joined {free}, and {counted} are counted as free")
        last: list[Any] = []
        place = queue.fake_free_list_tail.prev_free_block
        while place is not None and place is not queue.fake_free_list_head and len(last) < len(blocks):
            last.append(place)
            place = place.prev_free_block
        if [id(block) for block in reversed(last)] != [id(block) for block in blocks]:
            got, wanted = [block.block_id for block in reversed(last)], [block.block_id for block in blocks]
            self._found(ledger, QUEUE, f"{wanted} were queued, and the free queue ends with {got}")

    # The map of cached blocks

    def _insert(self, cached: Any, key: Any, block: Any, *_more: Any, **_named: Any) -> Hook:
        before = _listed(cached, key)
        if block.block_id in before:
            self._found(None, CACHED, f"block {block.block_id} is cached, and is cached again")
        yield
        for pool, ledger in list(self._ledgers.items()):
            if pool.cached_block_hash_to_block is cached and not ledger.caches:
                # Registered outside of cache_full_blocks: what it holds is unknown.
                ledger.forget(block.block_id)
                ledger.is_exact = False
        lost = {*before, block.block_id} - {*_listed(cached, key)}
        if lost:
            self._found(None, CACHED, f"block {block.block_id} was cached, and {sorted(lost)} are not listed any more")

    def _pop(self, cached: Any, key: Any, block_id: int, *_more: Any, **_named: Any) -> Hook:
        before = _listed(cached, key)
        yield
        lost = {*before} - {block_id} - {*_listed(cached, key)}
        if lost:
            self._found(None, CACHED, f"block {block_id} was forgotten, and {sorted(lost)} with it")

    # The pool

    def _pool_built(self, pool: Any, *_more: Any, **_named: Any) -> Hook:
        yield
        self.ledger(pool)

    def _own(self, pool: Any, blocks: Sequence[Any]) -> Counter[int]:
        """How often each of the pool's own blocks is among these; tests pass others, too."""
        own, most = pool.blocks, len(pool.blocks)
        numbers = ((block, block.block_id) for block in blocks if not block.is_null)
        return Counter(number for block, number in numbers if number < most and own[number] is block)

    def _moved(self, ledger: Ledger, counts: Counter[int], sign: int) -> None:
        if ledger.operation:
            ledger.moved.update(counts)
        else:
            for number, count in counts.items():
                ledger.external[number] += sign * count

    def _get_new_blocks(self, pool: Any, num_blocks: int, *_more: Any, **_named: Any) -> Hook:
        with self._within(pool) as ledger:
            if ledger.operation == "allocate_slots" and num_blocks > pool.free_block_queue.num_free_blocks:
                free = pool.free_block_queue.num_free_blocks
                ledger.found(ANSWER, f"allocate_slots checked that {num_blocks} blocks fit, and {free} are free")
            hashes = [(block.block_id, block.block_hash) for block in _first_of(pool.free_block_queue, num_blocks)]
            answer = yield
            if len(answer) != num_blocks:
                ledger.found(QUEUE, f"{num_blocks} blocks were requested, and {len(answer)} allocated")
            counts = self._own(pool, answer)
            before = set(ledger.moved)
            self._moved(ledger, counts, 1)
            for block in answer:
                number = block.block_id
                if block.is_null:
                    ledger.found(QUEUE, "the null block is allocated", number)
                    continue
                # What this call of the block manager has released is counted when it ends.
                known = ledger.follows and number not in before
                if known and ledger.owners[number] + ledger.external[number] - (not ledger.operation) > 0:
                    ledger.found(USE_AFTER_FREE, f"block {number} is allocated, and a table names it", number)
                if block.ref_cnt != 1:
                    ledger.found(REFERENCES, f"block {number} is allocated with {block.ref_cnt} references", number)
            self._forgotten(pool, ledger, hashes, "reallocated")
            site = site_here()
            for number in counts:
                ledger.allocated[number] = site
                ledger.freed.pop(number, None)

    def _forgotten(self, pool: Any, ledger: Ledger, hashes: Sequence[tuple[int, Any]], why: str) -> None:
        """Blocks that had these hashes are cached no more."""
        for number, key in hashes:
            if key is None:
                continue
            if pool.enable_caching and pool.blocks[number].block_hash is not None:
                ledger.found(CACHED, f"block {number} was {why}, and keeps the hash of its content", number)
            elif pool.enable_caching and number in _listed(pool.cached_block_hash_to_block, key):
                ledger.found(CACHED, f"block {number} was {why}, and is still listed under its content", number)
            had = ledger.content.get(number)
            if isinstance(had, Content):
                ledger.drop(number, why)
                if pool.enable_kv_cache_events:
                    ledger.events.append(("removed", had.group))

    def _touch(self, pool: Any, blocks: Sequence[Any], *_more: Any, **_named: Any) -> Hook:
        with self._within(pool) as ledger:
            counts = self._own(pool, blocks)
            before = {number: pool.blocks[number].ref_cnt for number in counts}
            yield
            self._moved(ledger, counts, 1)
            for number, count in counts.items():
                block = pool.blocks[number]
                if block.ref_cnt != before[number] + count:
                    what = f"block {number} was touched {count} times and had {before[number]} references"
                    ledger.found(REFERENCES, f"{what}; it has {block.ref_cnt}", number)
                if block.next_free_block is not None:
                    ledger.found(USE_AFTER_FREE, f"block {number} was touched, and is still in the free queue", number)

    def _free_blocks(self, pool: Any, ordered_blocks: Any, *more: Any, **named: Any) -> Hook:
        with self._within(pool) as ledger:
            blocks = list(ordered_blocks)
            counts = self._own(pool, blocks)
            before = {number: pool.blocks[number].ref_cnt for number in counts}
            for number, count in counts.items():
                if before[number] < count:
                    what = f"block {number} is freed {count} times, and has {before[number]} references"
                    ledger.found(DOUBLE_FREE, what, number)
            # The blocks may come from an iterator, which is used up by now.
            yield (blocks, *more), named
            self._moved(ledger, counts, -1)
            site = site_here()
            for number, count in counts.items():
                block = pool.blocks[number]
                if block.ref_cnt != before[number] - count:
                    what = f"block {number} was freed {count} times and had {before[number]} references"
                    ledger.found(REFERENCES, f"{what}; it has {block.ref_cnt}", number)
                elif block.ref_cnt == 0 and block.next_free_block is None:
                    ledger.found(LEAK, f"block {number} was freed, and is not in the free queue", number)
                elif block.ref_cnt > 0 and block.next_free_block is not None:
                    what = f"block {number} has {block.ref_cnt} references, and is in the free queue"
                    ledger.found(USE_AFTER_FREE, what, number)
                if block.ref_cnt <= 0:
                    ledger.freed[number] = site
            if ledger.is_exact and not ledger.operation:
                self._check_freed_outside(pool, ledger, counts)
            if pool.null_block.next_free_block is not None:
                ledger.found(QUEUE, "the null block is in the free queue", pool.null_block.block_id)

    def _check_freed_outside(self, pool: Any, ledger: Ledger, counts: Counter[int]) -> None:
        """What a connector or a test frees is its own: as many references remain as tables name the block."""
        manager = ledger.manager() if ledger.manager is not None else None
        suspects = [
            block
            for block in map(pool.blocks.__getitem__, counts)
            if not ledger.follows or block.ref_cnt < ledger.owners[block.block_id]
        ]
        if manager is None or not suspects:
            return
        # The tables themselves decide, for a test may have changed them since the last call.
        groups = [each for each in manager.coordinator.single_type_managers if _kind(each) is not None]
        tables = (table for each in groups for table in each.req_to_blocks.values())
        owners = Counter(id(block) for table in tables for block in table)
        for block in suspects:
            if block.ref_cnt < owners[id(block)]:
                what = f"block {block.block_id} is freed outside of the block manager, and {owners[id(block)]} tables"
                ledger.found(USE_AFTER_FREE, f"{what} name it", block.block_id)

    def _cache_full_blocks(
        self,
        pool: Any,
        request: Any,
        blocks: Sequence[Any],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        kv_cache_group_id: int,
        *_more: Any,
        **_named: Any,
    ) -> Hook:
        with self._within(pool) as ledger:
            end = ledger.end_tokens
            span = range(num_cached_blocks, num_full_blocks)
            if end is not None and span and num_full_blocks * block_size > end:
                what = f"request {request.request_id} caches {num_full_blocks * block_size} tokens of group"
                ledger.found(FOREIGN_HIT, f"{what} {kv_cache_group_id}, and {end} are computed")
            fresh = [(place, blocks[place]) for place in span if not blocks[place].is_null]
            fresh = [(place, each) for place, each in fresh if each.block_hash is None]
            ledger.caches = True
            try:
                yield
            finally:
                ledger.caches = False
            chain = self._contents.of(request, block_size, num_full_blocks)
            for place, block in fresh:
                if block.block_hash is None or block.block_id >= len(pool.blocks):
                    continue
                known = chain is not None and place < len(chain)
                if pool.blocks[block.block_id] is block:
                    number = chain[place] if known and chain is not None else None
                    ledger.hold(block.block_id, Content(kv_cache_group_id, number))
            if pool.enable_kv_cache_events and span:
                ledger.events.append(_stored(request, blocks, span, block_size, kv_cache_group_id))

    def _get_cached_block(
        self, pool: Any, block_hash: Any, kv_cache_group_ids: Sequence[int], *_more: Any, **_named: Any
    ) -> Hook:
        del block_hash
        answer = yield
        if not answer:
            return
        ledger = self.ledger(pool)
        for group, block in zip(kv_cache_group_ids, answer, strict=False):
            had = ledger.content.get(block.block_id)
            if ledger.knows_tables and isinstance(had, Content) and had.group != group:
                what = f"block {block.block_id} serves group {group}, and was written by group {had.group}"
                ledger.found(FOREIGN_HIT, what, block.block_id)
            listed = _listed(pool.cached_block_hash_to_block, block.block_hash)
            if ledger.is_exact and listed and listed[0] != block.block_id:
                what = f"block {block.block_id} serves, and block {listed[0]} was cached first with the same content"
                ledger.found(CACHED, what, block.block_id)

    def _evict_blocks(self, pool: Any, block_ids: Any, *_more: Any, **_named: Any) -> Hook:
        with self._within(pool) as ledger:
            hashes = [(each, pool.blocks[each].block_hash) for each in block_ids if each < len(pool.blocks)]
            if ledger.is_exact and ledger.operation == "free" and any(key is not None for _, key in hashes):
                ledger.found(CACHED, "the end of a request makes its cached blocks unusable")
            yield
            self._forgotten(pool, ledger, hashes, "evicted")

    def _reset_prefix_cache(self, pool: Any, *_more: Any, **_named: Any) -> Hook:
        with self._within(pool) as ledger:
            held = [block.block_id for block in pool.blocks if block.ref_cnt > 0 and not block.is_null]
            succeeded = yield
            if not succeeded:
                return
            if ledger.is_exact and held:
                ledger.found(CACHED, f"the prefix cache is reset while blocks are held: {held[:20]}", held[0])
            kept = [block.block_id for block in pool.blocks if block.block_hash is not None]
            if kept:
                ledger.found(CACHED, f"the prefix cache was reset, and blocks keep their hashes: {kept[:20]}", kept[0])
            if len(pool.cached_block_hash_to_block):
                ledger.found(CACHED, "the prefix cache was reset, and blocks are still listed")
            for number in list(ledger.content):
                ledger.drop(number, "reset")
            if pool.enable_kv_cache_events:
                ledger.events.append(("cleared",))

    def _get_num_free_blocks(self, pool: Any, *_more: Any, **_named: Any) -> Hook:
        answer = yield
        ledger, free = self.ledger(pool), pool.free_block_queue.num_free_blocks
        if ledger.is_exact and answer != free:
            ledger.found(ANSWER, f"{answer} blocks are reported free, and {free} are in the free queue")

    def _take_events(self, pool: Any, *_more: Any, **_named: Any) -> Hook:
        answer = yield
        ledger = self.ledger(pool)
        expected, ledger.events = ledger.events, []
        if not ledger.is_exact or not pool.enable_kv_cache_events:
            return
        got = [_summary_of(event) for event in answer]
        if got != expected:
            differ = next((pair for pair in zip(got, expected, strict=False) if pair[0] != pair[1]), None)
            what = f"{len(expected)} events are expected, and {len(got)} were taken"
            ledger.found(EVENTS, what if differ is None else f"{what}; the first that differs is {differ[0]}")

    # The block manager

    def _manager_built(self, manager: Any, *_more: Any, **_named: Any) -> Hook:
        self._cover(type(manager), KVCacheManager)
        yield
        self._cover(type(manager.block_pool), BlockPool)
        self._managed(manager)

    @contextmanager
    def _operation(self, manager: Any, name: str, request_id: str) -> Iterator[Ledger]:
        """A call of the block manager for one request: afterwards each block that moved has one reference an owner."""
        ledger = self._managed(manager)
        if ledger.operation:
            # A call within another one: that one is checked.
            yield ledger
            return
        ledger.follow(manager, request_id)
        if ledger.free_at_rest is None and ledger.follows and not any(ledger.external.values()):
            ledger.free_at_rest = manager.block_pool.free_block_queue.num_free_blocks
        ledger.operation = name
        ledger.moved.clear()
        try:
            yield ledger
        except _FAULTS as error:
            if error is self._raised and not isinstance(error, MisuseError):
                ledger.found(RAISED, f"{name} for request {request_id} raised {type(error).__name__}: {error}")
            ledger.follows = False
            raise
        except Exception:
            ledger.follows = False
            raise
        else:
            ledger.settle(manager, request_id)
        finally:
            ledger.operation, ledger.end_tokens = "", None

    def _get_computed_blocks(self, manager: Any, request: Any, *_more: Any, **_named: Any) -> Hook:
        answer = yield
        blocks, hit_tokens = answer[0].blocks, answer[1]
        ledger = self._managed(manager)
        if hit_tokens and request.skip_reading_prefix_cache:
            ledger.found(FOREIGN_HIT, f"request {request.request_id} may not be served from the cache, and is")
        if hit_tokens and hit_tokens >= request.num_tokens:
            ledger.found(ANSWER, f"a hit covers all {hit_tokens} tokens of request {request.request_id}")
        self._check_hit(manager, ledger, request, blocks)
        if not ledger.is_exact:
            return
        for index, each in enumerate(manager.coordinator.single_type_managers):
            if _kind(each) is None:
                continue
            if hit_tokens % each.block_size or (hit_tokens and len(blocks[index]) * each.block_size != hit_tokens):
                what = f"a hit of {hit_tokens} tokens has {len(blocks[index])} blocks of {each.block_size}"
                ledger.found(ANSWER, f"{what} in group {index}")
        self._check_length(manager, ledger, request, hit_tokens)

    def _check_length(self, manager: Any, ledger: Ledger, request: Any, hit_tokens: int) -> None:
        """With one group of full attention a hit ends where the cached blocks end, or one before with a draft model."""
        if not manager.coordinator.single_type_managers:
            return
        each, *others = manager.coordinator.single_type_managers
        if not manager.enable_caching or request.skip_reading_prefix_cache or type(each).__name__ != _FULL:
            return
        flagged = any(group.is_eagle_group for group in manager.kv_cache_config.kv_cache_groups)
        drops = manager.use_eagle and not flagged
        blocks_max = (request.num_tokens - 1) // each.block_size
        cached = ledger.cached_from_the_start(request, each.kv_cache_group_id, each.block_size, blocks_max)
        if cached is None or (others and not drops):
            return
        wanted = max(0, cached - drops) * each.block_size
        if hit_tokens > wanted or (not others and hit_tokens < wanted):
            what = f"{cached} blocks are cached of request {request.request_id}, and its hit has {hit_tokens} tokens"
            ledger.found(ANSWER, f"{what}; the last block is for the draft model" if drops else what)

    def _check_hit(self, manager: Any, ledger: Ledger, request: Any, blocks: Sequence[Sequence[Any]]) -> None:
        for index, each in enumerate(manager.coordinator.single_type_managers):
            ledger.check_hit(
                request, index, each.kv_cache_group_id, each.block_size, blocks[index], manager.block_pool.blocks
            )

    def _can_fit_full_sequence(
        self,
        manager: Any,
        request: Any,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        *_more: Any,
        **_named: Any,
    ) -> Hook:
        del num_new_computed_tokens
        needed = self._needed(manager, request, request.num_tokens, new_computed_blocks)
        answer = yield
        free = manager.block_pool.free_block_queue.num_free_blocks
        if needed is not None and answer != (needed <= free):
            what = f"request {request.request_id} needs {needed} blocks, {free} are free, and the answer is {answer}"
            self.ledger(manager.block_pool).found(ANSWER, what)

    def _needed(self, manager: Any, request: Any, tokens: int, hit: Any) -> int | None:
        """How many blocks a request takes from the free queue to have so many tokens; None if it is not that simple."""
        needed, is_exact = 0, self._managed(manager).is_exact
        tokens = min(tokens, manager.max_model_len)
        for index, each in enumerate(manager.coordinator.single_type_managers):
            if not is_exact or type(each).__name__ != _FULL:
                return None
            blocks = hit.blocks[index] if hit is not None else ()
            has = len(each.req_to_blocks.get(request.request_id, ())) + len(blocks)
            needed += max(0, -(-tokens // each.block_size) - has)
            needed += sum(block.ref_cnt == 0 and not block.is_null for block in blocks)
        return needed

    def _allocate_slots(
        self,
        manager: Any,
        request: Any,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        *_more: Any,
        **_named: Any,
    ) -> Hook:
        start = request.num_computed_tokens + num_new_computed_tokens + num_external_computed_tokens
        start = min(start, manager.max_model_len)
        slots = min(start + num_new_tokens + num_lookahead_tokens, manager.max_model_len)
        cached = min(start + num_new_tokens, request.num_tokens)
        needed = self._needed(manager, request, slots, new_computed_blocks)
        free = manager.block_pool.free_block_queue.num_free_blocks
        groups = manager.coordinator.single_type_managers
        lengths = [len(each.req_to_blocks.get(request.request_id, ())) for each in groups]
        counted = [each.num_cached_block.get(request.request_id, 0) for each in groups]
        with self._operation(manager, "allocate_slots", request.request_id) as ledger:
            ledger.end_tokens = cached
            if new_computed_blocks is not None:
                self._check_hit(manager, ledger, request, new_computed_blocks.blocks)
            answer = yield
        if answer is None:
            if needed is not None and needed <= free:
                what = f"request {request.request_id} needs {needed} blocks and is rejected, and {free} are free"
                ledger.found(ANSWER, what)
            return
        for index, each in enumerate(groups):
            if self.knows_tables:
                self._check_table(ledger, request, index, each, start, slots, lengths[index])
            caches = manager.enable_caching and not delay_cache_blocks and ledger.is_exact and _kind(each) is not None
            if caches:
                self._check_cached(ledger, request, index, each, cached, counted[index])

    def _check_table(
        self, ledger: Ledger, request: Any, index: int, each: Any, start: int, slots: int, length: int
    ) -> None:
        """The table has a block for everything that the step reads and writes, and for nothing else."""
        kind, size = _kind(each), each.block_size
        if kind is None:
            return
        table = each.req_to_blocks.get(request.request_id, [])
        where = f"the table of request {request.request_id} in group {index}"
        if len(table) * size < slots:
            ledger.found(TABLE, f"{where} has {len(table)} blocks of {size}, and {slots} tokens need slots")
        elif ledger.is_exact and len(table) > length and (len(table) - 1) * size >= slots:
            ledger.found(LEAK, f"{where} has {len(table)} blocks of {size}, and only {slots} tokens need slots")
        spec, first = each.kv_cache_spec, 0
        if kind == _WINDOW:
            first = max(0, start - spec.sliding_window + 1)
        elif kind == _CHUNKED:
            first = start // spec.attention_chunk_size * spec.attention_chunk_size
        first //= size
        for place in range(first, min(len(table), -(-slots // size))):
            if table[place].is_null:
                what = f"{where} has no block for tokens from {place * size} on, and token {start} reads them"
                ledger.found(USE_AFTER_FREE, what)
                break
        if ledger.is_exact and first and not table[min(first, len(table)) - 1].is_null:
            number = table[min(first, len(table)) - 1].block_id
            ledger.found(LEAK, f"{where} still has block {number}, and no token from {start} on reads it", number)

    def _check_cached(self, ledger: Ledger, request: Any, index: int, each: Any, cached: int, before: int) -> None:
        """All blocks that are full are cached."""
        counted, full = each.num_cached_block.get(request.request_id, 0), cached // each.block_size
        table = each.req_to_blocks.get(request.request_id, [])
        where = f"request {request.request_id} in group {index}"
        if counted < full:
            ledger.found(CACHED, f"{full} blocks of {where} are full, and {counted} count as cached")
        for block in table[before:counted]:
            if not block.is_null and block.block_hash is None:
                ledger.found(CACHED, f"block {block.block_id} of {where} counts as cached, and is not", block.block_id)

    def _cache_blocks(self, manager: Any, request: Any, num_computed_tokens: int, *_more: Any, **_named: Any) -> Hook:
        with self._operation(manager, "cache_blocks", request.request_id) as ledger:
            ledger.end_tokens = min(num_computed_tokens, request.num_tokens)
            yield

    def _free(self, manager: Any, request: Any, *_more: Any, **_named: Any) -> Hook:
        number = request.request_id
        with self._operation(manager, "free", number) as ledger:
            yield
        if not ledger.is_exact:
            return
        for index, each in enumerate(manager.coordinator.single_type_managers):
            for what, kept in (("table", each.req_to_blocks), ("count of cached blocks", each.num_cached_block)):
                if number in kept:
                    ledger.found(LEAK, f"the {what} of request {number} in group {index} outlives it")
        ledger.check_rest(manager.block_pool)

    def _remove_skipped_blocks(self, manager: Any, request_id: str, *_more: Any, **_named: Any) -> Hook:
        with self._operation(manager, "remove_skipped_blocks", request_id):
            yield

    def _get_block_ids(self, manager: Any, request_id: str, *_more: Any, **_named: Any) -> Hook:
        answer = yield
        held = [table for _, table in tables_of(manager, request_id)]
        if [list(table) for table in answer] != held:
            what = f"the worker gets {answer} as the tables of request {request_id}, which are {held}"
            self.ledger(manager.block_pool).found(TABLE, what)

    def _get_num_common_prefix_blocks(self, manager: Any, running_request_id: str, *_more: Any, **_named: Any) -> Hook:
        answer = yield
        if not self._managed(manager).is_exact or not manager.enable_caching:
            return
        for index, each in enumerate(manager.coordinator.single_type_managers):
            if type(each).__name__ != _FULL:
                continue
            table, shared = each.req_to_blocks.get(running_request_id, ()), 0
            while shared < len(table) and table[shared].ref_cnt == len(each.req_to_blocks):
                shared += 1
            if answer[index] != shared:
                what = (
                    f"{answer[index]} blocks are reported as common to all requests in group {index}, and {shared} are"
                )
                self.ledger(manager.block_pool).found(ANSWER, what)


def _release() -> Version | None:
    """The vLLM that is installed; None if its version cannot be parsed."""
    try:
        return version_of(vllm.__version__)
    except UsageError:
        return None


def _mismatch(method: Callable[..., Any], hook: Callable[..., Hook]) -> str | None:
    """Why a hook cannot be called as its method is; None if it can."""
    try:
        _, *named = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):
        return None
    _, *wanted = inspect.signature(hook).parameters.values()
    for index, each in enumerate(wanted):
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            break
        there = named[index] if index < len(named) else None
        if there is not None and there.kind in (there.VAR_POSITIONAL, there.VAR_KEYWORD):
            break
        if there is None or there.name != each.name:
            if there is None and each.default is not each.empty:
                break
            return f"parameter {index + 1} is {there.name if there else 'absent'}, and not {each.name}"
        if there.default is not there.empty and each.default is each.empty:
            return f"{each.name} has a default"
    return None


def _kind(manager: Any) -> str | None:
    """Which attention a group has, if the sanitizer knows what it reads."""
    name = type(manager).__name__
    return name if name in (_FULL, _WINDOW, _CHUNKED) else None


def _as_list(block: Any) -> list[Any]:
    return [block]


def _links(block: Any) -> tuple[Any, Any]:
    return block.prev_free_block, block.next_free_block


def _first_of(queue: Any, count: int) -> list[Any]:
    """The first blocks of a free queue."""
    first: list[Any] = []
    block = queue.fake_free_list_head.next_free_block
    while block is not None and block is not queue.fake_free_list_tail and len(first) < count:
        first.append(block)
        block = block.next_free_block
    return first


def _listed(cached: Any, key: Any) -> list[int]:
    """The blocks that a map of cached blocks has under a hash, by their numbers, in the order of their registration."""
    blocks = cached._cache.get(key)
    if blocks is None:
        return []
    return list(blocks) if isinstance(blocks, dict) else [blocks.block_id]


def _stored(request: Any, blocks: Sequence[Any], span: range, size: int, group: int) -> tuple[object, ...]:
    """What of the event of newly cached blocks is compared."""
    real = [place for place in span if not blocks[place].is_null]
    keyed = sum(
        bool(request.lora_request)
        or (place == 0 and bool(request.cache_salt))
        or request.prompt_embeds is not None
        or any(
            item.mm_position.offset < (place + 1) * size
            and place * size < item.mm_position.offset + item.mm_position.length
            for item in request.mm_features
        )
        for place in real
    )
    tokens = tuple(request._all_token_ids[span.start * size : span.stop * size])
    return ("stored", group, len(real), span.start == 0, tokens, keyed)


def _summary_of(event: Any) -> tuple[object, ...]:
    """What of an event is compared."""
    kind = type(event).__name__
    if kind == "BlockRemoved":
        return ("removed", event.group_idx)
    if kind != "BlockStored":
        return ("cleared",)
    keyed = sum(each is not None for each in event.extra_keys or ())
    return (
        "stored",
        event.group_idx,
        len(event.block_hashes),
        event.parent_block_hash is None,
        tuple(event.token_ids),
        keyed,
    )
