"""Mutants of junctions: where a prompt is thought to part from what is cached, and what is kept there."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvgate_mutants.mutants.mutant import breaks, vllms_own
from kvgate_mutants.mutants.plugin import checks

_FIND = "swa_retention.junctions:Junctions.find"
_KNOWN = "swa_retention.junctions:Junctions._known"
_LOOK_UP = "vllm.v1.core.kv_cache_manager:KVCacheManager.get_computed_blocks"
_REACH = "swa_retention.reachable:Reach"

_PLAIN = "gpt-oss-hybrid+retention+junctions+scratch"
_DRAFTING = "mixed-blocks+mtp+retention+junctions+scratch"
_PARTIAL = "compressed+partial+retention+junctions+scratch"
"""Two groups of full attention, in blocks of 32 and of 64 tokens, in which hits end at multiples of 16."""


@breaks(_LOOK_UP, violates="KV-OP-15", models=(_PLAIN,))
def looked_up_without_junctions(original: Any, *arguments: Any) -> Any:
    """No request learns where its prompt parts from what is cached."""
    return vllms_own(original)(*arguments)


@breaks(_FIND, violates="KV-OP-15", models=(_DRAFTING,))
def junction_without_look_ahead(original: Any, self: Any, *arguments: Any) -> Any:
    """The last boundary that prompts share is kept, and not the last with a look-ahead block that they share."""
    return original(evolve(self, lookahead_tokens=0), *arguments)


@breaks(_FIND, violates="KV-OP-15", models=(_PLAIN,))
def junction_a_boundary_low(original: Any, self: Any, *arguments: Any) -> Any:
    """The boundary before the junction is kept."""
    return max(0, original(self, *arguments) - self.alignment_tokens)


@breaks(_FIND, violates="KV-OP-15", models=(_PLAIN,))
def junction_at_the_last_token(original: Any, self: Any, hashes: Any, request_tokens: int, hit_tokens: int) -> Any:
    """A prompt of which all is cached is thought to be hit as a whole."""
    return original(self, hashes, request_tokens + 1, hit_tokens)


@breaks(_FIND, violates="KV-OP-15", models=(_PLAIN,))
def junction_of_misses_alone(original: Any, self: Any, hashes: Any, request_tokens: int, hit_tokens: int) -> Any:
    """A request that hits anything has no junction, however little it hits."""
    return 0 if hit_tokens else original(self, hashes, request_tokens, hit_tokens)


@breaks(_FIND, violates="KV-OP-18", models=(_PARTIAL,))
def largest_blocks_decide(original: Any, self: Any, *arguments: Any) -> Any:
    """What prompts share is taken from the group with the largest blocks, which knows it least well."""
    return original(evolve(self, groups=[max(self.groups, key=lambda group: group[1])]), *arguments)


@breaks(_KNOWN, violates="KV-OP-15", models=(_PLAIN,))
def first_block_decides(original: Any, self: Any, group: int, block: int, hashes: Any, hit_tokens: int) -> Any:
    """If the block after the hit is cached, all of the prompt is taken to be."""
    known = original(self, group, block, hashes, hit_tokens)
    return known if known < hit_tokens + block else len(hashes) * self.pool.hash_block_size


@breaks(_LOOK_UP, violates="KV-OP-15", models=(_PLAIN,))
def junction_of_the_first_look_up(original: Any, self: Any, request: Any) -> Any:
    """A request keeps the junction of its first look-up, though it is looked up again before it is admitted."""
    before = vars(request).get("swa_retention_junction_tokens")
    found = original(self, request)
    if before is not None and vars(request).get("swa_retention_junction_tokens") is not None:
        request.swa_retention_junction_tokens = before
    return found


@breaks(_LOOK_UP, violates="KV-OP-15", models=(_PLAIN,))
def junction_of_what_may_not_be_read(original: Any, self: Any, request: Any) -> Any:
    """A request that may not read the cache has a junction too."""
    found = original(self, request)
    junctions = getattr(self.coordinator, "junctions", None)
    if junctions is not None and request.skip_reading_prefix_cache:
        request.swa_retention_junction_tokens = junctions.find(request.block_hashes, request.num_tokens, 0)
    return found


@breaks(f"{_REACH}.due", violates="KV-OP-15", models=(_PLAIN,))
def junction_not_kept(original: Any, self: Any, start: int, tokens: int, replay_tokens: int, *_junction: int) -> Any:
    """Nothing is kept at the junction."""
    return original(self, start, tokens, replay_tokens)


@breaks(f"{_REACH}.due", violates="KV-OP-15", models=(_PLAIN,))
def junction_instead_of_the_replay(
    original: Any, self: Any, start: int, tokens: int, replay_tokens: int, junction_tokens: int = 0
) -> Any:
    """A request with a junction keeps nothing for a replay of its prompt."""
    return original(self, start, tokens, junction_tokens or replay_tokens)


@breaks(f"{_REACH}.due", violates="KV-OP-15", models=(_PLAIN,))
def junction_in_one_step_alone(
    original: Any, self: Any, start: int, tokens: int, replay_tokens: int, junction_tokens: int = 0
) -> Any:
    """A block that is full before the junction is reached is not looked at again for it."""
    return original(self, start, tokens, replay_tokens, junction_tokens if junction_tokens <= tokens else 0)


@breaks("swa_retention.partial.registration:Admitted.behind", violates="KV-OP-18", models=(_PARTIAL,))
def junction_is_not_an_entry(original: Any, self: Any, start_tokens: int, single_tokens: tuple[int, ...]) -> Any:
    """Where the junction lies inside a block, its beginning does not become an entry."""
    return original(self, start_tokens, single_tokens[:1])


@breaks("swa_retention.patches.attach:attach", violates="KV-OP-15", models=("gpt-oss-hybrid+retention+scratch",))
def junctions_whatever_is_switched_off(original: Any, coordinator: Any, configuration: Any, tokens_max: int) -> None:
    """Junctions are kept although they are switched off."""
    original(coordinator, evolve(configuration, junctions=True), tokens_max)


@breaks("swa_retention.config:read", shown_by=checks.junctions_are_on_by_default)
def junctions_off_by_default(original: Any, environment: Any) -> Any:
    """Junctions are kept only if they are asked for."""
    found = original(environment)
    return found if "VLLM_PREFIX_CACHE_JUNCTIONS" in environment else evolve(found, junctions=False)
