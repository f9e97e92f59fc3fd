"""The constructors of vLLM's block manager, with the keywords of newer ones; and the scheduler's block size.

The scheduler's block size goes from the scheduler to the manager, to the coordinator and to the managers of groups: all
of them count in the same blocks. A scheduler that got slots where tokens are meant gets tokens.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from math import lcm
from typing import Any

from swa_retention.compressed.prefix_block_size import prefix_block_size_tokens
from swa_retention.newer_keywords import DRAFT_LAYERS, RETENTION, SCHEDULER_BLOCK, said, saying, set_aside
from swa_retention.register import UNPATCHED, Patch


def scheduler(original: Any) -> Callable[..., None]:
    """``Scheduler.__init__`` that says how many tokens it counts as one block."""
    signature = inspect.signature(original)

    @wraps(original)
    def build(self: Any, *arguments: Any, **keywords: Any) -> None:
        given = signature.bind(self, *arguments, **keywords)
        block = given.arguments["block_size"]
        specs = [group.kv_cache_spec for group in given.arguments["kv_cache_config"].kv_cache_groups]
        # Where a spec counts slots, vLLM has taken them for tokens.
        tokens = [prefix_block_size_tokens(spec) for spec in specs if _counts_otherwise(spec)]
        if tokens:
            given.arguments["hash_block_size"] = given.arguments.get("hash_block_size") or block
            given.arguments["block_size"] = block = lcm(block, *tokens)
        with saying({SCHEDULER_BLOCK: block}):
            original(*given.args, **given.kwargs)

    return build


def _counts_otherwise(spec: Any) -> bool:
    return bool(prefix_block_size_tokens(spec) != spec.block_size)


def constructor(original: Any) -> Callable[..., None]:
    """A constructor that sets aside what it has no parameter for."""

    @wraps(original)
    def build(self: Any, *arguments: Any, **keywords: Any) -> None:
        newer = set_aside(original, keywords)
        with saying(newer):
            original(self, *arguments, **keywords)

    return build


def coordinator(original: Any) -> Callable[..., None]:
    """``KVCacheCoordinator.__init__`` that knows the scheduler's block size, and the groups of layers that draft."""

    @wraps(original)
    def build(self: Any, *arguments: Any, **keywords: Any) -> None:
        newer = set_aside(original, keywords)
        with saying(newer):
            original(self, *arguments, **keywords)
            self.scheduler_block_size = said().get(SCHEDULER_BLOCK)
            self.retention_interval = next((said()[name] for name in RETENTION if name in said()), None)
            drafting = set(said().get(DRAFT_LAYERS, ()))
            if drafting and self.eagle_group_ids:
                groups = enumerate(self.kv_cache_config.kv_cache_groups)
                self.eagle_group_ids = {index for index, group in groups if drafting & set(group.layer_names)}

    return build


def group_manager(original: Any) -> Callable[..., None]:
    """``SingleTypeKVCacheManager.__init__`` that knows the scheduler's block size."""

    @wraps(original)
    def build(self: Any, *arguments: Any, **keywords: Any) -> None:
        newer = set_aside(original, keywords)
        original(self, *arguments, **keywords)
        self.scheduler_block_size = {**said(), **newer}.get(SCHEDULER_BLOCK)

    return build


def cache_blocks(original: Any) -> Callable[..., None]:
    """``MambaManager.cache_blocks`` that passes over what a newer coordinator says: its states are kept as ever."""

    def cache_blocks(self: Any, request: Any, num_tokens: int, **_newer: Any) -> None:
        original(self, request, num_tokens)

    return cache_blocks


_COORDINATORS = "vllm.v1.core.kv_cache_coordinator"
_MANAGERS = "vllm.v1.core.single_type_kv_cache_manager"
_WHY = "A coordinator that was written for a newer vLLM says more than this one's constructors take."
_HOW = "Newer keywords are set aside, for the code that needs them; without them, it is vLLM's own constructor."
_UNTIL = "vLLM 0.23, which takes it"
_THREADED = "vllm-project/vllm#43447"


def _constructor(name: str, signature: str, replacement: Callable[[Any], Callable[..., None]] = constructor) -> Patch:
    until_it_takes_them = {"0.20.2": signature, "0.23.0": UNPATCHED}
    return Patch(f"{name}.__init__", _WHY, _HOW, _THREADED, _UNTIL, until_it_takes_them, replacement, only_wraps=True)


PATCHES = (
    Patch(
        "vllm.v1.core.sched.scheduler:Scheduler.__init__",
        "Manager, coordinator and scheduler must count in the same blocks, and in tokens.",
        "Before vLLM's own code, the block size is counted in tokens where a spec counts slots, and it is said on.",
        _THREADED,
        _UNTIL,
        {"0.20.2": "a8a7086aa8da108d", "0.23.0": UNPATCHED},
        scheduler,
        only_wraps=True,
    ),
    _constructor(f"{_COORDINATORS}:KVCacheCoordinator", "a06b9c803c5f841f", coordinator),
    _constructor(f"{_COORDINATORS}:KVCacheCoordinatorNoPrefixCache", "8eac3187fb0c38e0"),
    _constructor(f"{_COORDINATORS}:UnitaryKVCacheCoordinator", "a06b9c803c5f841f"),
    _constructor(f"{_COORDINATORS}:HybridKVCacheCoordinator", "a06b9c803c5f841f"),
    _constructor(f"{_MANAGERS}:SingleTypeKVCacheManager", "ab61667b0edff20d", group_manager),
    Patch(
        f"{_MANAGERS}:MambaManager.cache_blocks",
        "A coordinator that was written for a newer vLLM passes the retention to every group's manager.",
        "What is newer is passed over.",
        _THREADED,
        _UNTIL,
        {"0.20.2": "3867a6d0f1688fa1", "0.22.1": UNPATCHED},
        cache_blocks,
    ),
)
