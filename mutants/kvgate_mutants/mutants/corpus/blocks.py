"""Reported defects of what is counted, held and told of blocks, put back into vLLM 0.20.2 or the plug-in; and repairs.

A repair stands for the version in which a defect of 0.20.2 is mended, where a control needs one.
"""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks, locate

_MANAGERS = "vllm.v1.core.single_type_kv_cache_manager"
_POOL = "vllm.v1.core.block_pool:BlockPool"


@breaks(f"{_MANAGERS}:SingleTypeKVCacheManager.get_num_blocks_to_allocate", violates="KV-OP-04")
def gates_cap_in_every_count(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """The admission gate's cap is applied to what a single step is said to take, too."""
    return original(self, *arguments, **named | {"apply_admission_cap": True})


@breaks("swa_retention.pinned_tier:PinnedTier.resume", violates="KV-INV-07")
def hit_stays_in_the_pinned_queue(_original: Any, _self: Any, _block: Any) -> None:
    """A pinned block that is hit is held, and stays in the queue of those that nobody holds."""


@breaks(
    "vllm_ascend.patch.platform.patch_kv_cache_coordinator:AscendHybridKVCacheCoordinator.__init__",
    violates="KV-OP-03",
)
def ascend_gate_without_caps(original: Any, self: Any, *arguments: Any, **named: Any) -> None:
    """The coordinator is not told how many tokens a step computes, and so caps no window at the gate."""
    original(self, *arguments, **named | {"max_num_batched_tokens": None})


# Repairs


@breaks(f"{_POOL}.free_blocks", violates="KV-INV-03")
def released_one_by_one(original: Any, self: Any, ordered_blocks: Any, **named: Any) -> None:
    """A repair: a block is queued at the release that leaves it without a holder, and not once for each release."""
    for block in ordered_blocks:
        original(self, [block], **named)


@breaks(f"{_POOL}.free_blocks", violates="KV-INV-03")
def release_guarded(original: Any, self: Any, ordered_blocks: Any, **named: Any) -> None:
    """A repair: what is no block, or has no holder, is not released, and nothing is released twice in a call."""
    once = {block.block_id: block for block in ordered_blocks if not block.is_null and block.ref_cnt > 0}
    original(self, list(once.values()), **named)


@breaks("vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator.emit_cached_block_events", violates="KV-OP-12")
def null_blocks_not_told(_original: Any, self: Any, request: Any, computed_blocks: Any) -> None:
    """A repair: of a hit the blocks that serve it are told, each run of neighbours in an event."""
    owner, name = locate("vllm.v1.core.kv_cache_utils:maybe_convert_block_hash")
    hashes, unit = [getattr(owner, name)(each) for each in request.block_hashes], self.block_pool.hash_block_size
    for group, blocks in enumerate(computed_blocks):
        size = self.kv_cache_config.kv_cache_groups[group].kv_cache_spec.block_size
        real = [place for place, block in enumerate(blocks) if not block.is_null]
        for first in (place for place in real if place - 1 not in real):
            end = next(place for place in range(first, len(blocks) + 1) if place not in real)
            told = [hashes[(place + 1) * size // unit - 1] for place in range(first, end)]
            self.block_pool.kv_event_queue.append(
                self.block_pool._build_block_stored_event(
                    request,
                    block_hashes=told,
                    parent_block_hash=hashes[first * size // unit - 1] if first else None,
                    start_token_idx=first * size,
                    end_token_idx=end * size,
                    block_size=size,
                    kv_cache_group_id=group,
                    extra_keys_list=[None] * len(told),
                    lookahead_token_ids=None,
                )
            )


@breaks(f"{_POOL}.cache_partial_block", violates="KV-INV-05")
def whole_blocks_keep_one_key(original: Any, self: Any, request: Any, block: Any, *arguments: Any, **named: Any) -> Any:
    """A repair: a block that is known by all that it holds gets no key for a part of it."""
    return None if block.block_hash is not None else original(self, request, block, *arguments, **named)


@breaks("vllm.v1.core.single_type_kv_cache_manager:MambaManager.get_num_blocks_to_allocate", violates="KV-SYS-01")
def provided_state_counted(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """A repair: the state behind provided tokens is counted beside the one behind the step."""
    return original(self, *arguments, **named) + 1
