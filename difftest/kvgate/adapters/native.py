"""Adapters for other releases of vLLM: the block manager of each, driven as the one of 0.20.2 is.

A release is a folder, first on the path of a process that has not imported vLLM yet. What changed between releases is
in their descriptions (``kvgate.adapters.releases``).
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from math import lcm
from typing import TYPE_CHECKING, Any

from attrs import evolve

from kvgate.adapters.groups import Words, counts_begun_slots, group_specs, not_represented
from kvgate.adapters.releases.description import Release
from kvgate.adapters.stock import Given, Stock
from kvgate.adapters.tap import counted_calls
from kvreference.geometry import Geometry
from kvreference.retention import Dense, Sparse
from kvreference.settings import Settings
from kvreference.snapshot import Snapshot

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.kv_cache_interface import KVCacheGroupSpec
    from vllm.v1.request import Request

INTERVAL = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"


class Native(Stock):
    """The block manager of one release of vLLM under the gate's protocol.

    Raises:
        ValueError: settings for which it has nothing.
    """

    def __init__(self, description: Release, settings: Settings) -> None:
        self.description = description
        super().__init__(settings)

    def refusal(self, settings: Settings) -> str | None:
        return next(chain(not_retained(self.description, settings), not_had(self.description, settings)), None)

    def groups(self, geometry: Geometry) -> list[KVCacheGroupSpec]:
        release = self.description
        return group_specs(geometry, Words(release.ratio_field or "", release.flags_drafts, release.drafts_in_full))

    def build(self) -> KVCacheManager:
        from vllm.v1.core.kv_cache_manager import KVCacheManager
        from vllm.v1.kv_cache_interface import KVCacheConfig

        settings, geometry, release = self.settings, self.settings.geometry, self.description
        arguments: dict[str, Any] = {"max_model_len": settings.tokens_max, "hash_block_size": geometry.grain_tokens}
        if release.cap_parameter is not None:
            arguments[release.cap_parameter] = settings.chunk_tokens
        if release.takes_alignment:
            arguments["scheduler_block_size"] = lcm(*(group.block_size_tokens for group in geometry.groups))
        if geometry.hashed_ahead_tokens:
            arguments["num_hash_lookahead_tokens"] = geometry.hashed_ahead_tokens
        with self.configured(settings) as caching:
            return KVCacheManager(
                KVCacheConfig(settings.blocks, [], self.groups(geometry), **caching),
                enable_caching=settings.caches,
                use_eagle=any(group.lookahead for group in geometry.groups),
                log_stats=True,
                enable_kv_cache_events=settings.tells_events,
                **arguments,
            )

    @contextmanager
    def configured(self, settings: Settings) -> Iterator[Mapping[str, Any]]:
        interval, place = _interval(settings), self.description.interval
        with _environment(interval if place == "environment" else None):
            yield {"prefix_cache_retention_interval": interval} if place == "config" else {}

    def found(self, request: Request) -> tuple[KVCacheBlocks, int]:
        # Newer releases answer with a third value, the junction. Their schedulers set it on the request, whose blocks
        # are then kept there, beyond what the interval asks for.
        manager: Any = self.manager
        asking: Any = request
        blocks, tokens, *junction = manager.get_computed_blocks(asking)
        if self.settings.keeps_junctions and junction:
            asking.shared_prefix_boundary = junction[0]
        if self.description.counts_apart:
            manager.record_prefix_cache_stats(request, tokens)
        return blocks, tokens

    def snapshot(self) -> Snapshot:
        """What newer releases know by a beginning is a boundary inside a block, and no content of the block."""
        seen = super().snapshot()
        begun = begun_keys(
            self.manager.block_pool, [group.block_size_tokens for group in self.settings.geometry.groups]
        )
        if not begun:
            return seen
        keys = frozenset[Hashable]().union(*begun.values())
        contents = [None if key in keys else key for key in seen.contents]
        entries = {key: blocks for key, blocks in seen.entries.items() if key not in keys}
        return evolve(seen, contents=contents, read_entries=lambda: entries, begun=begun.keys())

    def admit(self, request: Request, tokens: int, lookahead_tokens: int, given: Given) -> KVCacheBlocks | bool | None:
        if self.description.gate != "within":
            return super().admit(request, tokens, lookahead_tokens, given)
        manager: Any = self.manager
        with counted_calls(manager.coordinator, "remove_skipped_blocks") as released:
            granted: KVCacheBlocks | None = manager.allocate_slots(
                request,
                tokens,
                num_new_computed_tokens=given.hit_tokens,
                new_computed_blocks=given.blocks,
                num_lookahead_tokens=lookahead_tokens,
                num_external_computed_tokens=given.external_tokens,
                delay_cache_blocks=given.loads,
                full_sequence_must_fit=self.settings.full_sequence_must_fit,
            )
        # The gate rejects before anything is released, and the step afterwards.
        return granted if granted is not None or released else False


def begun_keys(pool: Any, sizes: Sequence[int]) -> dict[int, set[Hashable]]:
    """By block, the hashes that it is known by for boundaries inside it; ``sizes`` are the tokens of a group's blocks.

    Releases before 0.27.1 have none.
    """
    known = getattr(pool, "cached_block_hashes_by_block", None)
    if known is None:
        return {}
    begun: dict[int, set[Hashable]] = {block: set(keys) for block, keys in known.items()}
    for block in pool.blocks if len(set(sizes)) > 1 else ():
        # The end of the key is the group.
        key, tokens = block._block_hash, getattr(block, "block_hash_num_tokens", None)
        if key is not None and tokens and tokens % sizes[int.from_bytes(key[-4:], "big")]:
            begun.setdefault(block.block_id, set()).add(key)
    return begun


@contextmanager
def _environment(interval_tokens: int | None) -> Iterator[None]:
    """A manager that is built meanwhile has the interval."""
    before = os.environ.pop(INTERVAL, None)
    if interval_tokens is not None:
        os.environ[INTERVAL] = str(interval_tokens)
    try:
        yield
    finally:
        os.environ.pop(INTERVAL, None)
        if before is not None:
            os.environ[INTERVAL] = before


def _interval(settings: Settings) -> int | None:
    """The retention interval as a release has it: none at all is masked caching."""
    interval = settings.retention_interval_tokens
    return None if interval == settings.geometry.alignment_tokens else interval


def not_retained(release: Release, settings: Settings) -> Iterator[str]:
    """What the release does not do with cached blocks."""
    interval, alignment = settings.retention_interval_tokens, settings.geometry.alignment_tokens
    name = f"{'vLLM' if release.system == 'native' else 'vLLM-Ascend'} {release.version}"
    for index, group in enumerate(settings.geometry.groups):
        if group.copies:
            yield f"partial hits in group {index}: {name} has them, if at all, where states are kept"
    if interval is not None and release.interval is None and not (release.masks and interval == alignment):
        yield f"a retention interval of {interval} tokens: {name} has none"
    elif interval is not None and not (release.retains_states or any(each.slides for each in settings.geometry.groups)):
        yield f"a retention interval of {interval} tokens: {name} has one for sliding windows alone"
    if release.masks and settings.caches and interval is None and leaves_out(settings.geometry):
        yield f"caching of blocks that no hit can read: {name} leaves them out (+masked)"
    if settings.geometry.hashed_ahead_tokens and not release.hashes_ahead:
        yield f"hashes that cover the token after a block: {name} has none"
    if settings.keeps_junctions and not release.pins_junctions:
        yield f"junctions: {name} keeps none"
    first = release.choices is not None
    if settings.scratch_first != first:
        yield f"scratch first {'off' if first else 'on'}: {name} {'always has it (+scratch)' if first else 'has not'}"
    if settings.pin_drop_blocks_min is not None:
        yield f"a pinned tier (drops of {settings.pin_drop_blocks_min} blocks and more): {name} pins nothing"


def leaves_out(geometry: Geometry) -> bool:
    """Whether masked caching leaves out a block that dense caching has, or caches it later."""
    if len(geometry.groups) == 1:
        return False
    dense, masked = Dense(geometry), Sparse(geometry, geometry.alignment_tokens)
    return any(
        dense.due_tokens(group, index, 0) != masked.due_tokens(group, index, 0)
        for group in geometry.groups
        if group.slides or group.keeps_all
        for index in range(2 * geometry.alignment_tokens // group.block_size_tokens + 2)
    )


def not_had(release: Release, settings: Settings) -> Iterator[str]:
    """What the groups of the release cannot be, and what it does not ask."""
    yield from counts_begun_slots(settings)
    yield from not_represented(settings)
    name, groups = f"vLLM {release.version}", settings.geometry.groups
    if release.gate is None and settings.full_sequence_must_fit:
        yield f"admission only of what fits as a whole: {name} asks for the first chunk alone"
    if release.ratio_field is None and any(group.compress_ratio > 1 for group in groups):
        yield f"compressed groups: {name} has none"
    if not release.flags_drafts and len({group.lookahead for group in groups if not group.keeps_states}) > 1:
        yield f"a draft layer in some groups: {name} takes it to live in all of them (+eagle) or in none"
