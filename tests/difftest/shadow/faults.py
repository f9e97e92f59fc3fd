"""Faults that are injected into vLLM's own block manager and scheduler under a shadow, and what it says of each.

``python -m tests.difftest.shadow.faults`` prints the table: whether each is detected, by which guarantee, how many
steps after it acted first, and whether the server still serves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from attrs import define, frozen

from kvgate.levels.scheduler.adapter.names import number_in
from kvgate.shadow.adapter.stall_watch import StallWatch

from .live import Server, watched

STEPS = 120
START_STEP = 40
"""No fault acts before."""
Patch = pytest.MonkeyPatch


@define
class Injected:
    """A fault in a server."""

    step: int = 0
    acted: int | None = None
    """In which step it acted first."""

    def acts(self, always: bool = False) -> bool:
        """Whether the fault is to act now: once, or ``always`` from then on."""
        if self.step < START_STEP or (self.acted is not None and not always):
            return False
        self.acted = self.step if self.acted is None else self.acted
        return True


STALLED, SERVES, UNANSWERED = "stalled", "serves on", "one request is never answered"
Fault = Callable[[Patch, Injected], None]


def leak_on_abort(patch: Patch, fault: Injected) -> None:
    """A request that is aborted is forgotten with its blocks."""
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler._free_blocks

    def leaks(self: Any, request: Any) -> None:
        if request.status.name == "FINISHED_ABORTED" and _holds(self, request) and fault.acts():
            del self.requests[request.request_id]
        else:
            original(self, request)

    patch.setattr(Scheduler, "_free_blocks", leaks)


def one_block_leaks_on_abort(patch: Patch, fault: Injected) -> None:
    """Of a request that is aborted one block is not freed."""
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.sched.scheduler import Scheduler

    free_blocks, free = Scheduler._free_blocks, BlockPool.free_blocks
    aborted: list[Any] = []

    def frees(self: Any, request: Any) -> None:
        aborted[:] = [request] * (request.status.name == "FINISHED_ABORTED")
        free_blocks(self, request)
        aborted.clear()

    def leaks(self: Any, ordered_blocks: Iterable[Any]) -> None:
        blocks = list(ordered_blocks)
        leaked = bool(aborted) and any(not block.is_null for block in blocks) and fault.acts()
        free(self, blocks[1:] if leaked and not blocks[0].is_null else blocks[:-1] if leaked else blocks)

    patch.setattr(Scheduler, "_free_blocks", frees)
    patch.setattr(BlockPool, "free_blocks", leaks)


def _holds(scheduler: Any, request: Any) -> bool:
    tables = scheduler.kv_cache_manager.coordinator.get_blocks(request.request_id)
    return any(not block.is_null for blocks in tables for block in blocks)


def double_free(patch: Patch, fault: Injected) -> None:
    """A block is freed twice."""
    from vllm.v1.core.block_pool import BlockPool

    original = BlockPool.free_blocks

    def twice(self: Any, ordered_blocks: Iterable[Any]) -> None:
        blocks = list(ordered_blocks)
        original(self, blocks)
        again = [block for block in blocks if not block.is_null and block.ref_cnt > 0][:1]
        if again and fault.acts():
            original(self, again)

    patch.setattr(BlockPool, "free_blocks", twice)


def hit_one_block_short(patch: Patch, fault: Injected) -> None:
    """A look-up misses the last block of a hit."""
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager

    original = KVCacheManager.get_computed_blocks

    def short(self: Any, request: Any) -> Any:
        blocks, tokens = original(self, request)
        if tokens < 16 or not fault.acts():
            return blocks, tokens
        return KVCacheBlocks(tuple(group[:-1] for group in blocks.blocks)), tokens - 16

    patch.setattr(KVCacheManager, "get_computed_blocks", short)


def free_order_broken_in_the_middle(patch: Patch, fault: Injected) -> None:
    """Two blocks in the middle of what a request frees change places."""
    from vllm.v1.core.block_pool import BlockPool

    original = BlockPool.free_blocks

    def swapped(self: Any, ordered_blocks: Iterable[Any]) -> None:
        blocks = list(ordered_blocks)
        freed = [index for index, block in enumerate(blocks) if block.ref_cnt == 1 and not block.is_null]
        if len(freed) > 8 and fault.acts():
            one, other = freed[2], freed[3]
            blocks[one], blocks[other] = blocks[other], blocks[one]
        original(self, blocks)

    patch.setattr(BlockPool, "free_blocks", swapped)


def window_entry_kept(patch: Patch, fault: Injected) -> None:
    """A block that left the window is freed, and the table still names it."""
    from vllm.v1.core.single_type_kv_cache_manager import SlidingWindowManager

    original = SlidingWindowManager.remove_skipped_blocks

    def keeps(self: Any, request_id: str, total_computed_tokens: int) -> None:
        before = list(self.req_to_blocks[request_id])
        original(self, request_id, total_computed_tokens)
        after = self.req_to_blocks[request_id]
        left = [index for index, block in enumerate(before) if block is not after[index] and not block.ref_cnt]
        if left and fault.acts():
            after[left[0]] = before[left[0]]

    patch.setattr(SlidingWindowManager, "remove_skipped_blocks", keeps)


def lost_event(patch: Patch, fault: Injected) -> None:
    """A KV event is lost before it is published."""
    from vllm.v1.core.block_pool import BlockPool

    original = BlockPool.take_events

    def loses(self: Any) -> list[Any]:
        events = original(self)
        return events[1:] if events and fault.acts() else events

    patch.setattr(BlockPool, "take_events", loses)


def hang(patch: Patch, fault: Injected) -> None:
    """A request that arrives gets into no queue."""
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler._enqueue_waiting_request

    def drops(self: Any, request: Any) -> None:
        if not fault.acts():
            original(self, request)

    patch.setattr(Scheduler, "_enqueue_waiting_request", drops)


def wrong_table_to_the_worker(patch: Patch, fault: Injected) -> None:
    """The worker is sent another block than the request was given."""
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler.schedule

    def wrong(self: Any) -> Any:
        output = original(self)
        for index, blocks in enumerate(output.scheduled_cached_reqs.new_block_ids):
            if blocks is not None and any(blocks) and fault.acts():
                output.scheduled_cached_reqs.new_block_ids[index] = tuple([1 for _ in group] for group in blocks)
        return output

    patch.setattr(Scheduler, "schedule", wrong)


def rows_swapped(patch: Patch, fault: Injected) -> None:
    """Two requests of a step are sent each other's blocks."""
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler.schedule

    def swaps(self: Any) -> Any:
        output = original(self)
        rows = output.scheduled_cached_reqs.new_block_ids
        gains = [index for index, blocks in enumerate(rows) if blocks is not None and any(blocks)]
        if len(gains) > 1 and fault.acts():
            rows[gains[0]], rows[gains[1]] = rows[gains[1]], rows[gains[0]]
        return output

    patch.setattr(Scheduler, "schedule", swaps)


def assertion_in_the_manager(patch: Patch, fault: Injected) -> None:
    """The block manager raises where it should answer."""
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    original = KVCacheManager.allocate_slots

    def raises(self: Any, *arguments: Any, **named: Any) -> Any:
        assert not fault.acts(), "injected"
        return original(self, *arguments, **named)

    patch.setattr(KVCacheManager, "allocate_slots", raises)


FAULTS: dict[Fault, str] = {
    leak_on_abort: "KV-LEAK-01",
    one_block_leaks_on_abort: "KV-OP-07",
    double_free: "KV-OP-07",
    hit_one_block_short: "KV-OP-01",
    free_order_broken_in_the_middle: "KV-OP-07",
    window_entry_kept: "KV-OP-06",
    lost_event: "KV-OP-12",
    hang: STALLED,
    wrong_table_to_the_worker: "KV-SYS-03",
    rows_swapped: "KV-SYS-03",
    assertion_in_the_manager: "KV-SYS-01",
}
"""Each fault, and what it violates."""


@frozen
class Row:
    """A fault, and what a shadow reported."""

    fault: str
    detected: str
    """By which guarantee; nothing if it was not."""
    delay_steps: int | None
    delay_seconds: float
    server: str
    said: str


def observe(patch: Patch, fault: Fault | None, seed: int = 1) -> Row:
    """Serve with a shadow, a fault acting once, until it is detected or ``STEPS`` are over."""
    server = Server("swa" if fault is window_entry_kept else "full", blocks=100, seed=seed)
    injected = Injected()
    if fault is not None:
        fault(patch, injected)
    sink = watched(server, checkpoint_calls=10**9)
    clock = [0.0]
    stalls = StallWatch(server.scheduler, number_in, lambda: injected.step, lambda: False)
    stalls.now = lambda: clock[0]
    fate, hung = SERVES, list[Any]()
    for step in range(1, START_STEP + STEPS + 1):
        clock[0] = step / 10
        try:
            if injected.acted is None and fault in (leak_on_abort, one_block_leaks_on_abort) and step > START_STEP:
                _abort_one(server.scheduler)
            server._clients()
            # The clients act after the step before.
            injected.step = step
            server.step()
        except AssertionError as error:
            fate = f"ended by its own {type(error).__name__}"
        hung = hung or stalls.look()
        if sink.found or hung or fate != SERVES:
            break
    first = sink.found[:1]
    if first or hung:
        assert injected.acted is not None, "a false alarm: the fault has not acted"
    if fate == SERVES:
        fate = _fate(server)
    if fate == SERVES and any(_is_unanswered(server, stall.number) for stall in hung):
        fate = UNANSWERED
    name = fault.__name__.replace("_", " ") if fault is not None else "none"
    if hung:
        return Row(name, STALLED, None, clock[0] - (injected.acted or 0) / 10, fate, hung[0].why)
    if not first:
        return Row(name, "", None, 0.0, fate, "")
    (found,) = first
    said = f"{found.difference.subject}: expected {found.difference.expected}, got {found.difference.got}"
    delay = found.step - (injected.acted or 0)
    assert delay >= 0, "a false alarm: before the fault has acted"
    return Row(name, found.difference.statement, delay, 0.0, fate, said)


def _fate(server: Server) -> str:
    """The state of the server after a fault was detected."""
    for step in range(STEPS):
        try:
            server.serve(1)
        except (AssertionError, ValueError, LookupError, AttributeError) as error:
            return f"ends after {step} more steps: {type(error).__name__}"
    return SERVES


def _is_unanswered(server: Server, number: int) -> bool:
    """Whether a request is there, and its client has no token."""
    requests = server.scheduler.requests.items()
    return any(number_in(name) == number and not request.num_output_tokens for name, request in requests)


def _abort_one(scheduler: Any) -> None:
    """A client disconnects. The scheduler's own call is used, so that its wrappers are called, too."""
    from vllm.v1.request import RequestStatus

    for request in (scheduler.running or list(scheduler.requests.values()))[:1]:
        scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)


def table() -> list[Row]:
    """All faults, and a run without one."""
    rows = []
    for fault in (None, *FAULTS):
        with pytest.MonkeyPatch.context() as patch:
            rows.append(observe(patch, fault))
    return rows


def main() -> None:
    """Print the table."""
    print("| fault | detected by | delay | the server | said |\n|---|---|---|---|---|")
    for row in table():
        delay = "" if row.delay_steps is None else f"{row.delay_steps} steps"
        delay = f"{row.delay_seconds:.1f} s" if row.detected == STALLED else delay
        print(f"| {row.fault} | {row.detected or 'not detected'} | {delay} | {row.server} | {row.said[:90]} |")


if __name__ == "__main__":
    main()
