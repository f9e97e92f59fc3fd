"""Mutants of preemption: who loses its blocks, what is forgotten of it, and where it waits afterwards."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks
from kvgate_mutants.mutants.scheduler.edited import Put, call

_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"
_PREEMPT = f"{_SCHEDULER}._preempt_request"

_FIRST_IS_PREEMPTED = Put("preempted_req = self.running.pop", "preempted_req = self.running.pop(0)")
_MOST_URGENT_IS_PREEMPTED = Put(
    "preempted_req = max", "preempted_req = min(self.running, key=lambda each: (each.priority, each.arrival_time))"
)
_STILL_IN_THE_STEP = Put("scheduled_running_reqs.remove")


@breaks(_PREEMPT, violates="KV-SYS-02", needs=("preemption",))
def preempted_keeps_its_count(original: Any, self: Any, request: Any, *more: Any) -> None:
    """Whoever loses its blocks still counts its tokens as computed."""
    computed = request.num_computed_tokens
    original(self, request, *more)
    request.num_computed_tokens = computed


@breaks(_PREEMPT, violates="KV-SYS-02", needs=("preemption",))
def preempted_is_freed_twice(original: Any, self: Any, request: Any, *more: Any) -> None:
    """The blocks of whoever is preempted are released twice."""
    original(self, request, *more)
    self.kv_cache_manager.free(request)


@breaks(_PREEMPT, violates="KV-SYS-02", needs=("preemption",))
def preempted_keeps_its_blocks(original: Any, self: Any, request: Any, *more: Any) -> None:
    """Whoever is preempted goes on to hold its blocks."""
    manager = self.kv_cache_manager
    free = vars(manager).get("free")
    manager.free = lambda _request: None
    try:
        original(self, request, *more)
    finally:
        if free is None:
            del manager.free
        else:
            manager.free = free


@breaks(_PREEMPT, violates="KV-LIVE-01", needs=("preemption",))
def preempted_waits_behind_all(original: Any, self: Any, request: Any, *more: Any) -> None:
    """Whoever is preempted waits behind those that came after it."""
    original(self, request, *more)
    self.waiting.remove_request(request)
    self.waiting.add_request(request) if hasattr(self.waiting, "_heap") else self.waiting.append(request)


@breaks(_PREEMPT, violates="KV-LIVE-01", needs=("preemption",))
def preempted_is_forgotten(original: Any, self: Any, request: Any, *more: Any) -> None:
    """Whoever is preempted is in no queue."""
    original(self, request, *more)
    self.waiting.remove_request(request)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-LIVE-02", needs=("preemption",))
def first_is_preempted(original: Any, *arguments: Any) -> Any:
    """The one that has run longest is preempted, and not the last that was let in."""
    return call(original, _FIRST_IS_PREEMPTED, *arguments)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-LIVE-02", needs=("preemption", "priority"))
def most_urgent_is_preempted(original: Any, *arguments: Any) -> Any:
    """By priority, the most urgent request is preempted."""
    return call(original, _MOST_URGENT_IS_PREEMPTED, *arguments)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-01", needs=("preemption", "priority"))
def preempted_stays_in_the_step(original: Any, *arguments: Any) -> Any:
    """Who is preempted after it was scheduled is told to the worker all the same."""
    return call(original, _STILL_IN_THE_STEP, *arguments)
