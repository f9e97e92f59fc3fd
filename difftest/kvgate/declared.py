"""Known differences between a published system and the reference, each with a finding that tells its story.

A declared difference is counted and shown at every run. It is recognised by its mechanism, as narrowly as that can be
said, never by its statement alone: another defect that violates the same statement is still a divergence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from attrs import evolve

from kvgate.comparison import hit_tokens_of
from kvgate.difference import Divergence
from kvgate.lockstep import Lockstep
from kvreference.answers import Refused
from kvreference.content import ExtraKey
from kvreference.geometry import Geometry
from kvreference.hit_lookup import longest_hit
from kvreference.operations import Admit, Arrive, LookUp, spell

_CONTENT_STATEMENTS = frozenset({"KV-OP-01", "KV-OP-02", "KV-OP-09", "KV-MEM-01"})
"""What a content identity that is not one to one violates, depending on when it shows."""


def explain(divergence: Divergence, lockstep: Lockstep) -> str | None:
    """The id of the finding that explains ``divergence``, or None. ``lockstep`` stands where it diverged."""
    return next((finding for finding, explains in EXPLANATIONS.items() if explains(divergence, lockstep)), None)


def _new_block_ids_grow(divergence: Divergence, _lockstep: Lockstep) -> bool:
    """Only the list that nobody drains; any other container that grows is news."""
    difference = divergence.difference
    return difference.statement == "KV-LEAK-02" and difference.subject.endswith(".new_block_ids")


def _gate_subtracts_skipped_blocks(divergence: Divergence, lockstep: Lockstep) -> bool:
    """A request passed that should not have, and would not if less than the whole hit were taken off the cap."""
    operation, reference = divergence.operation, lockstep.reference
    if divergence.difference.statement != "KV-OP-03" or not isinstance(operation, Admit) or reference is None:
        return False
    ours, theirs = lockstep.answers
    if not (isinstance(ours, Refused) and ours.gate) or (isinstance(theirs, Refused) and theirs.gate):
        return False
    settings, pool = reference.settings, reference.pool
    request = reference.population[operation.request]
    hit = longest_hit(settings.geometry, pool.cached, reference.prefixes[request.number], len(request.tokens))
    needed = 0
    for group, blocks in zip(settings.geometry.groups, hit.blocks, strict=True):
        capped = min(
            group.blocks_occupied(len(request.tokens)),
            group.blocks_held_at_most(settings.chunk_tokens, settings.tokens_max),
        )
        live = blocks[group.blocks_dead(hit.tokens) :]
        needed += max(0, capped - len(blocks)) + sum(pool.references[block] == 0 for block in live)
    return hit.tokens > 0 and needed <= len(pool.free)


def _arrivals(lockstep: Lockstep) -> Iterator[Arrive]:
    return (operation for operation in lockstep.performed if isinstance(operation, Arrive))


def _salt_named_like_an_adapter(divergence: Divergence, lockstep: Lockstep) -> bool:
    """Two requests agree in their first tokens, and in their keys only if nobody asks which is which."""
    if divergence.difference.statement not in _CONTENT_STATEMENTS:
        return False
    grain = lockstep.system.population.settings.geometry.grain_tokens
    seen: dict[tuple[object, ...], tuple[ExtraKey, ...]] = {}
    for arrival in _arrivals(lockstep):
        tagged = arrival.keys.of_block(0, grain)
        bare = (*spell(arrival.prompt)[:grain], *((key.name, key.offset_tokens) for key in tagged))
        if seen.setdefault(bare, tagged) != tagged:
            return True
    return False


def _media_before_the_last_in_a_tail(divergence: Divergence, lockstep: Lockstep) -> bool:
    """A prompt ends inside a block that holds part of a multimodal item which is not its last one."""
    if divergence.difference.statement not in _CONTENT_STATEMENTS:
        return False
    grain = lockstep.system.population.settings.geometry.grain_tokens
    for arrival in _arrivals(lockstep):
        tokens = sum(run.length for run in arrival.prompt)
        tail = tokens // grain * grain
        if any(item.offset_tokens + item.length_tokens > tail for item in arrival.keys.media[:-1]):
            return True
    return False


def _lookahead_checked_at_a_longer_length(divergence: Divergence, lockstep: Lockstep) -> bool:
    """With three or more different groups: a longer hit, sound but for the look-ahead block of a window."""
    operation, reference = divergence.operation, lockstep.reference
    if divergence.difference.statement != "KV-OP-01" or reference is None or not isinstance(operation, (Admit, LookUp)):
        return False
    geometry = reference.geometry
    ours, theirs = map(hit_tokens_of, lockstep.answers)
    if len(set(geometry.groups)) < 3 or ours is None or theirs is None or theirs <= ours:
        return False
    without = Geometry(
        tuple(evolve(group, lookahead=group.lookahead and group.window_tokens is None) for group in geometry.groups)
    )
    request = reference.population[operation.request]
    longest = longest_hit(without, reference.pool.cached, reference.prefixes[request.number], len(request.tokens))
    return theirs <= longest.tokens


def _aligned_before_the_drop(divergence: Divergence, lockstep: Lockstep) -> bool:
    """A window that reaches back to the first token, in blocks finer than the alignment, loses a whole alignment."""
    if divergence.difference.statement != "KV-OP-01":
        return False
    geometry = lockstep.system.population.settings.geometry
    ours, theirs = map(hit_tokens_of, lockstep.answers)
    if ours is None or theirs is None:
        return False
    losing = {
        group
        for group in geometry.groups
        if group.lookahead
        and group.window_tokens is not None
        and group.block_size_tokens != geometry.alignment_tokens
        and ours < group.blocks_occupied(group.window_tokens - 1) * group.block_size_tokens
    }
    return bool(losing) and ours - theirs == len(losing) * geometry.alignment_tokens


EXPLANATIONS: Mapping[str, Callable[[Divergence, Lockstep], bool]] = {
    "001-new-block-ids-never-drained": _new_block_ids_grow,
    "002-gate-subtracts-skipped-blocks": _gate_subtracts_skipped_blocks,
    "003-salt-collides-with-adapter-name": _salt_named_like_an_adapter,
    "004-media-forgotten-in-prompt-tail": _media_before_the_last_in_a_tail,
    "005-lookahead-verified-at-another-length": _lookahead_checked_at_a_longer_length,
    "006-aligned-before-the-drop": _aligned_before_the_drop,
}
"""Finding id to the question whether it explains a divergence."""
