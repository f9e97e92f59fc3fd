"""Mutants of allocation: whether a whole request fits, and which blocks a step takes."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import HYBRID, WINDOWED, breaks

# Mutants of the admission gate: whether a whole request fits.

_GATE = "vllm.v1.core.kv_cache_manager:KVCacheManager.can_fit_full_sequence"


@breaks(_GATE, violates="KV-OP-03")
def gate_always_open(_original: Any, _self: Any, *_arguments: Any, **_named: Any) -> Any:
    """Every request passes the admission gate."""
    return True


@breaks(
    "vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator.get_num_blocks_to_allocate",
    violates="KV-OP-03",
)
def gate_one_block_lenient(original: Any, self: Any, **asked: Any) -> Any:
    """A request passes the admission gate although one block is lacking."""
    return original(self, **asked) - bool(asked.get("apply_admission_cap"))


@breaks(_GATE, violates="KV-OP-03")
def gate_ignores_the_hit(original: Any, self: Any, request: Any, **_hit: Any) -> Any:
    """The admission gate asks for room for the whole request, even if much of it is cached."""
    return original(self, request)


@breaks(
    "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager.get_num_blocks_to_allocate",
    violates="KV-OP-03",
    models=WINDOWED,
)
def gate_ignores_the_window(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """The admission gate asks a sliding-window group for room for all tokens at once."""
    return original(self, *arguments, **named | {"apply_admission_cap": False})


@breaks(
    "vllm.v1.kv_cache_interface:SlidingWindowSpec.max_admission_blocks_per_request",
    violates="KV-OP-03",
    models=WINDOWED,
)
def gate_forgets_the_chunk(original: Any, self: Any, **limits: Any) -> Any:
    """The admission gate asks a sliding-window group for the window and one token instead of a whole chunk."""
    return original(self, **limits | {"max_num_batched_tokens": 1})


@breaks(
    "vllm.v1.kv_cache_interface:SlidingWindowSpec.max_admission_blocks_per_request",
    violates="KV-OP-03",
    models=WINDOWED,
)
def gate_takes_windows_for_aligned(original: Any, self: Any, **limits: Any) -> Any:
    """The admission gate takes it that a window starts with a block's first token, and asks for one block too few."""
    return original(self, **limits) - 1


# Mutants of allocation: how many blocks a step takes, from where, and when it is rejected.

_MANAGER = "vllm.v1.core.kv_cache_manager:KVCacheManager"
_COORDINATOR = "vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator"
_GROUP = "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager"


@breaks(f"{_GROUP}.allocate_new_blocks", violates="KV-OP-05")
def extra_block_at_a_block_boundary(original: Any, self: Any, request_id: str, num_tokens: int, *rest: Any) -> Any:
    """Tokens that fill their last block exactly get one block too many."""
    return original(self, request_id, num_tokens + 1, *rest)


@breaks(f"{_GROUP}.allocate_new_blocks", violates="KV-MEM-02")
def no_block_for_a_single_token(original: Any, self: Any, request_id: str, num_tokens: int, *rest: Any) -> Any:
    """A single token after a block boundary gets no block."""
    return original(self, request_id, num_tokens - 1, *rest)


@breaks(f"{_GROUP}.allocate_new_blocks", violates="KV-INV-04")
def new_block_named_twice(original: Any, self: Any, request_id: str, *rest: Any) -> Any:
    """Of several new blocks the one before the last stands in the table in the last one's place, too."""
    blocks = original(self, request_id, *rest)
    if len(blocks) > 1:
        blocks[-1] = self.req_to_blocks[request_id][-1] = blocks[-2]
    return blocks


@breaks(f"{_COORDINATOR}.allocate_new_blocks", violates="KV-OP-05", models=HYBRID)
def groups_served_in_reverse(original: Any, self: Any, *arguments: Any) -> Any:
    """New blocks are taken for the last group first."""
    managers = self.single_type_managers
    self.single_type_managers = managers[::-1]
    try:
        return original(self, *arguments)[::-1]
    finally:
        self.single_type_managers = managers


@breaks(f"{_MANAGER}.allocate_slots", violates="KV-MEM-02", needs=("eagle",))
def look_ahead_slots_forgotten(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """A step gets no slots for what its draft layers write ahead."""
    return original(self, *arguments, **named | {"num_lookahead_tokens": 0})


@breaks(f"{_MANAGER}.allocate_slots", violates="KV-OP-05", needs=("eagle", "token-limit"))
def slots_beyond_the_token_limit(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """Look-ahead slots are allocated beyond the longest that a request may become."""
    limit = self.max_model_len
    self.max_model_len = 2 * limit
    try:
        return original(self, *arguments, **named)
    finally:
        self.max_model_len = limit


@breaks(f"{_COORDINATOR}.get_num_blocks_to_allocate", violates="KV-OP-04")
def last_free_block_refused(original: Any, self: Any, **asked: Any) -> Any:
    """An allocation that takes exactly the blocks that are free is rejected."""
    return original(self, **asked) + (not asked.get("apply_admission_cap"))


@breaks(f"{_GROUP}._get_num_evictable_blocks", violates="KV-OP-04")
def free_hits_not_counted(_original: Any, _cls: Any, _blocks: Any) -> Any:
    """The free blocks that serve a hit are not counted among those that the allocation takes."""
    return 0


@breaks(f"{_MANAGER}.allocate_slots", violates="KV-INV-01", needs=("no-gate",))
def refusal_keeps_hits_held(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """A rejected allocation leaves the blocks of its hit held."""
    granted = original(self, *arguments, **named)
    hit = named.get("new_computed_blocks")
    if granted is None and hit is not None:
        for blocks in hit.blocks:
            self.block_pool.touch([block for block in blocks if not block.is_null])
    return granted
