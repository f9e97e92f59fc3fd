"""Reported defects of what is counted, held and told of blocks, put back into vLLM 0.20.2 or the plug-in; and repairs.

A repair stands for the version in which a defect of 0.20.2 is mended, where a control needs one.
"""

from __future__ import annotations

from typing import Any

from kvgate.mutants.mutant import breaks, locate

_MANAGERS = "vllm.v1.core.single_type_kv_cache_manager"
_POOL = "vllm.v1.core.block_pool:BlockPool"


@breaks(f"{_MANAGERS}:SingleTypeKVCacheManager.get_num_blocks_to_allocate", violates="KV-OP-04")
def gates_cap_in_every_count(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """The admission gate's cap is applied to what a single step is said to take, too."""
    return original(self, *arguments, **named | {"apply_admission_cap": True})


@breaks("swa_retention.pinned_tier:PinnedTier.resume", violates="KV-INV-07")
def hit_stays_in_the_pinned_queue(_original: Any, _self: Any, _block: Any) -> None:
    """A pinned block that is hit is held, and stays in the queue of those that nobody holds."""


@breaks("vllm.v1.core.kv_cache_manager:KVCacheManager.get_computed_blocks", violates="KV-OP-12", needs=("events",))
def hit_told_with_null_blocks(original: Any, self: Any, request: Any) -> Any:
    """A hit is told group by group as if every block up to its length were held, null blocks too."""
    blocks, tokens = original(self, request)
    module, name = locate("vllm.distributed.kv_events:BlockStored")
    hashes = request.block_hashes
    for group, held in enumerate(blocks.blocks if tokens else ()):
        size = tokens // len(held)
        told = getattr(module, name)(
            block_hashes=hashes[: len(held)],
            parent_block_hash=None,
            token_ids=request.all_token_ids[:tokens],
            block_size=size,
            lora_id=None,
            medium="GPU",
            lora_name=None,
            group_idx=group,
        )
        self.block_pool.kv_event_queue.append(told)
    return blocks, tokens


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
