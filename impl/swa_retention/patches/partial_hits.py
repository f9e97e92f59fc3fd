"""vLLM's block manager, whose hits may end inside blocks.

A coordinator for which they may carries it as ``partial``; where it has none, each of these is vLLM's own function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from swa_retention.compressed.prefix_block_size import compress_ratio
from swa_retention.patches import free_queue, pinning
from swa_retention.register import Patch


def _partial(carrier: Any) -> Any:
    return getattr(carrier, "partial", None)


def _tables(coordinator: Any, request_id: str) -> Callable[[int], Sequence[Any]]:
    """Per group, the blocks of a request."""

    def blocks(group: int) -> Sequence[Any]:
        table: Sequence[Any] = coordinator.single_type_managers[group].req_to_blocks[request_id]
        return table

    return blocks


def allocate_new_computed_blocks(original: Any) -> Callable[..., None]:
    """``KVCacheCoordinator.allocate_new_computed_blocks`` that holds the sources of the hit's copies first."""

    def allocate_new_computed_blocks(
        self: Any,
        request_id: str,
        new_computed_blocks: tuple[Sequence[Any], ...],
        num_local_computed_tokens: int,
        num_external_computed_tokens: int,
    ) -> None:
        partial = _partial(self)
        if partial is not None:
            # vLLM takes blocks for external tokens here: the sources must be out of its reach by then.
            partial.enter(request_id, new_computed_blocks, num_local_computed_tokens)
        original(self, request_id, new_computed_blocks, num_local_computed_tokens, num_external_computed_tokens)

    return allocate_new_computed_blocks


def allocate_new_blocks(original: Any) -> Callable[..., tuple[list[Any], ...]]:
    """``KVCacheCoordinator.allocate_new_blocks``, after which the copies are ordered: their destinations are
    allocated."""

    def allocate_new_blocks(
        self: Any, request_id: str, num_tokens: int, num_tokens_main_model: int, num_encoder_tokens: int = 0
    ) -> tuple[list[Any], ...]:
        blocks: tuple[list[Any], ...] = original(
            self, request_id, num_tokens, num_tokens_main_model, num_encoder_tokens
        )
        partial = getattr(self, "partial", None)
        if partial is not None and partial.entering:
            partial.entered(request_id, _tables(self, request_id))
        return blocks

    return allocate_new_blocks


def get_new_blocks(original: Any) -> Callable[..., list[Any]]:
    """``BlockPool.get_new_blocks``, after which no entry inside the blocks is known."""

    def get_new_blocks(self: Any, num_blocks: int) -> list[Any]:
        blocks: list[Any] = original(self, num_blocks)
        boundaries = getattr(self, "boundaries", None)
        if boundaries is not None:
            boundaries.forget_all(blocks)
        return blocks

    return get_new_blocks


def cache_blocks(original: Any) -> Callable[..., None]:
    """``KVCacheCoordinator.cache_blocks`` that also registers the boundaries inside blocks."""

    def cache_blocks(self: Any, request: Any, num_computed_tokens: int) -> None:
        original(self, request, num_computed_tokens)
        partial = getattr(self, "partial", None)
        if partial is not None:
            cursor = partial.cursors.get(request.request_id)
            if cursor is None or num_computed_tokens >= cursor.wake_tokens:
                partial.register(request, num_computed_tokens, self.single_type_managers)

    return cache_blocks


def cache_loaded_blocks(original: Any) -> Callable[..., None]:
    """``KVCacheManager.cache_blocks``, by which vLLM caches what was loaded: nothing of it is yet to be computed."""

    def cache_blocks(self: Any, request: Any, num_computed_tokens: int) -> None:
        partial = _partial(self.coordinator)
        if partial is None:
            original(self, request, num_computed_tokens)
            return
        partial.arrived = True
        try:
            original(self, request, num_computed_tokens)
        finally:
            partial.arrived = False

    return cache_blocks


def free(original: Any) -> Callable[..., None]:
    """``KVCacheCoordinator.free`` that forgets how far the request's boundaries were registered."""

    def free(self: Any, request_id: str) -> None:
        partial = _partial(self)
        if partial is not None:
            partial.forget(request_id)
        original(self, request_id)

    return free


def update_request_as_session(original: Any) -> Callable[..., None]:
    """``Scheduler._update_request_as_session``, by which a prompt grows: its replay boundary moves."""

    @wraps(original)
    def _update_request_as_session(self: Any, session: Any, update: Any) -> None:
        original(self, session, update)
        partial = _partial(self.kv_cache_manager.coordinator)
        if partial is not None:
            partial.wake(session.request_id)

    return _update_request_as_session


def get_num_common_prefix_blocks(original: Any) -> Callable[..., int]:
    """``FullAttentionManager.get_num_common_prefix_blocks`` that counts holders: a copy that reads a block is not a
    holder."""

    def get_num_common_prefix_blocks(self: Any, running_request_id: str) -> int:
        partial = _partial(self)
        reads = None if partial is None else partial.reads()
        if not reads:
            common: int = original(self, running_request_id)
            return common
        common = 0
        for block in self.req_to_blocks[running_request_id]:
            if block.ref_cnt - reads[block.block_id] != len(self.req_to_blocks):
                break
            common += 1
        return common

    return get_num_common_prefix_blocks


def generate_scheduler_kv_cache_config(original: Any) -> Callable[..., Any]:
    """``generate_scheduler_kv_cache_config``, after which the scheduler knows the ratios of all layers of a group."""

    def generate_scheduler_kv_cache_config(kv_cache_configs: list[Any]) -> Any:
        made = original(kv_cache_configs)
        # Every worker has layers of its own, if the model is cut between them.
        for group, *told in zip(
            made.kv_cache_groups, *(each.kv_cache_groups for each in kv_cache_configs), strict=True
        ):
            specs = [spec for each in told for spec in _specs(each.kv_cache_spec)]
            group.compress_ratios = tuple(sorted({compress_ratio(spec) for spec in specs}))
        return made

    return generate_scheduler_kv_cache_config


def _specs(spec: Any) -> list[Any]:
    """The specs of the layers that ``spec`` stands for."""
    return list(getattr(spec, "kv_cache_specs", {"": spec}).values())


_COORDINATOR = "vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator"
_POOL = "vllm.v1.core.block_pool:BlockPool"
_UPSTREAM = "vllm-project/vllm-ascend#10193, not merged; vLLM 0.25 has hits of another kind inside blocks"
_UNTIL = "vLLM's own hits end inside compressed blocks at every whole slot"

PATCHES = (
    Patch(
        f"{_COORDINATOR}.get_num_blocks_to_allocate",
        "The source of a copy is held until the copy is done, and what is yet to be computed cannot be copied.",
        "Sources are counted if they are not held; a hit that must wait for the step asks for more than there is.",
        _UPSTREAM,
        _UNTIL,
        "b9e3dd59be109943",
        pinning.get_num_blocks_to_allocate,
    ),
    Patch(
        f"{_COORDINATOR}.allocate_new_computed_blocks",
        "A block that is about to be copied must not be reused.",
        "The sources of the hit are held before any new block is taken.",
        _UPSTREAM,
        _UNTIL,
        "dd55024f0e625ece",
        allocate_new_computed_blocks,
    ),
    Patch(
        f"{_COORDINATOR}.allocate_new_blocks",
        "A copy goes into the request's own block after the full ones.",
        "The copies are ordered once that block is there.",
        _UPSTREAM,
        _UNTIL,
        "3a1bedba7c24df79",
        allocate_new_blocks,
    ),
    Patch(
        f"{_COORDINATOR}.cache_blocks",
        "vLLM knows content at the ends of blocks only.",
        "After vLLM's own code, each boundary that was reached becomes an entry, once.",
        _UPSTREAM,
        _UNTIL,
        {"0.20.2": "f26cd5bb17f02aaf", "0.23.0": "3a889a5b3e289a49"},
        cache_blocks,
    ),
    Patch(
        "vllm.v1.core.kv_cache_manager:KVCacheManager.cache_blocks",
        "What was loaded is there, and may be copied at once.",
        "What is registered meanwhile is not fenced.",
        _UPSTREAM,
        _UNTIL,
        "128ed073efbae33e",
        cache_loaded_blocks,
    ),
    Patch(
        f"{_COORDINATOR}.free",
        "A request that releases its blocks begins anew.",
        "How far its boundaries were registered is forgotten.",
        _UPSTREAM,
        _UNTIL,
        "54346f0e3aace1a4",
        free,
    ),
    Patch(
        "vllm.v1.core.sched.scheduler:Scheduler._update_request_as_session",
        "The next part of a session moves the last boundary from which its prompt can be replayed.",
        "After vLLM's own code, the request's next step looks for boundaries again.",
        _UPSTREAM,
        _UNTIL,
        "8198d818d7693499",
        update_request_as_session,
    ),
    Patch(
        "vllm.v1.core.single_type_kv_cache_manager:FullAttentionManager.get_num_common_prefix_blocks",
        "vLLM takes a block for common if it is held as often as there are requests; a pending copy holds it too.",
        "Pending copies are taken off.",
        "none: only copies make it necessary",
        _UNTIL,
        "8e69fcfefaad2ef9",
        get_num_common_prefix_blocks,
    ),
    Patch(
        f"{_POOL}.get_new_blocks",
        "A newly allocated block has no known entries.",
        "After vLLM's own code, the entries inside it are forgotten.",
        _UPSTREAM,
        _UNTIL,
        "4b20b12dc61e7e48",
        get_new_blocks,
    ),
    free_queue.EVICT,
    Patch(
        f"{_POOL}.reset_prefix_cache",
        "A reset forgets everything.",
        "If it succeeds, all entries are forgotten too.",
        _UPSTREAM,
        _UNTIL,
        "c24ac5cac145061e",
        pinning.reset_prefix_cache,
    ),
    Patch(
        "vllm.v1.core.kv_cache_utils:generate_scheduler_kv_cache_config",
        "Of layers with several compress ratios the scheduler gets one, and a hit must be whole slots of all.",
        "After vLLM's own code, each group gets the ratios of its layers.",
        "none: vLLM's hits end where blocks end",
        _UNTIL,
        "932daca0a664fb64",
        generate_scheduler_kv_cache_config,
    ),
)
