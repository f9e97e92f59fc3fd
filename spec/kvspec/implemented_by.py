"""Where the reference says each guarantee: the functions to read, as ``module:name`` within ``kvreference``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_IMPLEMENTED_BY = {
    "KV-INV-01": ("snapshot:_check_holders",),
    "KV-INV-02": ("snapshot:_check_free_queue",),
    "KV-INV-03": ("snapshot:_check_free_queue",),
    "KV-INV-04": ("snapshot:_check_holders",),
    "KV-INV-05": ("snapshot:_check_cached",),
    "KV-INV-06": ("snapshot:_check_free_queue",),
    "KV-INV-07": ("snapshot:_check_pinned",),
    "KV-INV-08": ("snapshot:_check_scratch",),
    "KV-INV-09": ("snapshot:_check_copies",),
    "KV-OP-01": ("hit_lookup:longest_hit", "geometry:Group.blocks_needed"),
    "KV-OP-02": ("cached_map:CachedMap.find",),
    "KV-OP-03": ("admission:passes_gate", "admission:blocks_at_peak", "attention:blocks_held_at_most"),
    "KV-OP-04": ("holdings:Holdings.allocate", "block_pool:BlockPool.make_room"),
    "KV-OP-05": ("block_pool:BlockPool.take",),
    "KV-OP-06": ("holdings:Holdings.release_dead", "attention:tokens_skipped"),
    "KV-OP-07": ("holdings:Holdings.release_all",),
    "KV-OP-08": ("caching:register", "retention:Dense.due_tokens"),
    "KV-OP-09": ("manager:Manager.content", "content:Prefixes.extend"),
    "KV-OP-10": ("block_pool:BlockPool.take", "block_pool:BlockPool.evict"),
    "KV-OP-11": ("block_pool:BlockPool.reset",),
    "KV-OP-12": ("caching:register", "manager:Manager._take_events", "content:Keys.of_block"),
    "KV-OP-13": ("prefix_cache:PrefixCache.look_up", "answers:Statistics.counted"),
    "KV-OP-14": ("holdings:Holdings.leading_shared", "prefix_cache:PrefixCache.shared"),
    "KV-OP-15": ("retention:Sparse.due_tokens", "retention:next_boundary"),
    "KV-OP-16": ("retention:replay_boundary", "retention:Sparse.due_tokens"),
    "KV-OP-17": ("free_queue:ScratchFirstQueue.put",),
    "KV-OP-18": ("caching:register", "partial_map:PartialMap.forget"),
    "KV-OP-19": ("hit_lookup:longest_hit", "holdings:Holdings.allocate"),
    "KV-OP-20": ("prefix_cache:PrefixCache.is_ready",),
    "KV-OP-21": ("geometry:Geometry.anchor", "pinned_tier:PinnedPool.slide", "pinned_tier:PinnedPool.give_up"),
    "KV-OP-22": ("pinned_tier:PinnedPool",),
    "KV-OP-23": ("pinned_tier:PinnedPool.make_room",),
    "KV-OP-24": ("holdings:Holdings.allocate", "manager:Manager._transferred"),
    "KV-OP-25": ("population:holds_on", "manager:Manager._end"),
    "KV-OP-26": ("mamba:tokens_to_boundary", "mamba:AlignedMamba.layout"),
    "KV-OP-27": ("retention:junction", "hit_lookup:tokens_known", "prefix_cache:junction_of"),
    "KV-MEM-01": (),
    "KV-MEM-02": (),
    "KV-MEM-03": ("slots:Layout.slot", "slots:Layout.kernel_blocks"),
    "KV-MEM-04": ("ahead:is_fenced", "ahead:tokens_unsure", "manager:Manager.returned"),
    "KV-LEAK-01": (),
    "KV-LEAK-02": (),
    "KV-LIVE-01": ("scheduler.room:blocks_to_run", "scheduler.progress:steps_to_admission"),
    "KV-LIVE-02": ("scheduler.progress:steps_to_answer",),
    "KV-LIVE-03": ("scheduler.progress:is_stuck", "scheduler.progress:steps_to_end"),
    "KV-WORK-01": ("caching:register",),
    "KV-WORK-02": (),
    "KV-SYS-01": ("population:Population.resolve",),
    "KV-SYS-02": ("population:Population.settle",),
    "KV-SYS-03": (),
    "KV-SYS-04": ("manager:step",),
    "KV-SYS-05": (),
    "KV-SYS-06": ("population:Population.tokens_from",),
    "KV-TIER-01": ("second_tier:SecondTier.load", "second_tier:SecondTier.end"),
    "KV-TIER-02": ("second_tier:SecondTier.store", "second_tier:SecondTier.load", "second_tier:SecondTier.end"),
    "KV-TIER-03": ("second_tier:SecondTier.hit_tokens", "second_tier:SecondTier.lacks"),
    "KV-TIER-04": ("second_tier:SecondTier.store", "second_tier:SecondTier.end"),
    "KV-TIER-05": ("second_tier:SecondTier.end",),
    "KV-TIER-06": (),
}

IMPLEMENTED_BY: Mapping[str, tuple[str, ...]] = MappingProxyType(_IMPLEMENTED_BY)
"""Id to functions; none where the reference has no such thing, and only a monitor watches."""


def link(function: str) -> str:
    """A function as a link from a page of ``spec/`` to the file that it is in."""
    module, _, name = function.partition(":")
    return f"[`{module}.{name}`](../reference/kvreference/{module.replace('.', '/')}.py)"


def links(statement: str) -> str:
    """All functions that say a guarantee, as links."""
    return ", ".join(map(link, IMPLEMENTED_BY[statement]))
