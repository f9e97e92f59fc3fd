"""vLLM's look-up, after which a request knows its junction."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from swa_retention.junctions import JUNCTION
from swa_retention.register import Patch


def get_computed_blocks(original: Any) -> Callable[..., tuple[Any, int]]:
    """``KVCacheManager.get_computed_blocks`` that notes where the prompt parts from what is cached."""

    @wraps(original)
    def get_computed_blocks(self: Any, request: Any) -> tuple[Any, int]:
        found: tuple[Any, int] = original(self, request)
        junctions = getattr(self.coordinator, "junctions", None)
        # A request that may not read the cache parts from nothing.
        if junctions is not None and not request.skip_reading_prefix_cache:
            tokens = junctions.find(request.block_hashes, request.num_tokens, found[1])
            if tokens and not getattr(request, JUNCTION, 0):
                # A request may be looked up again before it is admitted.
                junctions.counts["junctions"] += 1
            setattr(request, JUNCTION, tokens)
        return found

    return get_computed_blocks


PATCHES = (
    Patch(
        "vllm.v1.core.kv_cache_manager:KVCacheManager.get_computed_blocks",
        "With few boundaries kept, prompts that share their beginning alone hit nothing.",
        "After vLLM's own code, a request that finds more in full attention than it hits keeps that boundary.",
        "vLLM 0.33 (shared_prefix_boundary)",
        "vLLM 0.33, which has it",
        "d826d3eaeb046a79",
        get_computed_blocks,
    ),
)
