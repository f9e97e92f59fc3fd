"""Mutants of the queues: who is next, and who is passed over."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks
from kvgate_mutants.mutants.scheduler.edited import Ask, Put, call

_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"
_FCFS = "vllm.v1.core.sched.request_queue:FCFSRequestQueue"

_WHILE_ANYBODY_WAITS = Ask("self.waiting", "self.skipped_waiting", instead="self.waiting and token_budget > 0")
_BLOCKED_HEAD_BLOCKS_ALL = Put("request_queue.pop_request", "break")
_SKIPPED_ARE_FORGOTTEN = Put("self.skipped_waiting.prepend_requests")


@breaks(f"{_FCFS}.add_request", violates="KV-LIVE-01")
def last_come_first_served(_original: Any, self: Any, request: Any) -> None:
    """Whoever comes is served before all that wait."""
    self.appendleft(request)


@breaks(f"{_FCFS}.peek_request", f"{_FCFS}.pop_request", violates="KV-LIVE-01")
def head_is_passed_over(original: Any, self: Any) -> Any:
    """As long as two wait, the second is served."""
    if len(self) < 2:
        return original(self)
    first = self.popleft()
    request = original(self)
    self.appendleft(first)
    return request


@breaks("vllm.v1.request:Request.__lt__", violates="KV-LIVE-01", needs=("priority",))
def priority_upside_down(original: Any, self: Any, other: Any) -> bool:
    """The least urgent request is served first."""
    return bool(original(other, self))


@breaks(
    "vllm.v1.core.sched.request_queue:PriorityRequestQueue.remove_requests", violates="KV-LIVE-01", needs=("priority",)
)
def removal_leaves_no_heap(_original: Any, self: Any, requests: Any) -> None:
    """After an abort the most urgent request may stand anywhere in the queue."""
    removed = set(requests)
    self._heap = [each for each in reversed(self._heap) if each not in removed]


@breaks(f"{_SCHEDULER}.schedule", violates="KV-LIVE-03")
def skipped_are_never_looked_at(original: Any, *arguments: Any) -> Any:
    """Who was set aside is looked at only while others wait."""
    return call(original, _WHILE_ANYBODY_WAITS, *arguments)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-LIVE-01", needs=("transfers",))
def blocked_head_blocks_all(original: Any, *arguments: Any) -> Any:
    """Behind a request whose blocks are still loading nobody is let in."""
    return call(original, _BLOCKED_HEAD_BLOCKS_ALL, *arguments)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-LIVE-01")
def skipped_are_forgotten(original: Any, *arguments: Any) -> Any:
    """Who is set aside is in no queue any more."""
    return call(original, _SKIPPED_ARE_FORGOTTEN, *arguments)
