"""Mutants that re-introduce reported bugs into vLLM 0.20.2, where no published code that has them runs here; and fixes.

A fix stands for a later version of vLLM, where a control needs one. None of these is in a mutant set.
"""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks, locate

# Reported defects of the hit look-up, put back into vLLM 0.20.2.

_MANAGERS = "vllm.v1.core.single_type_kv_cache_manager"
_LOOKUP = "vllm.v1.core.kv_cache_coordinator:HybridKVCacheCoordinator.find_longest_cache_hit"


@breaks(_LOOKUP, violates="KV-OP-01", needs=("eagle",))
def look_ahead_dropped_at_every_visit(_original: Any, self: Any, hashes: Any, tokens_max: int) -> Any:
    """The groups shorten the hit in turn until all agree, and each drops its look-ahead block whenever it is asked."""
    tokens, before = tokens_max, -1
    found: dict[int, list[Any]] = {}
    while tokens != before:
        before = tokens
        for place, asked in enumerate(self.attention_groups):
            alone = _hit_of(self, asked, hashes, tokens, drops=place in self.eagle_attn_group_indices)
            tokens = len(alone[0]) * asked[0].block_size
            found |= dict(zip(asked[1], alone, strict=True))
    sizes = [group.kv_cache_spec.block_size for group in self.kv_cache_config.kv_cache_groups]
    return tuple(found[index][: tokens // size] for index, size in enumerate(sizes)), tokens


@breaks(_LOOKUP, violates="KV-OP-01")
def longest_hit_of_any_group(_original: Any, self: Any, hashes: Any, tokens_max: int) -> Any:
    """Each group is looked up for itself, and the longest of their hits is taken for all."""
    found: dict[int, list[Any]] = {}
    tokens = 0
    for asked in self.attention_groups:
        alone = _hit_of(self, asked, hashes, tokens_max, drops=False)
        tokens = max(tokens, len(alone[0]) * asked[0].block_size)
        found |= dict(zip(asked[1], alone, strict=True))
    return tuple(found[index] for index in sorted(found)), tokens


def _hit_of(coordinator: Any, asked: Any, hashes: Any, tokens_max: int, drops: bool) -> Any:
    """The longest hit of the groups of one kind, where all blocks have the size of a hash."""
    spec, indices, manager = asked
    return manager.find_longest_cache_hit(
        block_hashes=hashes,
        max_length=tokens_max,
        kv_cache_group_ids=indices,
        block_pool=coordinator.block_pool,
        kv_cache_spec=spec,
        use_eagle=drops,
        alignment_tokens=coordinator.lcm_block_size,
    )


@breaks("vllm.v1.kv_cache_interface:KVCacheGroupSpec.__init__", violates="KV-OP-01", needs=("eagle",))
def no_group_is_flagged(original: Any, self: Any, *arguments: Any, **named: Any) -> None:
    """No group is flagged as the draft layer's, so that all of them are taken for it."""
    original(self, *arguments, **named)
    self.is_eagle_group = False


@breaks(f"{_MANAGERS}:MambaManager.cache_blocks", violates="KV-OP-20")
def states_not_fenced(original: Any, self: Any, *arguments: Any) -> None:
    """A state may be hit as soon as the chunk that will write it is scheduled."""
    original(self, *arguments)
    self.cached_blocks_this_step.clear()


# Reported defects of schedulers, put back into vLLM 0.20.2's; and repairs of what it has.

_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"


@breaks(f"{_SCHEDULER}.__init__", violates="KV-SYS-02")
def smallest_block_is_the_unit(original: Any, self: Any, *arguments: Any, **named: Any) -> None:
    """The size of a block is the smallest one of any group, as the engine's core sets it once the groups are known."""
    original(self, *arguments, **named)
    groups = self.kv_cache_config.kv_cache_groups
    self.cache_config.block_size = min(group.kv_cache_spec.block_size for group in groups)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-LIVE-03")
def set_aside_counts_as_running(original: Any, self: Any, *arguments: Any) -> Any:
    """Requests that are set aside count towards the most that may run."""
    before = self.max_num_running_reqs
    self.max_num_running_reqs = max(len(self.running), before - len(self.skipped_waiting))
    try:
        return original(self, *arguments)
    finally:
        self.max_num_running_reqs = before


@breaks(f"{_SCHEDULER}._mamba_block_aligned_split", violates="KV-LIVE-03")
def ten_tokens_a_step(original: Any, self: Any, request: Any, num_new_tokens: int, *more: int) -> Any:
    """A chunk of a prompt has ten tokens at most, as where the next item does not fit the encoder's cache."""
    return original(self, request, min(num_new_tokens, 10), *more)


# Repairs


@breaks("vllm.v1.core.kv_cache_manager:KVCacheManager.allocate_slots", violates="KV-LIVE-03")
def loads_leave_room_for_a_step(original: Any, self: Any, request: Any, *arguments: Any, **named: Any) -> Any:
    """A repair: a load is admitted only if one speculative step of every request that holds blocks, and of its own,
    still fits."""
    managers = self.coordinator.single_type_managers
    holders = {name for each in managers for name, blocks in each.req_to_blocks.items() if blocks}
    if named.get("delay_cache_blocks") and holders:
        loaded = sum(-(-request.num_tokens // each.block_size) for each in managers)
        if loaded + len(managers) * (len(holders) + 1) > self.block_pool.get_num_free_blocks():
            return None
    return original(self, request, *arguments, **named)


# Reported defects of what is counted, held and reported of blocks, put back into vLLM 0.20.2 or the plug-in; and
# repairs. A repair stands for the version in which a defect of 0.20.2 is fixed, where a control needs one.

_POOL = "vllm.v1.core.block_pool:BlockPool"


@breaks(f"{_MANAGERS}:SingleTypeKVCacheManager.get_num_blocks_to_allocate", violates="KV-OP-04")
def gates_cap_in_every_count(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """The admission gate's cap is applied to what a single step is said to take, too."""
    return original(self, *arguments, **named | {"apply_admission_cap": True})


@breaks("swa_retention.pinned_tier:PinnedTier.resume", violates="KV-INV-03")
def hit_stays_in_the_pinned_queue(_original: Any, _self: Any, blocks: Any) -> Any:
    """A pinned block that is hit is held, and still counts as one of the queue of blocks without a holder."""
    return blocks


@breaks(
    "vllm_ascend.patch.platform.patch_kv_cache_coordinator:AscendHybridKVCacheCoordinator.__init__",
    violates="KV-OP-03",
)
def ascend_gate_without_caps(original: Any, self: Any, *arguments: Any, **named: Any) -> None:
    """The coordinator does not know how many tokens a step computes, and so caps no window at the gate."""
    original(self, *arguments, **named | {"max_num_batched_tokens": None})


# Repairs


@breaks(f"{_POOL}.free_blocks", violates="KV-INV-03")
def released_one_by_one(original: Any, self: Any, ordered_blocks: Any, **named: Any) -> None:
    """A repair: a block is queued at the release that leaves it without a holder, and not once for each release."""
    for block in ordered_blocks:
        original(self, [block], **named)


@breaks(f"{_POOL}.free_blocks", violates="KV-INV-03")
def release_guarded(original: Any, self: Any, ordered_blocks: Any, **named: Any) -> None:
    """A repair: null blocks and blocks without a holder are not released, and nothing is released twice in a call."""
    once = {block.block_id: block for block in ordered_blocks if not block.is_null and block.ref_cnt > 0}
    original(self, list(once.values()), **named)


@breaks("vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator.emit_cached_block_events", violates="KV-OP-12")
def null_blocks_not_told(_original: Any, self: Any, request: Any, computed_blocks: Any) -> None:
    """A repair: of a hit the blocks that serve it are reported, each run of adjacent ones in an event."""
    owner, name = locate("vllm.v1.core.kv_cache_utils:maybe_convert_block_hash")
    hashes, unit = [getattr(owner, name)(each) for each in request.block_hashes], self.block_pool.hash_block_size
    for group, blocks in enumerate(computed_blocks):
        size = self.kv_cache_config.kv_cache_groups[group].kv_cache_spec.block_size
        real = [place for place, block in enumerate(blocks) if not block.is_null]
        for first in (place for place in real if place - 1 not in real):
            end = next(place for place in range(first, len(blocks) + 1) if place not in real)
            reported = [hashes[(place + 1) * size // unit - 1] for place in range(first, end)]
            self.block_pool.kv_event_queue.append(
                self.block_pool._build_block_stored_event(
                    request,
                    block_hashes=reported,
                    parent_block_hash=hashes[first * size // unit - 1] if first else None,
                    start_token_idx=first * size,
                    end_token_idx=end * size,
                    block_size=size,
                    kv_cache_group_id=group,
                    extra_keys_list=[None] * len(reported),
                    lookahead_token_ids=None,
                )
            )


@breaks(f"{_POOL}.cache_partial_block", violates="KV-INV-05")
def whole_blocks_keep_one_key(original: Any, self: Any, request: Any, block: Any, *arguments: Any, **named: Any) -> Any:
    """A repair: a block that is known by all that it holds gets no key for a part of it."""
    return None if block.block_hash is not None else original(self, request, block, *arguments, **named)


@breaks("vllm.v1.core.single_type_kv_cache_manager:MambaManager.get_num_blocks_to_allocate", violates="KV-SYS-01")
def provided_state_counted(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """A repair: the state after provided tokens is counted in addition to the one after the step."""
    return original(self, *arguments, **named) + 1


class _Tables(list[Any]):
    """The blocks of a request that are freed late, group by group, where the release goes through them backwards."""

    tables: tuple[list[Any], ...] = ()

    def __reversed__(self) -> Any:
        return self


@breaks("vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator.pop_blocks_for_free", violates="KV-OP-07")
def tables_stay_apart(_original: Any, self: Any, request_id: str) -> Any:
    """A repair, with the next one: what is freed late is known group by group."""
    tables = tuple(manager.pop_blocks_for_free(request_id) for manager in self.single_type_managers)
    popped = _Tables(block for table in tables for block in table)
    popped.tables = tables
    return popped


@breaks(f"{_POOL}.free_blocks", violates="KV-OP-07")
def tables_are_freed_apart(original: Any, self: Any, ordered_blocks: Any) -> None:
    """A repair, with the one before: what is freed late is freed group by group, as at once."""
    for table in getattr(ordered_blocks, "tables", (ordered_blocks,)):
        original(self, table[::-1] if isinstance(ordered_blocks, _Tables) else table)
