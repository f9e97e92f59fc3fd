"""Which groups of a block manager of vLLM are copied, and with which unit."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial as bound
from typing import Any

from swa_retention.compressed.prefix_block_size import compress_ratio, prefix_block_size_tokens
from swa_retention.config import PARTIAL, Configuration
from swa_retention.partial.groups import Group
from swa_retention.partial.hits import PartialHits
from swa_retention.partial.registration import Admitted
from swa_retention.partial.units import Cuttable, Units, units_of
from swa_retention.reachable import replay_boundary_tokens

logger = logging.getLogger("vllm.swa_retention")

RATIOS = "compress_ratios"
"""The attribute of vLLM's group that holds the ratios of all its layers, if they were distinguished."""


def attach_partial(coordinator: Any, configuration: Configuration, lookahead: set[int]) -> PartialHits | None:
    """Let hits of ``coordinator`` end inside blocks, where they can; ``lookahead`` are the groups with a draft layer.

    Raises:
        ConfigurationError: a unit that does not work.
    """
    if not coordinator.enable_caching:
        logger.warning("swa_retention: prefix caching is off, and %s has no effect", PARTIAL)
        return None
    managers = coordinator.single_type_managers
    other = next((kind for manager in managers if (kind := _other_kind(manager.kv_cache_spec))), None)
    if other is not None:
        logger.warning("swa_retention: the model has %s, and %s has no effect", other, PARTIAL)
        return None
    units = units_of(
        [_cuttable(manager, _ratios(coordinator, index)) for index, manager in enumerate(managers)],
        coordinator.block_pool.hash_block_size,
        configuration.partial_unit_tokens,
    )
    if not any(units.copies):
        logger.warning("swa_retention: no block is larger than %d tokens; %s has no effect", units.unit_tokens, PARTIAL)
        return None
    groups = [_group(index, manager, units, index in lookahead) for index, manager in enumerate(managers)]
    hits = PartialHits(
        coordinator.block_pool,
        groups,
        Admitted(units.unit_tokens, configuration.interval_tokens(units.unit_tokens) if _slides(coordinator) else None),
        _replay_boundary(units.unit_tokens, max(group.lookahead_tokens for group in groups)),
        configuration.partial_min_tokens,
    )
    coordinator.partial = coordinator.look_up = hits
    coordinator.block_pool.boundaries = hits.boundaries
    for manager, copies in zip(managers, units.copies, strict=True):
        if copies:
            manager.partial = hits
    logger.info("swa_retention: hits end at multiples of %d tokens", units.unit_tokens)
    return hits


def _other_kind(spec: Any) -> str | None:
    """A kind of group that a hit inside a block is not known to work with; None if there is none."""
    from vllm.v1.kv_cache_interface import ChunkedLocalAttentionSpec, FullAttentionSpec, SlidingWindowSpec

    known = isinstance(spec, (FullAttentionSpec, SlidingWindowSpec, ChunkedLocalAttentionSpec))
    return None if known else f"a group of {type(spec).__name__}"


def _cuttable(manager: Any, ratios: tuple[int, ...]) -> Cuttable:
    return Cuttable(prefix_block_size_tokens(manager.kv_cache_spec), _is_full_attention(manager), ratios)


def _ratios(coordinator: Any, index: int) -> tuple[int, ...]:
    """How many tokens share a slot, in each of the group's layers as far as they were distinguished."""
    group = coordinator.kv_cache_config.kv_cache_groups[index]
    return getattr(group, RATIOS, (compress_ratio(group.kv_cache_spec),))


def _is_full_attention(manager: Any) -> bool:
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    return isinstance(manager.kv_cache_spec, FullAttentionSpec)


def _slides(coordinator: Any) -> bool:
    from vllm.v1.kv_cache_interface import SlidingWindowSpec

    return any(isinstance(manager.kv_cache_spec, SlidingWindowSpec) for manager in coordinator.single_type_managers)


def _group(index: int, manager: Any, units: Units, drafts: bool) -> Group:
    copies = units.copies[index]
    block_tokens = prefix_block_size_tokens(manager.kv_cache_spec)
    lookahead = units.unit_tokens if copies else block_tokens
    return Group(
        index,
        block_tokens,
        lookahead if drafts else 0,
        copies,
        _is_full_attention(manager),
        manager.get_num_skipped_tokens,
    )


def _replay_boundary(unit_tokens: int, lookahead_tokens: int) -> Callable[[Any], int]:
    replay = bound(replay_boundary_tokens, alignment_tokens=unit_tokens, lookahead_tokens=lookahead_tokens)
    return lambda request: replay(request.num_prompt_tokens)
