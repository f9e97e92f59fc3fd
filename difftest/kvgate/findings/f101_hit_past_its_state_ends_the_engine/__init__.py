"""Finding 101: A hit inside a block that the states do not reach ends the engine when the host has more."""

from __future__ import annotations

from typing import Any

from kvgate.findings.finding import Finding
from kvgate.kernel.difference import Divergence


def _is_it(divergence: Divergence, engine: Any) -> bool:
    """A waiting request hits more whole blocks in attention than in a group of states, and a part of a block more."""
    difference = divergence.difference
    subject = "AssertionError in truncate_computed_blocks"
    is_raised = (difference.statement, difference.subject) == ("KV-SYS-01", subject)
    return is_raised and any(_is_past(engine, request) for request in engine.scheduler.waiting)


def _is_past(engine: Any, request: Any) -> bool:
    coordinator, groups = engine.scheduler.kv_cache_manager.coordinator, engine.settings.geometry.groups
    _, hits = coordinator.find_longest_cache_hit_per_group(request.block_hashes, request.num_tokens - 1)
    hit = next(tokens for tokens, group in zip(hits, groups, strict=True) if group.keeps_all)
    states = [
        (tokens, group.block_size_tokens) for tokens, group in zip(hits, groups, strict=True) if group.keeps_states
    ]
    return any(hit % size and tokens < hit - hit % size for tokens, size in states)


FINDING = Finding(
    id="101-hit-past-its-state-ends-the-engine",
    rank=101,
    statement="KV-SYS-01",
    condition="hits that may end inside blocks of states, a state that was evicted, and a host that has a later one",
    on=lambda _stage: False,
    explains_tiers=_is_it,
    live=False,
)
