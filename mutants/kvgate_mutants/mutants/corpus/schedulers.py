"""Reported defects of schedulers, put back into vLLM 0.20.2's; and repairs of what it has."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks

_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"


@breaks(f"{_SCHEDULER}.__init__", violates="KV-SYS-02")
def smallest_block_is_the_unit(original: Any, self: Any, *arguments: Any, **named: Any) -> None:
    """The size of a block is the smallest one of any group, as the engine's core sets it once the groups are known."""
    original(self, *arguments, **named)
    groups = self.kv_cache_config.kv_cache_groups
    self.cache_config.block_size = min(group.kv_cache_spec.block_size for group in groups)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-LIVE-03")
def set_aside_counts_as_running(original: Any, self: Any, *arguments: Any) -> Any:
    """Requests that are set aside count towards the most that may run."""
    before = self.max_num_running_reqs
    self.max_num_running_reqs = max(len(self.running), before - len(self.skipped_waiting))
    try:
        return original(self, *arguments)
    finally:
        self.max_num_running_reqs = before


@breaks(f"{_SCHEDULER}._mamba_block_aligned_split", violates="KV-LIVE-03")
def ten_tokens_a_step(original: Any, self: Any, request: Any, num_new_tokens: int, *more: int) -> Any:
    """A chunk of a prompt has ten tokens at most, as where the next item does not fit the encoder's cache."""
    return original(self, request, min(num_new_tokens, 10), *more)


# Repairs


@breaks("vllm.v1.core.kv_cache_manager:KVCacheManager.allocate_slots", violates="KV-LIVE-03")
def loads_leave_room_for_a_step(original: Any, self: Any, request: Any, *arguments: Any, **named: Any) -> Any:
    """A repair: a load is let in only beside one speculative step of everybody who holds blocks, and of its own."""
    managers = self.coordinator.single_type_managers
    holders = {name for each in managers for name, blocks in each.req_to_blocks.items() if blocks}
    if named.get("delay_cache_blocks") and holders:
        loaded = sum(-(-request.num_tokens // each.block_size) for each in managers)
        if loaded + len(managers) * (len(holders) + 1) > self.block_pool.get_num_free_blocks():
            return None
    return original(self, request, *arguments, **named)
