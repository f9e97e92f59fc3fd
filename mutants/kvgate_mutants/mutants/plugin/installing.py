"""Mutants of how the plug-in fits vLLM: compressed groups, newer keywords, configuration and patching."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvgate_mutants.mutants.mutant import breaks, vllms_own
from kvgate_mutants.mutants.plugin import checks as checks

# Mutants of compressed groups: their hits, their tensors, and what of vLLM-Ascend is replaced.

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
    """No error says that a layer has no tensor."""
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
    """Blocks have 128 slots and not the requested size."""
    return ascends_own


@breaks(f"{_LAYERS}:compressed_spec", shown_by=checks.compressed_layers_have_the_block_size)
def compressed_layers_stay(_original: Any, ascends_own: Any) -> Any:
    """Compressed layers have 128 slots in a block and not the requested size."""
    return ascends_own


@breaks(f"{_LAYERS}:window_spec", shown_by=checks.windows_have_the_block_size)
def windows_stay(_original: Any, ascends_own: Any) -> Any:
    """Windows have 128 slots in a block and not the requested size."""
    return ascends_own


@breaks(f"{_LAYERS}:state_spec", shown_by=checks.states_shrink_with_the_block_size)
def states_stay(_original: Any, ascends_own: Any) -> Any:
    """Blocks of states are as large as vLLM-Ascend's and not of the requested size."""
    return ascends_own


@breaks(f"{_LAYERS}:supported_kernel_block_sizes", shown_by=checks.kernels_have_the_block_sizes)
def kernel_sizes_stay(_original: Any, ascends_own: Any) -> Any:
    """Kernels are said to have the blocks that vLLM-Ascend lists, and not the requested size."""
    return ascends_own


@breaks("swa_retention.compressed.block_sizes:BlockSizes.page_bytes", shown_by=checks.states_shrink_with_the_block_size)
def pages_stay(_original: Any, _self: Any, page_bytes: int) -> int:
    """Blocks of states are padded to the page of the largest blocks."""
    return page_bytes


# Mutants of the constructors: what a newer vLLM says by keyword, and the scheduler's block size.

_COORDINATORS = "vllm.v1.core.kv_cache_coordinator"
_MANAGERS = "vllm.v1.core.single_type_kv_cache_manager"


@breaks(f"{_COORDINATORS}:KVCacheCoordinator.__init__", shown_by=checks.the_coordinator_knows_the_schedulers_block)
def coordinator_does_not_know(original: Any, *arguments: Any, **named: Any) -> None:
    """A coordinator does not know the scheduler's block."""
    vllms_own(original)(*arguments, **named)
    arguments[0].scheduler_block_size = None


@breaks(f"{_MANAGERS}:SingleTypeKVCacheManager.__init__", shown_by=checks.every_group_knows_the_schedulers_block)
def groups_do_not_know(original: Any, *arguments: Any, **named: Any) -> None:
    """The managers of groups do not know the scheduler's block."""
    vllms_own(original)(*arguments, **named)


@breaks(
    f"{_COORDINATORS}:KVCacheCoordinatorNoPrefixCache.__init__",
    shown_by=checks.one_without_a_cache_takes_newer_keywords,
)
def one_without_a_cache_refuses(original: Any, *arguments: Any, **named: Any) -> None:
    """A coordinator without a cache does not take what a newer scheduler says."""
    vllms_own(original)(*arguments, **named)


@breaks(f"{_COORDINATORS}:UnitaryKVCacheCoordinator.__init__", shown_by=checks.one_of_one_group_takes_newer_keywords)
def one_of_one_group_refuses(original: Any, *arguments: Any, **named: Any) -> None:
    """A coordinator of one group does not take what a newer scheduler says."""
    vllms_own(original)(*arguments, **named)


@breaks(
    f"{_COORDINATORS}:HybridKVCacheCoordinator.__init__", shown_by=checks.one_of_several_groups_takes_newer_keywords
)
def one_of_several_groups_refuses(original: Any, *arguments: Any, **named: Any) -> None:
    """A coordinator of several groups does not take what a newer scheduler says."""
    vllms_own(original)(*arguments, **named)


@breaks(f"{_MANAGERS}:MambaManager.cache_blocks", shown_by=checks.states_take_newer_keywords)
def states_refuse(original: Any, *arguments: Any, **named: Any) -> None:
    """A manager of states does not take what a newer coordinator says."""
    vllms_own(original)(*arguments, **named)


@breaks(
    "swa_retention.patches.newer_keywords:_counts_otherwise", shown_by=checks.the_scheduler_says_its_block_in_tokens
)
def slots_are_tokens(_original: Any, _spec: Any) -> bool:
    """A scheduler takes slots for tokens."""
    return False


@breaks("swa_retention.patches.newer_keywords:scheduler", shown_by=checks.the_scheduler_says_its_block_in_tokens)
def scheduler_says_nothing(_original: Any, schedulers_own: Any) -> Any:
    """A scheduler does not say its block."""
    return schedulers_own


# Mutants of how the plug-in is configured and put in place: no block manager is needed to find them.

_CONFIG = "swa_retention.config"
_REGISTER = "swa_retention.register"


@breaks(f"{_CONFIG}:_number", shown_by=checks.impossible_values_are_rejected)
def negative_numbers_taken(original: Any, variable: str, text: str, *allowed: Any) -> Any:
    """A negative number is taken without its sign."""
    return original(variable, text.lstrip("-"), *allowed)


@breaks(f"{_CONFIG}:_switch", shown_by=checks.impossible_values_are_rejected)
def anything_means_on(_original: Any, environment: Any, variable: str) -> bool:
    """Every value of a switch switches it on."""
    return bool(environment.get(variable))


@breaks(f"{_CONFIG}:_switch", shown_by=checks.values_mean_what_they_say)
def off_means_on(_original: Any, environment: Any, variable: str) -> bool:
    """What people write for no switches on."""
    return variable in environment


@breaks(f"{_CONFIG}:_interval", shown_by=checks.values_mean_what_they_say)
def zero_means_unset(original: Any, text: Any) -> Any:
    """An interval of 0 is taken for none at all."""
    interval_tokens, is_auto = original(text)
    return interval_tokens or None, is_auto


@breaks(f"{_REGISTER}:look", shown_by=checks.all_patches_or_none)
def any_source_fits(original: Any, patch: Any) -> Any:
    """A function is replaced whether it is the one that the patch was written for or not."""
    from attrs import evolve

    from swa_retention.register import State

    found = original(patch)
    return evolve(found, state=State.FITS) if found.state is State.DIFFERS else found


@breaks(f"{_REGISTER}:apply", shown_by=checks.all_patches_or_none)
def patches_one_by_one(original: Any, patches: Any) -> Any:
    """The patches before the first that does not fit are put in place."""
    return [found for patch in patches for found in original((patch,))]


@breaks(f"{_REGISTER}:_put", shown_by=checks.patches_are_put_in_place_once)
def replaced_and_not_marked(original: Any, patch: Any) -> None:
    """A replacement does not say what it replaced."""
    original(patch)
    module, _, path = patch.target.partition(":")
    from operator import attrgetter
    from sys import modules

    vars(attrgetter(path)(modules[module])).pop("__swa_retention__")


@breaks(f"{_REGISTER}:_rebind", shown_by=checks.importers_get_the_new_one)
def importers_left_behind(_original: Any, _before: Any, _after: Any) -> None:
    """Modules that have imported a function by its name keep the old one."""


@breaks("swa_retention.plugin:register", shown_by=checks.nothing_is_put_in_place_uninvited)
def put_in_place_uninvited(_original: Any) -> None:
    """The patches are put in place with nothing switched on."""
    from swa_retention import plugin

    # As `register` knows them, which is how the check sees what they do.
    vars(plugin)["install"](vars(plugin)["read"]())


@breaks("swa_retention.features:features_of", shown_by=checks.every_switch_has_its_feature)
def one_feature_at_a_time(original: Any, configuration: Any) -> Any:
    """Of several features that are switched on the first is put in place."""
    return original(configuration)[:1]


@breaks(
    "swa_retention.config:Configuration.interval_tokens", shown_by=checks.an_interval_between_boundaries_is_rejected
)
def given_interval_rounded(original: Any, self: Any, alignment_tokens: int) -> Any:
    """An interval that was given, and is not a multiple of the alignment, is rounded."""
    return original(evolve(self, interval_is_auto=True), alignment_tokens)


@breaks("swa_retention.doctor:examine", shown_by=checks.the_doctor_reports_by_its_exit_code)
def doctor_always_content(original: Any, *arguments: Any) -> Any:
    """The doctor's exit code is always 0."""
    return 0, original(*arguments)[1]
