"""Mutants of the handover: connectors that forget somebody, or say too early that nobody reads any more."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks

_HANDOVERS = "kvgate.levels.pair.handover:Handovers"


@breaks(f"{_HANDOVERS}.abandoned", violates="KV-LEAK-01")
def abandoned_before_the_read_is_forgotten(_original: Any, *_arguments: Any) -> None:
    """Nobody tells the prefill node of a client that gave up before the decode node began to read."""


@breaks(f"{_HANDOVERS}.acknowledgement_named", violates="KV-OP-25")
def acknowledged_before_it_is_read(original: Any, self: Any, number: int) -> Any:
    """The prefill node is told that nobody needs its blocks when they are asked for, and not when they are read."""
    return original(self, number) or self.read_named(number)


@breaks(f"{_HANDOVERS}.prefilled", violates="KV-OP-25")
def read_from_whoever_was_prefilled_before(original: Any, self: Any, number: int, tables: Any) -> None:
    """The decode node is sent to the blocks of the request that was prefilled before."""
    last = next((each.tables for each in reversed(tuple(self)) if len(each.tables) == len(tables)), tables)
    original(self, number, last)


@breaks(f"{_HANDOVERS}.was_read", violates="KV-LEAK-01")
def failed_reads_are_not_acknowledged(original: Any, self: Any, handover: Any, succeeded: bool) -> None:
    """The prefill node is not told of reads that failed."""
    original(self, handover, succeeded)
    if not succeeded:
        self.acknowledged(handover)
