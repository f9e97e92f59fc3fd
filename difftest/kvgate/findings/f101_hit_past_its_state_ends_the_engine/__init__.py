"""Finding 101: A hit of attention that another group does not reach ends the engine when the host has more."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.findings.tier_state import raising_request
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """The states do not reach a hit that ends inside a block; or a window has a block before the hit's end that no hit
    brought. Both of the request of the call that failed.
    """
    difference, name = divergence.difference, raising_request(engine)
    if difference.statement != "KV-SYS-01":
        return False
    if difference.subject == "AssertionError in truncate_computed_blocks":
        return any(_is_past_its_state(engine, each) for each in engine.scheduler.waiting if each.request_id == name)
    is_raised = difference.subject == "AssertionError in update_state_after_alloc"
    claims = engine.memory.claims
    return is_raised and name in claims and _is_past_its_window(engine, claims[name])


def _is_past_its_state(engine: Any, request: Any) -> bool:
    coordinator, groups = engine.scheduler.kv_cache_manager.coordinator, engine.settings.geometry.groups
    _, hits = coordinator.find_longest_cache_hit_per_group(request.block_hashes, request.num_tokens - 1)
    hit = next(tokens for tokens, group in zip(hits, groups, strict=True) if group.keeps_all)
    states = (
        (tokens, group.block_size_tokens) for tokens, group in zip(hits, groups, strict=True) if group.keeps_states
    )
    return any(hit % size and tokens < hit - hit % size for tokens, size in states)


def _is_past_its_window(engine: Any, claim: Any) -> bool:
    """Whether a window has a new block of its own among those that count as hit; of two groups it would be 008."""
    geometry, pool = engine.settings.geometry, engine.scheduler.kv_cache_manager.block_pool.blocks
    held = [block for table in claim.tables for block in table if block]
    return geometry.keeps_states and any(
        block and pool[block].block_hash is None and held.count(block) == 1
        for group, table in zip(geometry.groups, claim.tables, strict=True)
        if group.slides
        for block in table[: claim.first // group.block_size_tokens]
    )


FINDING = Finding(
    id="101-hit-past-its-state-ends-the-engine",
    rank=101,
    statement="KV-SYS-01",
    condition="states at block ends, a hit of attention that another group does not reach, and a host that has more",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
