"""Mutants of compressed groups: what their hits are cut to, and what their tensors take."""

from __future__ import annotations

from typing import Any

from kvgate.mutants.mutant import breaks
from kvgate.mutants.plugin.left_out import vllms_own

_LOOKUP = "vllm.v1.core.kv_cache_coordinator:HybridKVCacheCoordinator.find_longest_cache_hit"


@breaks(_LOOKUP, violates="KV-OP-01", models=("compressed", "compressed+eagle"))
def first_full_group_cut_alone(original: Any, *arguments: Any, **named: Any) -> Any:
    """Of several groups of full attention the first alone is cut to the hit."""
    return vllms_own(vllms_own(original))(*arguments, **named)
