"""The settings of a live scheduler of vLLM or vLLM-Ascend in the reference's words, or why it has none."""

from __future__ import annotations

import sys
from typing import Any

from kvgate.adapters.groups import counts_slots, is_of_ascend, spec_block_size_tokens, spec_compress_ratio
from kvgate.adapters.native import leaves_out
from kvgate.adapters.releases import ASCEND_COORDINATOR, INSTALLED, LATER_ASCEND, OF_VLLM
from kvgate.adapters.releases.description import Release
from kvgate.findings.modelled import BEGINS_BLOCKS
from kvgate.kernel.errors import UsageError
from kvgate.kernel.versions import version_of
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.settings import Settings

_UNTAGGED = (0, 1)
"""What a build from a clone without tags calls itself."""

LOOKS_AHEAD_WITH_ONE = "081-no-look-ahead-without-a-connector"
"""A shadow assumes that this finding acts, because it does not see connectors."""


def followed_release(version: str) -> Release:
    """The release that a vLLM of this version is, or the vLLM-Ascend that has changed it in this process.

    A version that says nothing is that of 0.20.2, built from a clone.

    Raises:
        ValueError: a shadow does not follow it; says which are followed, and what can be done instead.
    """
    try:
        found = version_of(version)
    except UsageError:
        return INSTALLED
    if found[:2] == _UNTAGGED:
        return INSTALLED
    release = next((each for each in OF_VLLM if version_of(each.version) == found), None)
    if release is not None and release.scheduler is not None:
        if release is INSTALLED or ASCEND_COORDINATOR not in sys.modules:
            return release
        for later in LATER_ASCEND:
            if later.below == release.name:
                return later
        raise ValueError(f"vLLM-Ascend on vLLM {version} is not followed")
    followed = ", ".join(each.version for each in OF_VLLM if each.scheduler is not None)
    unknown = f"; {version} is in no description of this kvgate: is there a newer one?" if release is None else ""
    raise ValueError(f"vLLM {version} is not followed: {followed} are followed{unknown}")


def settings_of(scheduler: Any, release: Release = INSTALLED) -> Settings:
    """The settings that ``scheduler``, of a ``release``, runs with.

    Raises:
        ValueError: it has something that the reference cannot follow; says what.
    """
    config, manager = scheduler.vllm_config, scheduler.kv_cache_manager
    refused = _refusal(scheduler) or (None if release is INSTALLED else _newer_refusal(scheduler, release))
    if refused is not None:
        raise ValueError(refused)
    hashed_ahead = getattr(manager.block_pool, "num_hash_lookahead_tokens", 0)
    geometry = geometry_of(scheduler.kv_cache_config.kv_cache_groups, manager.use_eagle, hashed_ahead)
    interval = _interval_tokens(manager) if release is INSTALLED else _newer_interval_tokens(release, manager, geometry)
    settings = Settings(
        geometry=geometry,
        blocks=scheduler.kv_cache_config.num_blocks,
        tokens_max=scheduler.max_model_len,
        chunk_tokens=config.scheduler_config.max_num_batched_tokens,
        requests_max=2**31,
        drafts_max=scheduler.num_spec_tokens,
        caches=manager.enable_caching,
        tells_events=bool(manager.block_pool.enable_kv_cache_events),
        full_sequence_must_fit=scheduler.scheduler_reserve_full_isl,
        retention_interval_tokens=interval,
        keeps_junctions=getattr(manager.coordinator, "junctions", None) is not None
        or (release.pins_junctions and interval not in (None, geometry.alignment_tokens)),
        scratch_first=getattr(manager.block_pool, "scratch_first", False) or release.choices is not None,
        steps_in_flight_max=config.max_concurrent_batches if counts_in_flight(release, geometry) else 1,
    )
    hashed_tokens = manager.block_pool.hash_block_size
    if settings.caches and settings.geometry.grain_tokens != hashed_tokens:
        raise ValueError(f"blocks are hashed by {hashed_tokens} tokens, not by {settings.geometry.grain_tokens}")
    ahead_inside = (
        each.keeps_all and each.lookahead and each.block_size_tokens > hashed_tokens for each in geometry.groups
    )
    if settings.caches and BEGINS_BLOCKS in release.findings and any(ahead_inside):
        # Without look-ahead a block is full before a boundary inside it is cached, and so the same blocks are scratch.
        raise ValueError("larger blocks of full attention, with a draft layer: boundaries inside them are cached")
    return settings


def counts_in_flight(release: Release, geometry: Geometry) -> bool:
    """Whether a request releases nothing by the tokens whose steps are in flight."""
    return release.frees_late or (release.holds_windows and not geometry.keeps_states)


def _refusal(scheduler: Any) -> str | None:
    if scheduler.is_encoder_decoder:
        return "an encoder-decoder model"
    if scheduler.dcp_world_size * scheduler.pcp_world_size > 1:
        return "context parallelism"
    if not scheduler.kv_cache_config.kv_cache_groups:
        return "a model without a KV cache"
    if getattr(scheduler.kv_cache_manager.coordinator, "partial", None) is not None:
        return "the plug-in's partial hits"
    if getattr(scheduler.kv_cache_manager.block_pool, "pinned_tier", None) is not None:
        return "the plug-in's pinned tier"
    ahead = getattr(scheduler.kv_cache_manager.block_pool, "num_hash_lookahead_tokens", 0)
    if ahead > 1:
        return f"hashes that cover {ahead} tokens after a block"
    module = type(scheduler.kv_cache_manager).__module__
    if module != "vllm.v1.core.kv_cache_manager":
        return f"a block manager of {module}"
    return None


def _newer_refusal(scheduler: Any, release: Release) -> str | None:
    """Why a scheduler of a release other than vLLM 0.20.2 is not followed; None if it is followed."""
    manager, system = scheduler.kv_cache_manager, system_of(scheduler, release)
    if system not in ("stock", release.name):
        return f"the block manager of {system}, on another vLLM than 0.20.2"
    holds = release.holds_windows and scheduler.connector is not None
    if getattr(scheduler, "defer_block_free", holds and scheduler.vllm_config.max_concurrent_batches > 1):
        return "a KV connector with asynchronous steps: this release frees blocks by the steps that are over"
    if scheduler.connector is not None and manager.use_eagle and LOOKS_AHEAD_WITH_ONE in release.findings:
        return "a KV connector with a draft layer: without a connector this release asks for no look-ahead block"
    if getattr(scheduler, "aux_output_connector", None) is not None:
        return "a connector for other outputs, which limits hits"
    specs = [group.kv_cache_spec for group in scheduler.kv_cache_config.kv_cache_groups]
    if not release.follows_states and any(type(spec).__name__ == "MambaSpec" for spec in specs):
        return f"a model with states, on vLLM {release.version}"
    if getattr(manager.coordinator, "num_reprefillable_tokens", 0) or any(
        getattr(spec, "extra_retained_tokens", 0) for spec in specs
    ):
        return "draft layers that compute the last tokens of a prompt again"
    if getattr(scheduler, "prefix_replay_tokens", 0):
        return "windows that are computed again after a hit"
    if getattr(manager, "watermark_blocks", 0):
        return "a watermark: blocks that stay free for requests that run"
    return None


def _newer_interval_tokens(release: Release, manager: Any, geometry: Geometry) -> int | None:
    """The retention interval, which is that of all block ends where blocks that no hit can read are left out."""
    interval: int | None = getattr(manager.coordinator, "retention_interval", None)
    if interval is not None and any(
        group.slides or (group.keeps_states and release.retains_states) for group in geometry.groups
    ):
        return interval
    return geometry.alignment_tokens if release.masks and leaves_out(geometry) else None


def system_of(scheduler: Any, release: Release = INSTALLED) -> str:
    """Which of kvgate's systems it is: vLLM or vLLM-Ascend, as published or with what the plug-in does."""
    manager = scheduler.kv_cache_manager
    of_ascend = is_of_ascend(manager.coordinator)
    managers = manager.coordinator.single_type_managers
    is_changed = any(hasattr(each, "slot_tokens") or hasattr(each, "reach") for each in managers)
    if getattr(manager.block_pool, "scratch_first", False) or is_changed:
        return "ascend-retention" if of_ascend else "retention"
    if release in LATER_ASCEND:
        return release.name
    return "ascend" if of_ascend else "stock"


def _interval_tokens(manager: Any) -> int | None:
    """The plug-in's retention interval, where it is switched on and there is a window to retain less of."""
    slides = [
        each for each in manager.coordinator.single_type_managers if hasattr(each.kv_cache_spec, "sliding_window")
    ]
    reaches = [each.reach for each in slides if getattr(each, "reach", None) and each.kv_cache_spec.sliding_window]
    return reaches[0].interval_tokens if reaches else None


def geometry_of(groups: Any, use_eagle: bool, hashed_ahead_tokens: int = 0) -> Geometry:
    """The geometry that vLLM's groups stand for.

    Raises:
        ValueError: a group of a kind that is not known.
    """
    flagged = any(group.is_eagle_group for group in groups)
    made = tuple(_group(group.kv_cache_spec, use_eagle, flagged, group.is_eagle_group) for group in groups)
    return Geometry(made, hashed_ahead_tokens)


def _group(spec: Any, use_eagle: bool, flagged: bool, is_flagged: bool) -> Group:
    from vllm.v1.kv_cache_interface import (
        ChunkedLocalAttentionSpec,
        FullAttentionSpec,
        MambaSpec,
        MLAAttentionSpec,
        SlidingWindowMLASpec,
        SlidingWindowSpec,
    )

    # vLLM takes no flag at all for a draft layer in every group but those of states.
    lookahead = use_eagle and (is_flagged if flagged else True)
    size = spec_block_size_tokens(spec)
    kinds = type(spec).__mro__ if is_of_ascend(spec) else (type(spec),)
    if type(spec) is MambaSpec:
        mode = StateMode(spec.mamba_cache_mode)
        return Group(Kind.MAMBA, size, states=mode, draft_states=spec.num_speculative_blocks)
    if SlidingWindowSpec in kinds or SlidingWindowMLASpec in kinds:
        return Group(Kind.SLIDING_WINDOW, size, spec.sliding_window, lookahead=lookahead)
    if type(spec) is ChunkedLocalAttentionSpec:
        return Group(Kind.CHUNKED_LOCAL, size, spec.attention_chunk_size)
    if FullAttentionSpec in kinds or MLAAttentionSpec in kinds:
        ratio, whole_slots = spec_compress_ratio(spec), counts_slots(spec)
        return Group(Kind.FULL, size, lookahead=lookahead, compress_ratio=ratio, whole_slots=whole_slots)
    raise ValueError(f"a group of {type(spec).__name__}")
