"""Mutants of compressed groups: their hits, their tensors, and what of vLLM-Ascend is replaced."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks
from kvgate_mutants.mutants.plugin import checks_groups as checks
from kvgate_mutants.mutants.plugin.left_out import vllms_own

_LOOKUP = "vllm.v1.core.kv_cache_coordinator:HybridKVCacheCoordinator.find_longest_cache_hit"
_UTILS = "vllm.v1.core.kv_cache_utils"
_MANAGERS, _LAYERS = "swa_retention.patches.ascend_managers", "swa_retention.patches.ascend_layers"


@breaks(_LOOKUP, violates="KV-OP-01", models=("compressed", "compressed+eagle"))
def first_full_group_cut_alone(original: Any, *arguments: Any, **named: Any) -> Any:
    """Of several groups of full attention the first alone is cut to the hit."""
    return vllms_own(vllms_own(original))(*arguments, **named)


@breaks(f"{_UTILS}:_get_kv_cache_config_deepseek_v4", shown_by=checks.page_sizes_are_those_of_all_groups)
def page_sizes_of_the_first_group(original: Any, *arguments: Any) -> Any:
    """A layer whose page size is not in the first group gets no tensor."""
    return vllms_own(original)(*arguments)


@breaks(f"{_UTILS}:_pool_bytes_per_block", shown_by=checks.a_block_takes_what_its_tensors_take)
def block_takes_the_first_group(original: Any, *arguments: Any) -> Any:
    """What a block takes is counted over the page sizes of the first group."""
    return vllms_own(original)(*arguments)


@breaks(f"{_UTILS}:_max_memory_usage_bytes_from_groups", shown_by=checks.a_request_takes_what_its_blocks_take)
def request_takes_the_first_group(original: Any, *arguments: Any) -> Any:
    """What a request takes is counted over the page sizes of the first group."""
    return vllms_own(original)(*arguments)


@breaks("swa_retention.patches.compressed:kv_cache_tensors", shown_by=checks.ascends_tensors_are_those_of_all_groups)
def ascends_tensors_stay(_original: Any, ascends_own: Any) -> Any:
    """On vLLM-Ascend a layer whose page size is not in the first group gets no tensor."""
    return ascends_own


@breaks("swa_retention.patches.compressed:allocate_kv_cache_tensors", shown_by=checks.a_layer_without_a_tensor_is_named)
def layer_without_a_tensor(_original: Any, runners_own: Any) -> Any:
    """Nobody says that a layer has no tensor."""
    return runners_own


@breaks(f"{_MANAGERS}:get_num_blocks_to_allocate", shown_by=checks.blocks_needed_are_counted_in_tokens)
def needed_in_slots(_original: Any, ascends_own: Any) -> Any:
    """The blocks that a request needs are counted in slots, as by vLLM-Ascend itself."""
    return ascends_own


@breaks(f"{_MANAGERS}:allocate_new_blocks", shown_by=checks.blocks_are_taken_for_complete_slots)
def taken_in_slots(_original: Any, ascends_own: Any) -> Any:
    """The blocks that a request takes are counted in slots, as by vLLM-Ascend itself."""
    return ascends_own


@breaks(f"{_MANAGERS}:allocate_new_computed_blocks", shown_by=checks.loaded_blocks_are_taken_for_complete_slots)
def loaded_in_slots(_original: Any, ascends_own: Any) -> Any:
    """The blocks that a load fills are counted in slots, as by vLLM-Ascend itself."""
    return ascends_own


@breaks(f"{_MANAGERS}:whole_slots", shown_by=checks.blocks_are_taken_for_complete_slots)
def slots_begun_take_blocks(_original: Any, _manager: Any, tokens: int) -> int:
    """A block is taken for a slot whose last token is yet to come."""
    return tokens


@breaks(f"{_MANAGERS}:cache_blocks", shown_by=checks.blocks_are_cached_under_all_that_they_hold)
def cached_under_too_little(_original: Any, ascends_own: Any) -> Any:
    """A block is cached under the hash of as many tokens as it has slots."""
    return ascends_own


@breaks(f"{_MANAGERS}:find_longest_cache_hit", shown_by=checks.hits_are_looked_up_in_tokens)
def looked_up_in_slots(_original: Any, ascends_own: Any) -> Any:
    """Hits are looked up in slots, as by vLLM-Ascend itself."""
    return ascends_own


@breaks(f"{_MANAGERS}:get_kv_cache_coordinator", shown_by=checks.ascends_factory_takes_newer_keywords)
def ascends_factory_refuses(_original: Any, ascends_own: Any) -> Any:
    """What makes vLLM-Ascend's coordinators does not take what a newer scheduler says."""
    return ascends_own


@breaks("swa_retention.patches.newer_keywords:coordinator", shown_by=checks.ascends_coordinator_takes_newer_keywords)
def ascends_coordinator_refuses(_original: Any, ascends_own: Any) -> Any:
    """The coordinator of vLLM-Ascend does not take what a newer scheduler says."""
    return ascends_own


@breaks(f"{_LAYERS}:refresh_block_size", shown_by=checks.the_block_size_is_what_was_asked_for)
def block_size_ignored(_original: Any, ascends_own: Any) -> Any:
    """Blocks have 128 slots, whatever was asked for."""
    return ascends_own


@breaks(f"{_LAYERS}:compressed_spec", shown_by=checks.compressed_layers_have_the_block_size)
def compressed_layers_stay(_original: Any, ascends_own: Any) -> Any:
    """Compressed layers have 128 slots in a block, whatever was asked for."""
    return ascends_own


@breaks(f"{_LAYERS}:window_spec", shown_by=checks.windows_have_the_block_size)
def windows_stay(_original: Any, ascends_own: Any) -> Any:
    """Windows have 128 slots in a block, whatever was asked for."""
    return ascends_own


@breaks(f"{_LAYERS}:state_spec", shown_by=checks.states_shrink_with_the_block_size)
def states_stay(_original: Any, ascends_own: Any) -> Any:
    """Blocks of states are as large as vLLM-Ascend's, whatever was asked for."""
    return ascends_own


@breaks("swa_retention.compressed.block_sizes:BlockSizes.page_bytes", shown_by=checks.states_shrink_with_the_block_size)
def pages_stay(_original: Any, _self: Any, page_bytes: int) -> int:
    """Blocks of states are padded to the page of the largest blocks."""
    return page_bytes
