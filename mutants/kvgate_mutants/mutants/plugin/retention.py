"""Mutants of retention: which blocks are cached, when, and which free blocks are reused first."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvgate_mutants.mutants.mutant import breaks, vllms_own
from kvgate_mutants.mutants.plugin import checks

# Mutants of what is reachable: which blocks of which groups are cached, and when.

_REACH = "swa_retention.reachable:Reach"
_ATTACH = "swa_retention.patches.attach"
_CONFIGURATION = "swa_retention.config:Configuration"

_MASKED = "mixed-blocks+mtp+masked+scratch"
_SPARSE = "mixed-blocks+retention=128+scratch"
"""An interval of twice the window: half of its blocks serve no hit."""
_EAGLE = "mixed-blocks+eagle+retention=64+scratch"
_REPLAY = "gpt-oss-hybrid+retention+scratch"


@breaks(
    "vllm.v1.core.kv_cache_manager:KVCacheManager.__init__",
    violates="KV-OP-15",
    models=("mixed-blocks+masked+scratch",),
)
def not_attached(original: Any, *arguments: Any, **named: Any) -> Any:
    """No block manager knows what is reachable in its groups."""
    return vllms_own(original)(*arguments, **named)


@breaks(f"{_REACH}.due", violates="KV-OP-15", models=(_MASKED,))
def due_a_token_too_soon(original: Any, self: Any, start: int, tokens: int, *boundaries: int) -> Any:
    """A block is cached a token before the boundary from which it is read."""
    full = tokens // self.block_size_tokens
    spans, behind = original(self, start, tokens + 1, *boundaries)
    return [(first, min(end, full)) for first, end in spans if first < full], min(behind, full)


@breaks(f"{_REACH}._end", violates="KV-OP-15", models=(_MASKED,))
def mask_without_look_ahead(_original: Any, self: Any, boundary_tokens: int) -> int:
    """The block after a boundary, which a draft layer must match, is not cached."""
    return boundary_tokens // int(self.block_size_tokens)


@breaks(f"{_REACH}._first", violates="KV-OP-15", models=(_SPARSE,))
def all_blocks_are_read(_original: Any, _self: Any, _boundary_tokens: int) -> int:
    """Every boundary is said to read every block before it."""
    return 0


@breaks(f"{_REACH}._pending", violates="KV-OP-15", models=(_MASKED,))
def nothing_is_pending(_original: Any, _self: Any, _settled: int, full: int, *_more: Any) -> int:
    """A block that is full before it is due is passed over for good."""
    return full


@breaks(f"{_REACH}._at_intervals", violates="KV-OP-15", models=(_SPARSE,))
def last_boundary_alone(original: Any, self: Any, start: int, settled: int, reached_tokens: int) -> Any:
    """Of several boundaries that one chunk reaches the last is kept."""
    return original(self, start, settled, reached_tokens)[-1:]


@breaks("swa_retention.reachable:_merged", violates="KV-SYS-01", models=(_SPARSE,))
def offered_twice(_original: Any, spans: Any) -> Any:
    """A block that two boundaries read is offered to the cache by each."""
    return sorted(span for span in spans if span[0] < span[1])


@breaks(f"{_ATTACH}:replay_boundary_tokens", violates="KV-OP-15", models=(_REPLAY,))
def no_replay_boundary(_original: Any, *_tokens: int, **_more: int) -> int:
    """Nothing is kept for a replay of the same prompt."""
    return 0


@breaks(f"{_ATTACH}:replay_boundary_tokens", violates="KV-OP-15", models=(_EAGLE,))
def replay_boundary_without_look_ahead(
    original: Any, prompt_tokens: int, alignment_tokens: int, lookahead_tokens: int
) -> Any:
    """The boundary that is kept for a replay leaves no room for the look-ahead block."""
    return original(prompt_tokens, alignment_tokens, 0 * lookahead_tokens)


@breaks(f"{_ATTACH}:replay_boundary_tokens", violates="KV-OP-15", models=(_REPLAY,))
def replay_of_the_last_token(original: Any, prompt_tokens: int, *more: int, **named: int) -> Any:
    """A replay is thought to hit its whole prompt, though its last token is always computed."""
    return original(prompt_tokens + 1, *more, **named)


@breaks(f"{_ATTACH}:lookahead_groups", violates="KV-OP-15", models=(_MASKED,))
def no_group_looks_ahead(_original: Any, _coordinator: Any) -> set[int]:
    """No group is known to have a draft layer."""
    return set()


@breaks(f"{_ATTACH}:alignment_tokens", violates="KV-SYS-01", models=("mixed-blocks+masked+scratch",))
def alignment_of_the_last_group(_original: Any, coordinator: Any) -> Any:
    """Hits are thought to end at every block of the last group."""
    return coordinator.single_type_managers[-1].block_size


@breaks(f"{_ATTACH}:_attach_retention", violates="KV-OP-15", models=("mixed-blocks+retention=64+scratch",))
def full_attention_kept_like_windows(original: Any, coordinator: Any, configuration: Any) -> Any:
    """Full attention, which any hit reads whole, is cached at the interval alone."""
    from swa_retention.reachable import Reach

    attached = original(coordinator, configuration)
    for manager in coordinator.single_type_managers:
        if configuration.retention_interval_tokens and not hasattr(manager, "reach"):
            settings = (manager.block_size, manager.get_num_skipped_tokens, 0, configuration.retention_interval_tokens)
            manager.reach, manager.replay_boundary_tokens = Reach(*settings), lambda _request: 0
    return attached


@breaks(f"{_ATTACH}:attach", violates="KV-OP-17", models=("mixed-blocks+masked+scratch",))
def scratch_not_first(original: Any, coordinator: Any, configuration: Any, tokens_max: int) -> None:
    """The switch that puts scratch first has no effect."""
    original(coordinator, evolve(configuration, scratch_first=False), tokens_max)


@breaks(f"{_ATTACH}:attach", violates="KV-OP-07", models=("mixed-blocks+masked", "mixed-blocks+retention=64"))
def scratch_first_with_masked_caching(original: Any, coordinator: Any, configuration: Any, tokens_max: int) -> None:
    """Masked caching and retention put scratch first although that is switched off."""
    original(coordinator, configuration, tokens_max)
    coordinator.block_pool.scratch_first = configuration.retains


@breaks(f"{_ATTACH}:attach", violates="KV-OP-15", models=("gpt-oss-hybrid+scratch", "mixed-blocks+scratch"))
def masked_with_scratch_first(original: Any, coordinator: Any, configuration: Any, tokens_max: int) -> None:
    """Scratch first leaves out blocks that no hit can read, although masked caching is switched off."""
    original(coordinator, evolve(configuration, masked=True), tokens_max)


@breaks("swa_retention.partial.lookup:Window.at_most", violates="KV-OP-01", models=(_SPARSE,))
def look_up_leaves_windows_out(_original: Any, self: Any, hit_tokens: int) -> int:
    """A hit is as long as full attention has blocks, even if windows lack some."""
    first, end = self.group.blocks_needed(hit_tokens)
    self.found = {index: self.cached(index) or self.null for index in range(first, end)}
    return hit_tokens


@breaks("swa_retention.partial.lookup:LookUp.find", violates="KV-OP-01", models=(_SPARSE,))
def hits_of_whole_prompts(original: Any, self: Any, hashes: Any, tokens_max: int) -> Any:
    """A prompt of which all is cached is hit as a whole: nothing of it is computed."""
    return original(self, hashes, tokens_max + 1)


@breaks(f"{_ATTACH}:_finds_as_vllm", violates="KV-OP-01", models=("gpt-oss-hybrid+eagle+retention=256+scratch",))
def drafts_looked_up_as_others(_original: Any, coordinator: Any) -> bool:
    """Where layers draft, the look-up does not ask for the block that they read after a hit."""
    return hasattr(coordinator, "attention_groups")


@breaks(f"{_CONFIGURATION}.interval_tokens", violates="KV-OP-15", models=("mixed-blocks+masked+scratch",))
def masked_at_half_the_alignment(original: Any, self: Any, alignment_tokens: int) -> Any:
    """Masked caching takes half the alignment for the boundaries of hits."""
    return alignment_tokens // 2 if self.masked else original(self, alignment_tokens)


@breaks(f"{_CONFIGURATION}.interval_tokens", shown_by=checks.auto_is_rounded_up)
def auto_is_not_rounded(original: Any, self: Any, alignment_tokens: int) -> Any:
    """The interval of auto must be a multiple of the alignment, as one that was given."""
    return original(evolve(self, interval_is_auto=False), alignment_tokens)


@breaks(f"{_CONFIGURATION}.interval_tokens", shown_by=checks.auto_is_rounded_up)
def auto_is_rounded_down(original: Any, self: Any, alignment_tokens: int) -> Any:
    """The interval of auto is rounded down: 0 where the alignment is longer."""
    interval = original(self, alignment_tokens)
    return interval - alignment_tokens if self.interval_is_auto else interval


# Mutants of masked caching: what is passed over, looked at again, and reported.

_CACHE = "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager.cache_blocks"
_STATES = "compressed+masked+scratch"
"""Windows of two blocks of four tokens: what drafts fill leaves them at once."""


@breaks(_CACHE, violates="KV-OP-15", models=(_SPARSE,))
def everything_is_cached(original: Any, *arguments: Any, **named: Any) -> Any:
    """Every full block is cached, as by vLLM itself."""
    return vllms_own(original)(*arguments, **named)


@breaks(_CACHE, violates="KV-OP-15", models=(_SPARSE,))
def cached_a_token_late(original: Any, self: Any, request: Any, num_tokens: int) -> None:
    """A boundary is taken for reached when the token after it is."""
    original(self, request, num_tokens - 1 if hasattr(self, "reach") else num_tokens)


@breaks(_CACHE, violates="KV-OP-15", models=(_MASKED,))
def what_is_not_due_is_forgotten(original: Any, self: Any, request: Any, num_tokens: int) -> None:
    """A block that is full before it is due is never looked at again."""
    original(self, request, num_tokens)
    if hasattr(self, "reach"):
        self.num_cached_block[request.request_id] = num_tokens // self.block_size


@breaks(_CACHE, violates="KV-OP-15", models=("full", _SPARSE))
def nothing_is_cached(_original: Any, self: Any, request: Any, num_tokens: int) -> None:
    """Nothing is cached, whether retention is on or not."""
    self.num_cached_block[request.request_id] = num_tokens // self.block_size


@breaks("swa_retention.patches.caching:_runs", violates="KV-OP-12", models=(_STATES,), needs=("drafts", "events"))
def released_blocks_told(_original: Any, _blocks: Any, positions: Any) -> Any:
    """An event names the tokens of blocks that were released before they were due."""
    return [(positions[0], positions[-1] + 1)]


@breaks(_CACHE, violates="KV-OP-12", models=(_SPARSE,), needs=("events",))
def cached_and_not_told(original: Any, self: Any, *arguments: Any) -> None:
    """No event reports a block that is cached."""
    pool = self.block_pool
    reported, pool.enable_kv_cache_events = pool.enable_kv_cache_events, False
    original(self, *arguments)
    pool.enable_kv_cache_events = reported


@breaks("swa_retention.patches.caching:Beginning.__init__", violates="KV-SYS-01", models=(_SPARSE,))
def one_hash_too_few(original: Any, self: Any, request: Any, hashes: int) -> None:
    """The last hash of a run is not known."""
    original(self, request, hashes - 1)


# Mutants of the plug-in's free queue: scratch first.

_QUEUE = "vllm.v1.core.kv_cache_utils:FreeKVCacheBlockQueue"
_POOL = "vllm.v1.core.block_pool:BlockPool"
_MASKED_FREE_QUEUE = "mixed-blocks+masked+scratch"


@breaks(f"{_POOL}.free_blocks", violates="KV-OP-17", models=(_MASKED_FREE_QUEUE,))
def scratch_is_queued_last(original: Any, *arguments: Any, **named: Any) -> Any:
    """Scratch goes to the back of the queue, as in vLLM itself."""
    return vllms_own(original)(*arguments, **named)


@breaks(f"{_POOL}.evict_blocks", violates="KV-INV-08", models=(_MASKED_FREE_QUEUE,), needs=("evict",))
def evicted_stays_where_it_is(original: Any, *arguments: Any, **named: Any) -> Any:
    """A free block whose content is forgotten stays where it is."""
    return vllms_own(original)(*arguments, **named)


@breaks(f"{_QUEUE}.prepend_n", violates="KV-OP-17", models=(_MASKED_FREE_QUEUE,))
def prepended_backwards(original: Any, self: Any, blocks: Any) -> None:
    """Of blocks that are prepended together the last is allocated first."""
    original(self, blocks[::-1])


@breaks(f"{_QUEUE}.prepend_n", violates="KV-INV-03", models=(_MASKED_FREE_QUEUE,))
def prepended_not_counted(original: Any, self: Any, blocks: Any) -> None:
    """Blocks at the front are not counted as free."""
    original(self, blocks)
    self.num_free_blocks -= len(blocks)


@breaks(f"{_QUEUE}.prepend_n", violates="KV-INV-02", models=(_MASKED_FREE_QUEUE,))
def old_front_linked_to_the_head(original: Any, self: Any, blocks: Any) -> None:
    """The block that was in front still points back to the queue's head."""
    before = self.fake_free_list_head.next_free_block
    original(self, blocks)
    before.prev_free_block = self.fake_free_list_head


@breaks(f"{_POOL}.free_blocks", violates="KV-OP-17", models=(_MASKED_FREE_QUEUE,))
def cached_first(original: Any, self: Any, ordered_blocks: Any) -> None:
    """What is cached goes to the front too."""
    original(self, ordered_blocks, prepend=getattr(self, "scratch_first", False))


@breaks(f"{_POOL}.free_blocks", violates="KV-OP-07", models=("full",))
def scratch_first_uninvited(original: Any, self: Any, ordered_blocks: Any) -> None:
    """Scratch goes first where nothing is switched on."""
    before, self.scratch_first = getattr(self, "scratch_first", False), True
    original(self, ordered_blocks)
    self.scratch_first = before


@breaks(f"{_POOL}.evict_blocks", violates="KV-INV-08", models=(_MASKED_FREE_QUEUE,), needs=("evict",))
def evicted_goes_last(original: Any, self: Any, block_ids: Any) -> None:
    """A free block whose content is forgotten goes to the back of the queue."""
    cached = [block for block in map(self.blocks.__getitem__, block_ids) if block.block_hash is not None]
    original(self, block_ids)
    for block in cached:
        if block.ref_cnt == 0 and getattr(self, "scratch_first", False):
            self.free_block_queue.remove(block)
            self.free_block_queue.append(block)
