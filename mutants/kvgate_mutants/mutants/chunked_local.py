"""Mutants of chunked local attention: where an attention chunk ends, and what is given up when it does."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks

_SKIPPED = "vllm.v1.core.single_type_kv_cache_manager:ChunkedLocalAttentionManager.get_num_skipped_tokens"


@breaks(_SKIPPED, violates="KV-MEM-01", models=("local",))
def attention_chunk_ends_a_token_early(original: Any, self: Any, num_computed_tokens: int) -> Any:
    """An attention chunk is taken to be over when its last token is still to be computed."""
    return original(self, num_computed_tokens + 1)


@breaks(_SKIPPED, violates="KV-OP-06", models=("local",))
def attention_chunk_ends_a_token_late(original: Any, self: Any, num_computed_tokens: int) -> Any:
    """An attention chunk is taken to go on when the first token of the next one is to be computed."""
    return original(self, max(0, num_computed_tokens - 1))
