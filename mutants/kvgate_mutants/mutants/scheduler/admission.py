"""Mutants of admission: what is asked of the block manager for somebody who is let in."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks
from kvgate_mutants.mutants.scheduler.edited import Put, call

_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"

_HIT_IS_COMPUTED_AGAIN = Put(
    "num_new_tokens = request.num_tokens - num_computed", "num_new_tokens = request.num_tokens"
)
_HIT_COUNTS_ONE_LESS = Put(
    "request.num_computed_tokens = num_computed_tokens",
    "request.num_computed_tokens = max(0, num_computed_tokens - 1)",
    which=1,
)
_HIT_IS_NOT_TOUCHED = Put(
    "new_computed_blocks, num_new_local",
    "new_computed_blocks = self.kv_cache_manager.empty_kv_cache_blocks; "
    "num_new_local_computed_tokens = self.kv_cache_manager.get_computed_blocks(request)[1]",
)
_DRAFTS_IN_THE_FIRST_CHUNK = Put(
    "effective_lookahead_tokens =", "effective_lookahead_tokens = self.num_lookahead_tokens"
)


@breaks(f"{_SCHEDULER}.__init__", violates="KV-OP-03")
def gate_is_not_asked(original: Any, self: Any, *arguments: Any, **named: Any) -> None:
    """Nobody asks whether a whole request fits before its first chunk is let in."""
    original(self, *arguments, **named)
    self.scheduler_reserve_full_isl = False


@breaks(f"{_SCHEDULER}.__init__", violates="KV-OP-05", needs=("drafts", "eagle"))
def no_slots_for_drafts(original: Any, self: Any, *arguments: Any, **named: Any) -> None:
    """Nobody asks for the slots that draft layers write ahead."""
    original(self, *arguments, **named)
    self.num_lookahead_tokens = 0


@breaks(f"{_SCHEDULER}.schedule", violates="KV-OP-05", needs=("drafts", "eagle"))
def drafts_in_the_first_chunk(original: Any, *arguments: Any) -> Any:
    """A first chunk asks for slots ahead, though nothing is drafted yet."""
    return call(original, _DRAFTS_IN_THE_FIRST_CHUNK, *arguments)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-03")
def hit_counts_one_less(original: Any, *arguments: Any) -> Any:
    """Of a hit one token less counts as computed."""
    return call(original, _HIT_COUNTS_ONE_LESS, *arguments)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-OP-05")
def hit_is_computed_again(original: Any, *arguments: Any) -> Any:
    """Behind a hit as many tokens are asked for as if there were none."""
    return call(original, _HIT_IS_COMPUTED_AGAIN, *arguments)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-OP-05")
def hit_is_not_held(original: Any, *arguments: Any) -> Any:
    """The tokens of a hit count as computed, and its blocks are not passed on."""
    return call(original, _HIT_IS_NOT_TOUCHED, *arguments)
