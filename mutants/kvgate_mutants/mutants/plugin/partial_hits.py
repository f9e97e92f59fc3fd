"""Mutants of partial hits: how far one reaches, what it holds, and how its copies reach the workers."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks, vllms_own
from kvgate_mutants.mutants.plugin import checks as checks

# Mutants of partial hits: what is found inside blocks, what is copied, and who holds it meanwhile.

_COORDINATOR = "vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator"
_LOOKUP = "vllm.v1.core.kv_cache_coordinator:HybridKVCacheCoordinator.find_longest_cache_hit"
_HITS = "swa_retention.partial.hits"
_BOUNDARIES = "swa_retention.partial.boundaries:Boundaries"

_PLAIN = "compressed+partial"
_DRAFTING = "compressed+eagle+partial"
_MASKED = "compressed+mtp+partial+masked+scratch"
_LOADING = "compressed+partial+transfers"
_PINNED = "compressed+partial+pinned=1"
_WORTHWHILE = "compressed+eagle+partial+min=48"


@breaks(_LOOKUP, violates="KV-OP-01", models=(_PLAIN,))
def hits_end_where_blocks_end(original: Any, *arguments: Any, **named: Any) -> Any:
    """No hit ends inside a block."""
    return vllms_own(original)(*arguments, **named)


@breaks(f"{_COORDINATOR}.allocate_new_computed_blocks", violates="KV-OP-19", models=(_PLAIN,))
def sources_forgotten(original: Any, *arguments: Any, **named: Any) -> Any:
    """A request is admitted without the sources of its copies."""
    return vllms_own(original)(*arguments, **named)


@breaks(f"{_COORDINATOR}.allocate_new_blocks", violates="KV-OP-19", models=(_PLAIN,))
def copies_not_ordered(original: Any, *arguments: Any, **named: Any) -> Any:
    """A request has its blocks, and nothing is copied into them."""
    return vllms_own(original)(*arguments, **named)


@breaks(f"{_COORDINATOR}.cache_blocks", violates="KV-OP-18", models=(_PLAIN,))
def boundaries_not_registered(original: Any, *arguments: Any, **named: Any) -> Any:
    """What is computed is known at the ends of blocks only."""
    return vllms_own(original)(*arguments, **named)


@breaks("vllm.v1.core.kv_cache_manager:KVCacheManager.cache_blocks", violates="KV-OP-04", models=(_LOADING,))
def loaded_is_fenced(original: Any, *arguments: Any, **named: Any) -> Any:
    """What was loaded cannot be copied before the step is dispatched."""
    return vllms_own(original)(*arguments, **named)


@breaks(f"{_COORDINATOR}.free", violates="KV-LEAK-01", models=(_PLAIN,))
def cursor_left_behind(original: Any, *arguments: Any, **named: Any) -> Any:
    """How far the boundaries of a request were registered is never forgotten."""
    return vllms_own(original)(*arguments, **named)


@breaks(
    "swa_retention.patches.partial_hits:update_request_as_session",
    shown_by=checks.a_session_keeps_its_new_boundary,
)
def boundary_of_the_first_part(_original: Any, vllms: Any) -> Any:
    """The next part of a session does not move the boundary that a request waits for."""
    return vllms


@breaks(
    "vllm.v1.core.single_type_kv_cache_manager:FullAttentionManager.get_num_common_prefix_blocks",
    violates="KV-OP-14",
    models=(_PLAIN,),
    needs=("common-prefix",),
)
def copies_count_as_holders(original: Any, *arguments: Any, **named: Any) -> Any:
    """A block is common if requests and pending copies hold it as often as there are requests."""
    return vllms_own(original)(*arguments, **named)


@breaks("vllm.v1.core.block_pool:BlockPool.get_new_blocks", violates="KV-OP-18", models=(_PLAIN,))
def handed_out_with_entries(original: Any, *arguments: Any, **named: Any) -> Any:
    """An allocated block keeps the entries inside it."""
    return vllms_own(original)(*arguments, **named)


@breaks("vllm.v1.core.block_pool:BlockPool.reset_prefix_cache", violates="KV-OP-18", models=(_PLAIN,), needs=("reset",))
def entries_outlive_a_reset(original: Any, *arguments: Any, **named: Any) -> Any:
    """A reset leaves the entries inside blocks."""
    return vllms_own(original)(*arguments, **named)


@breaks(f"{_BOUNDARIES}.find", violates="KV-OP-01", models=(_DRAFTING,))
def no_entry_is_found(_original: Any, _self: Any, _key: bytes) -> None:
    """Nothing is known inside blocks."""


@breaks(f"{_HITS}:key_of", violates="KV-OP-04", models=(_PLAIN,))
def key_of_the_place(_original: Any, _hashes: Any, end_tokens: int, _grain: int, group: int) -> bytes:
    """The key of a boundary says where it is, and not what is before it."""
    return end_tokens.to_bytes(8, "big") + group.to_bytes(4, "big")


@breaks(f"{_HITS}:key_of", violates="KV-OP-19", models=(_PLAIN,))
def key_of_all_groups(_original: Any, hashes: Any, end_tokens: int, grain: int, _group: int) -> Any:
    """The key of a boundary is the same in every group."""
    return hashes[end_tokens // grain - 1]


@breaks("swa_retention.partial.groups:Group.tokens_matched", violates="KV-OP-18", models=(_DRAFTING,))
def look_ahead_unmatched(_original: Any, _self: Any, hit_tokens: int) -> int:
    """What a draft layer reads after a partial hit need not match."""
    return hit_tokens


@breaks("swa_retention.partial.lookup:Window.at_most", violates="KV-OP-01", models=(_PLAIN,))
def window_serves_as_others_do(_original: Any, self: Any, hit_tokens: int) -> int:
    """A window serves wherever the other groups do."""
    first, end = self.group.blocks_needed(hit_tokens)
    self.found = {index: self.cached(index) or self.null for index in range(first, end)}
    return hit_tokens


@breaks("swa_retention.partial.lookup:Worthwhile.at_most", violates="KV-OP-01", models=(_WORTHWHILE,))
def shortest_hit_ignored(_original: Any, _self: Any, hit_tokens: int) -> int:
    """Hits that are too short to be worth a copy are copied."""
    return hit_tokens


@breaks("swa_retention.patches.pinning:sources_of", violates="KV-SYS-01", models=(_PLAIN,))
def sources_not_counted(_original: Any, _hit: Any) -> Any:
    """A gate does not count the sources that it lets a request hold."""
    return iter(())


@breaks(f"{_HITS}:PartialHits.is_fenced", violates="KV-OP-04", models=(_PLAIN,))
def never_fenced(_original: Any, *_all: Any) -> bool:
    """What a step is yet to compute is copied in the same step."""
    return False


@breaks(f"{_HITS}:PartialHits.dispatch", violates="KV-OP-03", models=(_PLAIN,))
def fenced_for_ever(original: Any, self: Any) -> Any:
    """What was computed in a step that went to the worker cannot be copied either."""
    fenced = self.pending.fenced
    copies = original(self)
    self.pending.fenced = fenced
    return copies


@breaks(f"{_HITS}:PartialHits.register", violates="KV-OP-18", models=(_PLAIN,))
def nothing_registered(_original: Any, *_all: Any) -> None:
    """No boundary becomes an entry."""


@breaks(f"{_HITS}:PartialHits.register", violates="KV-OP-04", models=(_PLAIN,))
def all_counts_as_loaded(original: Any, self: Any, *arguments: Any) -> None:
    """What is yet to be computed counts as loaded."""
    arrived, self.arrived = self.arrived, True
    original(self, *arguments)
    self.arrived = arrived


@breaks(f"{_HITS}:PartialHits.enter", violates="KV-OP-18", models=(_PLAIN,))
def offered_again(original: Any, self: Any, request_id: str, *arguments: Any) -> None:
    """The boundaries that a hit covers are registered again."""
    original(self, request_id, *arguments)
    self.cursors[request_id].offered_tokens = [0] * len(self.copying)


@breaks(f"{_HITS}:PartialHits.entered", violates="KV-OP-19", models=(_PLAIN,))
def held_and_not_copied(_original: Any, self: Any, request_id: str, _tables: Any) -> None:
    """The sources are held, and no copy is ordered."""
    sources, _ = self.entering.pop(request_id, ((), 0))
    self.pending.sources += [source.block for source in sources]


@breaks("swa_retention.patches.free_queue:scratch_and_rest", violates="KV-OP-17", models=(_MASKED,))
def entries_are_scratch(original: Any, _pool: Any, blocks: Any) -> Any:
    """A block in which nothing but boundaries is known is used again first."""
    return original(None, blocks)


@breaks("swa_retention.pinned_tier:is_scratch", violates="KV-OP-21", models=(_PINNED,))
def entries_are_not_pinned(original: Any, _pool: Any, block: Any) -> Any:
    """A block in which nothing but boundaries is known is not pinned."""
    return original(None, block)


# Mutants of the copies' way: from the scheduler, through the step's output, to the workers.

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


@breaks(f"{_DISPATCH}:started", shown_by=checks.workers_that_copy_nothing_are_rejected)
def any_worker_will_do(_original: Any, engines_own: Any) -> Any:
    """A worker that does no copies is taken."""
    return engines_own


@breaks("swa_retention.partial.hits:_last_holds", shown_by=checks.sources_are_let_go_of_once)
def source_released_twice(_original: Any, sources: Any) -> Any:
    """A block that several copies read is given to vLLM's pool once for each."""
    yield from sources


@breaks("vllm.v1.core.kv_cache_utils:generate_scheduler_kv_cache_config", shown_by=checks.the_scheduler_gets_all_ratios)
def one_ratio_told(original: Any, *arguments: Any) -> Any:
    """Of layers with several compress ratios the scheduler gets one."""
    return vllms_own(original)(*arguments)
