"""Where the reference says each guarantee: the functions to read, as ``module:name`` within ``kvreference``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_SAID_BY = {
    "KV-INV-01": ("snapshot:_check_holders",),
    "KV-INV-02": ("snapshot:_check_free_queue",),
    "KV-INV-03": ("snapshot:_check_free_queue",),
    "KV-INV-04": ("snapshot:_check_holders",),
    "KV-INV-05": ("snapshot:_check_cached",),
    "KV-INV-06": ("snapshot:_check_free_queue",),
    "KV-OP-01": ("hit_lookup:longest_hit", "geometry:Group.blocks_needed"),
    "KV-OP-02": ("cached_map:CachedMap.find",),
    "KV-OP-03": ("manager:Manager._passes_gate", "attention:blocks_held_at_most"),
    "KV-OP-04": ("manager:Manager._allocate",),
    "KV-OP-05": ("block_pool:BlockPool.take",),
    "KV-OP-06": ("manager:Manager._release_dead", "attention:tokens_skipped"),
    "KV-OP-07": ("manager:Manager._end",),
    "KV-OP-08": ("manager:Manager._register",),
    "KV-OP-09": ("manager:Manager.content", "content:Prefixes.extend"),
    "KV-OP-10": ("block_pool:BlockPool.take", "manager:Manager._evict"),
    "KV-OP-11": ("block_pool:BlockPool.reset",),
    "KV-OP-12": ("manager:Manager._register", "manager:Manager._take_events", "content:Keys.of_block"),
    "KV-OP-13": ("manager:Manager._count_look_up", "answers:Statistics.counted"),
    "KV-OP-14": ("manager:Manager._common_prefix",),
    "KV-MEM-01": (),
    "KV-MEM-02": (),
    "KV-LEAK-01": (),
    "KV-LEAK-02": (),
    "KV-SYS-01": ("population:Population.resolve",),
}

SAID_BY: Mapping[str, tuple[str, ...]] = MappingProxyType(_SAID_BY)
"""Id to functions; none where the reference has no such thing, and only a monitor watches."""
