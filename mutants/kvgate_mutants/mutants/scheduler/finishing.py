"""Mutants of a request's end: which queue it leaves, what is released, who is told."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks
from kvgate_mutants.mutants.scheduler.edited import Put, call

_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"

_ENDED_STILL_RUNS = Put("self.running = remove_all")
_ABORTED_STILL_WAITS = Put("self.waiting.remove_requests")
_ABORTED_STILL_SKIPPED = Put("self.skipped_waiting.remove_requests")
_NO_BLOCK_IS_FREED = Put("self.kv_cache_manager.free")
_NOBODY_FORGETS_IT = Put("del self.requests")
_NOBODY_IS_TOLD = Put("self.finished_req_ids.add")


@breaks(f"{_SCHEDULER}._free_blocks", violates="KV-SYS-02")
def ended_keeps_its_blocks(original: Any, *arguments: Any) -> Any:
    """A request that ends never gives its blocks back."""
    return call(original, _NO_BLOCK_IS_FREED, *arguments)


@breaks(f"{_SCHEDULER}._free_blocks", violates="KV-LEAK-01")
def ended_is_remembered(original: Any, *arguments: Any) -> Any:
    """A request that ended stays in the scheduler's books."""
    return call(original, _NOBODY_FORGETS_IT, *arguments)


@breaks(f"{_SCHEDULER}._free_request", violates="KV-SYS-03")
def end_is_not_told(original: Any, *arguments: Any, **named: Any) -> Any:
    """The worker is not told of a request that ended."""
    return call(original, _NOBODY_IS_TOLD, *arguments, **named)


@breaks(f"{_SCHEDULER}.update_from_output", violates="KV-SYS-02")
def ended_still_runs(original: Any, *arguments: Any) -> Any:
    """A request that ended stays among those that run."""
    return call(original, _ENDED_STILL_RUNS, *arguments)


@breaks(f"{_SCHEDULER}.finish_requests", violates="KV-SYS-02")
def aborted_still_runs(original: Any, *arguments: Any) -> Any:
    """A request that is aborted while it runs stays among those that run."""
    return call(original, _ENDED_STILL_RUNS, *arguments)


@breaks(f"{_SCHEDULER}.finish_requests", violates="KV-SYS-02")
def aborted_still_waits(original: Any, *arguments: Any) -> Any:
    """A request that is aborted while it waits stays in the queue."""
    return call(original, _ABORTED_STILL_WAITS, *arguments)


@breaks(f"{_SCHEDULER}.finish_requests", violates="KV-SYS-02")
def aborted_stays_aside(original: Any, *arguments: Any) -> Any:
    """A request that is aborted while it is set aside stays there."""
    return call(original, _ABORTED_STILL_SKIPPED, *arguments)
