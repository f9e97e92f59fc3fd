"""Mutants of the admission gate: whether a whole request fits."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import WINDOWED, breaks

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
    """The admission gate asks for room for the whole request, whatever of it is cached."""
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
