"""Where a block manager of vLLM learns what is reachable in its groups."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial, wraps
from math import lcm
from typing import Any

from attrs import evolve

from swa_retention.compressed.cut import cut_every_group
from swa_retention.compressed.units import count_tokens
from swa_retention.config import MASKED, PIN, RETENTION, Configuration, ConfigurationError
from swa_retention.fits import told
from swa_retention.junctions import Junctions
from swa_retention.newer_keywords import saying, set_aside
from swa_retention.partial.attach import attach_partial
from swa_retention.partial.groups import Group
from swa_retention.partial.lookup import LookUp, Worthwhile
from swa_retention.pinned_tier import PinnedTier
from swa_retention.reachable import Anchor, Reach, replay_boundary_tokens
from swa_retention.register import Patch, check_in_place
from swa_retention.releases import SCRATCH, release_of, running

logger = logging.getLogger("vllm.swa_retention")

_active: list[Configuration] = [Configuration()]
_promised: list[Patch] = []


def activate(configuration: Configuration, promised: Iterable[Patch] = ()) -> None:
    """Every block manager that is built from now on gets ``configuration``.

    None is built where one of the patches that are ``promised`` to be in place is not.
    """
    _active[0] = configuration
    _promised[:] = promised


def active() -> Configuration:
    """What a block manager that is built now gets."""
    return _active[0]


def built(original: Any) -> Callable[..., None]:
    """``KVCacheManager.__init__``, followed by attaching the configuration."""

    @wraps(original)
    def build(self: Any, *arguments: Any, **keywords: Any) -> None:
        with saying(set_aside(original, keywords)):
            original(self, *arguments, **keywords)
        # Plug-ins that came later have all been here by now.
        check_in_place(_promised)
        attach(self.coordinator, _active[0], self.max_model_len)

    return build


PATCHES = (
    Patch(
        "vllm.v1.core.kv_cache_manager:KVCacheManager.__init__",
        "Which blocks are reachable follows from all groups together, which the coordinator alone knows.",
        "After vLLM's own code, every group's manager gets its alignment, interval and look-ahead.",
        "vllm-project/vllm#43447",
        "vLLM 0.23, which has it",
        {"0.20.2": "a8d2eb948b813925", "0.23.0": "f98eb17b125d63ff", "0.33.0": "2345c922b8d0586f"},
        built,
        only_wraps=True,
    ),
)


def attach(coordinator: Any, configuration: Configuration, tokens_max: int) -> None:
    """Set in the managers of ``coordinator`` what is reachable in their groups; no request has more than
    ``tokens_max``.

    Raises:
        ConfigurationError: an interval that is not a multiple of the alignment, or that is given for a model without
            windows; or a unit of partial hits that does not work.
        ValueError: the scheduler counts in blocks that are not a multiple of the alignment.
    """
    if not configuration.is_inert:
        # Before anything else, for all that follows counts blocks in tokens.
        count_tokens(coordinator)
        cut_every_group(coordinator)
    block, alignment = getattr(coordinator, "scheduler_block_size", None), alignment_tokens(coordinator)
    if coordinator.block_pool.enable_caching and block is not None and block % alignment:
        raise ValueError(
            f"swa_retention: the scheduler counts in blocks of {block} tokens, and prefix-cache hits of this model are "
            f"multiples of {alignment}: give a scheduler_block_size that is a multiple of that"
        )
    # A coordinator that was given an interval, by keyword or by vLLM's own flag, knows better than the environment.
    given = getattr(coordinator, "retention_interval", None)
    if given is not None and configuration.retains:
        configuration = evolve(configuration, retention_interval_tokens=given, interval_is_auto=False)
    # First, for retention must know at which boundaries hits end.
    if configuration.partial_hits:
        attach_partial(coordinator, configuration, coordinator.eagle_group_ids)
    if configuration.pins:
        _attach_pins(coordinator, configuration.pin_min_drop_blocks, tokens_max)
    is_kept = configuration.retains and _attach_retention(coordinator, configuration)
    coordinator.says_what_is_cached = is_kept or getattr(coordinator, "partial", None) is not None
    if configuration.scratch_first or (is_kept and configuration.interval_puts_scratch_first):
        coordinator.block_pool.scratch_first = True
    tier, release = getattr(coordinator.block_pool, "pinned_tier", None), release_of(running())
    if tier is not None:
        is_native = release is not None and SCRATCH in release.native
        tier.scratch_first = is_native or getattr(coordinator.block_pool, "scratch_first", False)


def _attach_retention(coordinator: Any, configuration: Configuration) -> bool:
    """Whether it has an effect on this model."""
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, SlidingWindowSpec

    managers = coordinator.single_type_managers
    interval = configuration.retention_interval_tokens
    switch = MASKED if interval is None else RETENTION
    if not coordinator.block_pool.enable_caching:
        logger.warning("swa_retention: prefix caching is off, and %s has no effect", switch)
        return False
    if not any(isinstance(manager.kv_cache_spec, SlidingWindowSpec) for manager in managers):
        has_states = any(isinstance(manager.kv_cache_spec, MambaSpec) for manager in managers)
        # As in vLLM 0.23: a number of tokens that can have no effect is a mistake. With states, vLLM 0.33 takes it.
        if interval and not configuration.interval_is_auto and not has_states:
            reason = "the model has no sliding-window or Mamba layers: unset it, or give 0 or auto"
            raise ConfigurationError(RETENTION, str(interval), reason)
        logger.warning("swa_retention: the model has no sliding window, and %s has no effect", switch)
        return False
    alignment = alignment_tokens(coordinator)
    interval = configuration.interval_tokens(alignment)
    assert interval is not None, "retention is on"
    if interval and configuration.retention_interval_tokens != interval:
        logger.info("swa_retention: of sliding windows, every %d tokens are kept", interval)
    lookahead = _lookahead_tokens(coordinator)
    boundary = partial(_replay_boundary, alignment_tokens=alignment, lookahead_tokens=max(lookahead))
    for index, manager in enumerate(managers):
        if isinstance(manager.kv_cache_spec, MambaSpec):
            # vLLM counts on every state being cached that it has passed.
            continue
        slides = isinstance(manager.kv_cache_spec, SlidingWindowSpec)
        if not slides and manager.block_size == alignment:
            # Each block is due when it is full: vLLM's own function does that.
            continue
        manager.reach = Reach(
            manager.block_size,
            manager.get_num_skipped_tokens,
            lookahead[index],
            # Groups without a window are read from every boundary on, independent of what is kept of the windows.
            interval if slides else alignment,
        )
        manager.replay_boundary_tokens = boundary
    full = [
        (index, manager.block_size)
        for index, manager in enumerate(managers)
        if isinstance(manager.kv_cache_spec, FullAttentionSpec)
    ]
    # Where every boundary is kept, a junction adds nothing; windows alone do not show where prompts part.
    if _finds_as_vllm(coordinator):
        coordinator.look_up = _look_up(coordinator, alignment)
    if configuration.junctions and interval != alignment and full:
        look_up = getattr(coordinator, "look_up", None)
        found = {} if look_up is None else look_up.found
        coordinator.junctions = Junctions(coordinator.block_pool, full, alignment, max(lookahead), found)
    return True


def _finds_as_vllm(coordinator: Any) -> bool:
    """Whether the plug-in's look-up finds what vLLM's own would, and partial hits have none yet.

    vLLM's has rules of its own for draft layers, and vLLM-Ascend's managers have theirs.
    """
    from vllm.v1.core.kv_cache_coordinator import HybridKVCacheCoordinator
    from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager, SlidingWindowManager

    return (
        type(coordinator) is HybridKVCacheCoordinator
        and not lookahead_groups(coordinator)
        and not hasattr(coordinator, "look_up")
        and all(type(each) in (FullAttentionManager, SlidingWindowManager) for each in coordinator.single_type_managers)
    )


def _look_up(coordinator: Any, alignment_tokens: int) -> LookUp:
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    groups = [
        Group(
            index,
            manager.block_size,
            0,
            copies=False,
            is_full_attention=isinstance(manager.kv_cache_spec, FullAttentionSpec),
            skipped=manager.get_num_skipped_tokens,
        )
        for index, manager in enumerate(coordinator.single_type_managers)
    ]
    return LookUp(coordinator.block_pool, groups, alignment_tokens, Worthwhile(0, alignment_tokens))


def _attach_pins(coordinator: Any, min_drop_blocks: int, tokens_max: int) -> None:
    from vllm.v1.kv_cache_interface import SlidingWindowSpec

    if not coordinator.block_pool.enable_caching:
        logger.warning("swa_retention: prefix caching is off, and %s has no effect", PIN)
        return
    if getattr(coordinator.kv_cache_config, "hisparse_host_num_blocks", None) is not None:
        raise ConfigurationError(
            PIN, "1", "HiSparse reads blocks that are free, and keeps others on the host; unset it"
        )
    coordinator.block_pool.pinned_tier = PinnedTier(coordinator.block_pool, min_drop_blocks)
    alignment, lookahead = alignment_tokens(coordinator), _lookahead_tokens(coordinator)
    anchors = []
    for index, manager in enumerate(coordinator.single_type_managers):
        anchors.append(Anchor(manager.block_size, manager.get_num_skipped_tokens, lookahead[index], alignment))
        if isinstance(manager.kv_cache_spec, SlidingWindowSpec):
            manager.anchor = anchors[-1]
    usable = coordinator.block_pool.num_gpu_blocks - 1
    logger.info("swa_retention: the pinned tier: %s", told(anchors, usable, tokens_max))


def alignment_tokens(coordinator: Any) -> int:
    """Every hit ends at a multiple of so many tokens."""
    partial = getattr(coordinator, "partial", None)
    if partial is not None:
        unit_tokens: int = partial.unit_tokens
        return unit_tokens
    return lcm(*(manager.block_size for manager in coordinator.single_type_managers))


def lookahead_groups(coordinator: Any) -> set[int]:
    """The groups in which a hit must match one block more: those of equal specs share what one of them asks for."""
    # vLLM 0.33 can hash what is looked ahead into a block, and then its groups draft and match no more.
    flagged = set(getattr(coordinator, "drop_eagle_group_ids", coordinator.eagle_group_ids))
    for index, (_spec, groups, _manager, *newer) in enumerate(getattr(coordinator, "attention_groups", ())):
        # From vLLM 0.23 on, the entry itself says so.
        if newer[0] if newer else index in coordinator.eagle_attn_group_indices:
            flagged |= set(groups)
    return flagged


def _lookahead_tokens(coordinator: Any) -> list[int]:
    """Per group, how many tokens more than it serves a hit must match."""
    partial = getattr(coordinator, "partial", None)
    if partial is not None:
        return [group.lookahead_tokens for group in partial.groups]
    flagged, managers = lookahead_groups(coordinator), coordinator.single_type_managers
    return [manager.block_size if index in flagged else 0 for index, manager in enumerate(managers)]


def _replay_boundary(request: Any, alignment_tokens: int, lookahead_tokens: int) -> int:
    return replay_boundary_tokens(request.num_prompt_tokens, alignment_tokens, lookahead_tokens)
