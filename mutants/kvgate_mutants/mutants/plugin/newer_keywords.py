"""Mutants of the constructors: what a newer vLLM says by keyword, and the scheduler's block size."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks
from kvgate_mutants.mutants.plugin import checks_newer as checks
from kvgate_mutants.mutants.plugin.left_out import vllms_own

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
