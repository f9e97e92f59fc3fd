"""Mutants of two nodes: of what their schedulers send to a connector, and of the connector between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve

from kvgate_mutants.mutants.mutant import breaks

# Mutants of what vLLM's scheduler passes to a connector: which blocks it is to read, and which to write. On one engine
# nothing is transferred, so a connector with the wrong blocks reads and writes nothing, and no mutant shows. All other
# faults of a scheduler with a connector are injected into one engine (``mutants/scheduler``).

_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"


@breaks(f"{_SCHEDULER}._connector_finished", violates="KV-OP-25")
def told_to_read_in_another_order(original: Any, self: Any, request: Any) -> Any:
    """The connector of the prefill node gets a request's blocks last block first."""
    reported = self.connector.request_finished_all_groups
    self.connector.request_finished_all_groups = lambda ended, blocks: reported(ended, tuple(b[::-1] for b in blocks))
    try:
        return original(self, request)
    finally:
        del self.connector.request_finished_all_groups


@breaks(f"{_SCHEDULER}._connector_finished", violates="KV-OP-25")
def told_of_nothing_to_read(original: Any, self: Any, request: Any) -> Any:
    """The connector of the prefill node gets a request whose blocks are already freed."""
    self.kv_cache_manager.coordinator.free(request.request_id)
    return original(self, request)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-MEM-01")
def told_to_write_in_another_order(original: Any, self: Any) -> Any:
    """The connector of the decode node gets the order to write a request's blocks last block first."""
    return _telling(original, self, lambda blocks: blocks[::-1])


@breaks(f"{_SCHEDULER}.schedule", violates="KV-MEM-01")
def told_to_write_a_block_too_few(original: Any, self: Any) -> Any:
    """The connector of the decode node does not get the last block that it is to write."""
    return _telling(original, self, lambda blocks: blocks[:-1])


def _telling(original: Any, scheduler: Any, change: Callable[[Any], Any]) -> Any:
    """A step that passes other blocks to the connector."""
    reported = scheduler.connector.update_state_after_alloc
    scheduler.connector.update_state_after_alloc = lambda request, given, tokens: reported(
        request, type(given)(tuple(change(list(blocks)) for blocks in given.blocks)), tokens
    )
    try:
        return original(scheduler)
    finally:
        del scheduler.connector.update_state_after_alloc


# Mutants of the handover: connectors that forget a request, or report the end of a read too early.

_HANDOVERS = "kvgate.levels.pair.handover:Handovers"


@breaks(f"{_HANDOVERS}.abandoned", violates="KV-LEAK-01")
def abandoned_before_the_read_is_forgotten(_original: Any, *_arguments: Any) -> None:
    """The prefill node never hears of a client that aborted before the decode node began to read."""


@breaks(f"{_HANDOVERS}.acknowledgement_named", violates="KV-OP-25")
def acknowledged_before_it_is_read(original: Any, self: Any, number: int) -> Any:
    """The prefill node gets the message that its blocks are no longer needed when they are asked for, and not when they
    are read."""
    return original(self, number) or self.read_named(number)


@breaks(f"{_HANDOVERS}.prefilled", violates="KV-OP-25")
def read_from_whoever_was_prefilled_before(original: Any, self: Any, number: int, tables: Any) -> None:
    """The decode node is sent to the blocks of the request that was prefilled before."""
    last = next((each.tables for each in reversed(tuple(self)) if len(each.tables) == len(tables)), tables)
    original(self, number, last)


@breaks(f"{_HANDOVERS}.was_read", violates="KV-LEAK-01")
def failed_reads_are_not_acknowledged(original: Any, self: Any, handover: Any, succeeded: bool) -> None:
    """The prefill node gets no message of reads that failed."""
    original(self, handover, succeeded)
    if not succeeded:
        self.acknowledged(handover)


@breaks(f"{_HANDOVERS}.of_decode", violates="KV-MEM-01")
def blocks_are_read_in_reverse(original: Any, self: Any, there: int) -> Any:
    """The decode node reads a request's blocks last block first."""
    handover = original(self, there)
    return handover and evolve(handover, tables=tuple(blocks[::-1] for blocks in handover.tables))
