"""What findings of two tiers are recognised by: which waiting request has room for its next step, and which has not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from traceback import walk_tb
from typing import Any

from kvgate.kernel.difference import Divergence
from kvgate.monitors.slot_memory import first_read
from kvreference.scheduler.room import blocks_to_run


def raising_request(engine: Any) -> str:
    """The request of the innermost call that failed and names one; empty if none does."""
    found, error = "", engine.raised
    for frame, _ in walk_tb(error.__traceback__ if error is not None else None):
        named = frame.f_locals
        found = str(named.get("req_id") or getattr(named.get("request"), "request_id", found))
    return found


def is_taken_after_others(divergence: Divergence, engine: Any) -> bool:
    """Whether a store takes what others wrote, or a load writes a block while a store reads it."""
    difference = divergence.difference
    if difference.statement == "KV-TIER-04":
        return not difference.subject.startswith("a chunk ")
    is_shared = difference.statement == "KV-TIER-02" and difference.subject.startswith("a block of the device ")
    return is_shared and any(job.loads for job, _ in engine.memory.culprits)


def block_tables(engine: Any) -> list[Mapping[str, Sequence[Any]]]:
    """Of each group, the blocks of each request."""
    return [each.req_to_blocks for each in engine.scheduler.kv_cache_manager.coordinator.single_type_managers]


def blocks_held(engine: Any) -> Counter[int]:
    """By block, how often it is held."""
    blocks = engine.scheduler.kv_cache_manager.block_pool.blocks
    return Counter({each.block_id: each.ref_cnt for each in blocks if each.ref_cnt > 0 and not each.is_null})


def holders_waiting(engine: Any) -> list[Any]:
    """The requests that wait and hold blocks, in the order in which the scheduler looks at them."""
    scheduler = engine.scheduler
    queues = (getattr(scheduler, name, ()) for name in ("kv_holding_waiting", "skipped_waiting", "waiting"))
    tables = block_tables(engine)
    return [each for queue in queues for each in queue if any(table.get(each.request_id) for table in tables)]


def has_loaded(engine: Any, request: Any) -> bool:
    """Whether a waiting request holds blocks and could compute: what it loads has arrived, as the scheduler knows."""
    waits = request.status.name == "WAITING_FOR_REMOTE_KVS"
    return (
        request.request_id in engine.scheduler.finished_recving_kv_req_ids if waits else request.num_computed_tokens > 0
    )


def lacks_blocks(engine: Any, request: Any) -> bool:
    """Whether fewer blocks are free than the scheduler asks for before it admits or continues a waiting request."""
    scheduler, kept = engine.scheduler, 0
    if request.num_computed_tokens:
        return has_loaded(engine, request) and not next_step_fits(engine, request)
    if request.request_id in engine.connector.loads:
        # Of a request that would load, later releases ask that it leaves what others still need, and a step's drafts.
        kept = getattr(scheduler, "_inflight_prefill_reserved_blocks", lambda: 0)()
        kept += getattr(scheduler, "_spec_decode_step_blocks", 0)
    free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    return bool(blocks_to_run(engine.settings, request.num_tokens) > free - kept)


def next_step_fits(engine: Any, request: Any) -> bool:
    """Whether the blocks are free that a waiting request takes for its next step, if that has no other requests.

    What its windows leave before the step is free for it as well.
    """
    scheduler, settings = engine.scheduler, engine.settings
    computed, tokens = request.num_computed_tokens, request.num_tokens
    if not settings.full_sequence_must_fit:
        tokens = min(tokens, computed + settings.chunk_tokens)
    slots = min(tokens + settings.lookahead_tokens, settings.tokens_max)
    free, takes = scheduler.kv_cache_manager.block_pool.get_num_free_blocks(), 0
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    for group, manager in zip(settings.geometry.groups, managers, strict=True):
        table = manager.req_to_blocks.get(request.request_id, ())
        if group.keeps_states:
            # The running state and those for drafts; what was loaded stays in its place.
            held = [block.block_id for block in table]
            takes += group.layout(held, group.entries(tokens, slots), fresh=True).count(None)
            continue
        takes += max(0, -(-slots // group.block_size_tokens) - len(table))
        free += sum(not block.is_null for block in table[: first_read(group, computed) // group.block_size_tokens])
    return bool(takes <= free)
