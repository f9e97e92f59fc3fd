"""Mutants of the sliding window: what is released when, and in which order.

What a hit needs of a window is broken in ``hit_lookup``, what the admission gate thinks of it in ``allocation``.
"""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import WINDOWED, breaks

_RELEASE = "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager.remove_skipped_blocks"
_SKIPPED = "vllm.v1.core.single_type_kv_cache_manager:SlidingWindowManager.get_num_skipped_tokens"


@breaks(_RELEASE, violates="KV-OP-06", models=WINDOWED)
def window_released_a_block_early(original: Any, self: Any, request_id: str, total_computed_tokens: int) -> None:
    """A block is released when the window still reaches into its last tokens."""
    original(self, request_id, total_computed_tokens + self.block_size)


@breaks(_RELEASE, violates="KV-OP-06", models=WINDOWED)
def window_released_a_block_late(original: Any, self: Any, request_id: str, total_computed_tokens: int) -> None:
    """A block that no later token reads is kept until the next one is not read either."""
    original(self, request_id, max(0, total_computed_tokens - self.block_size))


@breaks(_RELEASE, violates="KV-OP-06", models=WINDOWED)
def window_never_released(_original: Any, _self: Any, _request_id: str, _total_computed_tokens: int) -> None:
    """Blocks that no later token reads are kept until the request ends."""


@breaks(_RELEASE, violates="KV-OP-06", models=WINDOWED)
def window_released_front_first(original: Any, self: Any, request_id: str, total_computed_tokens: int) -> None:
    """Of the blocks that no later token reads the earlier are released first."""
    # Step by step: each call finds one dead block more than the one before it.
    for computed in range(total_computed_tokens % self.block_size, total_computed_tokens + 1, self.block_size):
        original(self, request_id, computed)


@breaks(_SKIPPED, violates="KV-MEM-01", models=WINDOWED)
def window_one_token_short(original: Any, self: Any, num_computed_tokens: int) -> Any:
    """The window is taken to reach one token less far back than it does."""
    return original(self, num_computed_tokens + 1)


@breaks(_SKIPPED, violates="KV-OP-06", models=WINDOWED)
def window_one_token_long(original: Any, self: Any, num_computed_tokens: int) -> Any:
    """The window is taken to reach one token further back than it does."""
    return original(self, num_computed_tokens - 1)


@breaks(
    "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager.allocate_new_computed_blocks",
    violates="KV-OP-06",
    models=WINDOWED,
    equivalent="The look-up returns the null block for everything before the window, so there is nothing to pass over.",
)
def blocks_before_the_window_of_a_hit_not_passed_over(original: Any, self: Any, *arguments: Any) -> None:
    """The blocks of a hit go into the table as they are, those before the window too."""
    self.get_num_skipped_tokens = lambda _num_computed_tokens: 0
    try:
        original(self, *arguments)
    finally:
        del self.get_num_skipped_tokens
