"""Mutants of the copies' way: from the scheduler, through the step's output, to the workers."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks
from kvgate_mutants.mutants.plugin import checks_newer as checks
from kvgate_mutants.mutants.plugin.left_out import vllms_own

_DISPATCH = "swa_retention.patches.dispatch"


@breaks(f"{_DISPATCH}:update_after_schedule", shown_by=checks.a_step_carries_its_copies)
def step_without_copies(_original: Any, schedulers_own: Any) -> Any:
    """A step does not carry its copies."""
    return schedulers_own


@breaks(f"{_DISPATCH}:update_states", shown_by=checks.a_step_carries_its_copies)
def worker_copies_nothing(_original: Any, workers_own: Any) -> Any:
    """A worker does not look whether a step carries copies."""
    return workers_own


@breaks(f"{_DISPATCH}:copies_of", shown_by=checks.a_step_carries_its_copies)
def last_copy_lost(original: Any, scheduler_output: Any) -> Any:
    """The last copy of a step is not done."""
    return original(scheduler_output)[:-1]


@breaks(f"{_DISPATCH}:started", shown_by=checks.workers_that_copy_nothing_are_refused)
def any_worker_will_do(_original: Any, engines_own: Any) -> Any:
    """A worker that does no copies is taken."""
    return engines_own


@breaks("swa_retention.partial.hits:_last_holds", shown_by=checks.sources_are_let_go_of_once)
def source_released_twice(_original: Any, sources: Any) -> Any:
    """A block that several copies read is given to vLLM's pool once for each."""
    yield from sources


@breaks(
    "vllm.v1.core.kv_cache_utils:generate_scheduler_kv_cache_config", shown_by=checks.the_scheduler_is_told_all_ratios
)
def one_ratio_told(original: Any, *arguments: Any) -> Any:
    """Of layers with several compress ratios the scheduler is told one."""
    return vllms_own(original)(*arguments)
