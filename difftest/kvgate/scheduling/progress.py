"""The progress monitor: a scheduler that could bring somebody on, and does not, is a hang.

It needs no clock and no reference. A step is a function of the scheduler's state and of what the model answers. So if a
step schedules nobody and leaves everything as it was, every step after it does the same; and if the scheduler comes
back to where it was since somebody last got a token, it turns in a circle. Both are told with who holds what, and who
waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvgate.adapters.scheduling.names import number_in
from kvgate.difference import Difference

Standing = tuple[object, ...]


class ProgressMonitor:
    """Watches one scheduler, step by step."""

    name = "progress"

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self._seen: set[Standing] = set()
        """Where everything stood since somebody last got on."""

    def observe(self, answered: int) -> Difference | None:
        """After a step in which ``answered`` requests got a token."""
        if answered or not self.scheduler.has_unfinished_requests():
            self._seen.clear()
            return None
        standing = self._standing()
        if standing not in self._seen:
            self._seen.add(standing)
            return None
        return Difference("KV-LIVE-03", "progress", "somebody gets on, or something changes", "; ".join(self._told()))

    def forget(self) -> None:
        """Something happened from outside: whatever stood still may move now."""
        self._seen.clear()

    def _standing(self) -> Standing:
        """Whatever decides what the next step does."""
        waiting = (*self.scheduler.skipped_waiting, *self.scheduler.waiting)
        return (
            tuple((request.request_id, request.num_computed_tokens) for request in self.scheduler.running),
            tuple((request.request_id, request.status.name, request.num_computed_tokens) for request in waiting),
            self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
        )

    def _told(self) -> Iterator[str]:
        """Who holds what, and who waits."""
        manager = self.scheduler.kv_cache_manager
        yield f"{manager.block_pool.get_num_free_blocks()} blocks are free"
        for request in self.scheduler.running:
            told = f"request {number_in(request.request_id)} runs, {_tokens(request)}"
            yield f"{told}, holds {self._held(request)} blocks"
        for request in (*self.scheduler.skipped_waiting, *self.scheduler.waiting):
            told = f"request {number_in(request.request_id)} waits ({request.status.name.lower()}), {_tokens(request)}"
            yield f"{told}, holds {self._held(request)} blocks"

    def _held(self, request: Any) -> int:
        tables = self.scheduler.kv_cache_manager.coordinator.get_blocks(request.request_id)
        return sum(not block.is_null for blocks in tables for block in blocks)


def _tokens(request: Any) -> str:
    return f"{request.num_computed_tokens} of {request.num_tokens} tokens computed"
