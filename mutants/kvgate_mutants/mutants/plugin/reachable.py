"""Mutants of what is reachable: which blocks of which groups are cached, and when."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks
from kvgate_mutants.mutants.plugin.left_out import vllms_own

_REACH = "swa_retention.reachable:Reach"
_ATTACH = "swa_retention.patches.attach"

_MASKED = "mixed-blocks+mtp+masked+scratch"
_SPARSE = "mixed-blocks+retention=4+scratch"
"""An interval of twice the window: half of its blocks serve no hit."""
_EAGLE = "mixed-blocks+eagle+retention=2+scratch"
_REPLAY = "gpt-oss-hybrid+retention+scratch"


@breaks(
    "vllm.v1.core.kv_cache_manager:KVCacheManager.__init__",
    violates="KV-OP-15",
    models=("mixed-blocks+masked+scratch",),
)
def not_attached(original: Any, *arguments: Any, **named: Any) -> Any:
    """No block manager is told what is reachable in its groups."""
    return vllms_own(original)(*arguments, **named)


@breaks(f"{_REACH}.due", violates="KV-OP-15", models=(_MASKED,))
def due_a_token_too_soon(original: Any, self: Any, start: int, tokens: int, replay_tokens: int) -> Any:
    """A block is cached a token before the boundary from which it is read."""
    full = tokens // self.block_size_tokens
    spans, behind = original(self, start, tokens + 1, replay_tokens)
    return [(first, min(end, full)) for first, end in spans if first < full], min(behind, full)


@breaks(f"{_REACH}._end", violates="KV-OP-15", models=(_MASKED,))
def mask_without_look_ahead(_original: Any, self: Any, boundary_tokens: int) -> int:
    """The block behind a boundary, which a draft layer must match, is not cached."""
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


@breaks(f"{_ATTACH}:_attach_retention", violates="KV-OP-15", models=("mixed-blocks+retention=2+scratch",))
def full_attention_kept_like_windows(original: Any, coordinator: Any, interval: int) -> None:
    """Full attention, which any hit reads whole, is cached at the interval alone."""
    original(coordinator, interval)
    for manager in coordinator.single_type_managers:
        if interval and hasattr(manager, "reach"):
            object.__setattr__(manager.reach, "interval_tokens", interval)


@breaks(f"{_ATTACH}:_attach_retention", violates="KV-OP-17", models=("mixed-blocks+masked+scratch",))
def scratch_not_first(original: Any, coordinator: Any, interval: int) -> None:
    """The pool is not told that scratch goes first."""
    original(coordinator, interval)
    coordinator.block_pool.scratch_first = False
