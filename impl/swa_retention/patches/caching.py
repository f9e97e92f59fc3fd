"""vLLM's caching: only blocks that a hit can reach are cached, and not before they can be reached."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from attrs import evolve

from swa_retention.junctions import JUNCTION
from swa_retention.register import Patch


def cache_blocks(original: Any) -> Callable[..., None]:
    """``SingleTypeKVCacheManager.cache_blocks`` that passes over what no hit can reach.

    vLLM's own counter of cached blocks counts what was settled: a block that is not due yet, and all after it, are
    looked at again.
    """
    parameters = inspect.signature(original).parameters

    # A coordinator of a newer vLLM says more, by keyword, than this one's managers know. Each keyword is named: to call
    # a function that takes any keyword is slower, and this one is called in every step.
    def cache_blocks(
        self: Any,
        request: Any,
        num_tokens: int,
        alignment_tokens: int | None = None,
        retention_interval: int | None = None,
    ) -> None:
        start = self.num_cached_block.get(request.request_id, 0)
        if start >= num_tokens // self.block_size:
            # In most steps no block has become full, and vLLM's own does nothing then either.
            return
        reach = getattr(self, "reach", None)
        if reach is None:
            newer = {"alignment_tokens": alignment_tokens, "retention_interval": retention_interval}
            original(self, request, num_tokens, **{name: newer[name] for name in newer if name in parameters})
            return
        junction_tokens = getattr(request, JUNCTION, 0)
        spans, position = reach.due(start, num_tokens, self.replay_boundary_tokens(request), junction_tokens)
        pool = self.block_pool
        for first, end in spans:
            blocks = self.req_to_blocks[request.request_id]
            # vLLM's own function passes over the null block, but an event of it names what is passed over too.
            runs = _runs(blocks, range(first, end)) if pool.enable_kv_cache_events else ((first, end),)
            hashes = end * self.block_size // pool.hash_block_size
            known = request if hashes >= len(request.block_hashes) else Beginning(request, hashes)
            for first_of_run, end_of_run in runs:
                pool.cache_full_blocks(
                    request=known,
                    blocks=blocks,
                    num_cached_blocks=first_of_run,
                    num_full_blocks=end_of_run,
                    block_size=self.block_size,
                    kv_cache_group_id=self.kv_cache_group_id,
                )
        self.num_cached_block[request.request_id] = position

    return cache_blocks


def cache_to_the_token(original: Any) -> Callable[..., None]:
    """``HybridKVCacheCoordinator.cache_blocks`` that rounds nothing where the plug-in says what is cached.

    vLLM's own passes on the last boundary of hits of whole blocks, and what is due after it has to wait.
    """
    from vllm.v1.core.kv_cache_coordinator import KVCacheCoordinator

    def cache_blocks(self: Any, request: Any, num_computed_tokens: int) -> None:
        if getattr(self, "says_what_is_cached", False):
            KVCacheCoordinator.cache_blocks(self, request, num_computed_tokens)
        else:
            original(self, request, num_computed_tokens)

    return cache_blocks


def _runs(blocks: Sequence[Any], positions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Of ``positions`` those that hold a block, neighbours together, as half-open ranges."""
    first, end = 0, 0
    for position in positions:
        if blocks[position].is_null:
            continue
        if position != end:
            if first < end:
                yield first, end
            first = position
        end = position + 1
    if first < end:
        yield first, end


class Beginning:
    """A request of which no more is known than its first hashes.

    vLLM's function copies all hashes from the first block that it caches on. For a long prompt that is cached here and
    there, each time all the rest of them.
    """

    def __init__(self, request: Any, hashes: int) -> None:
        self._request = request
        self.block_hashes = _First(request.block_hashes, hashes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)


class _First(Sequence[Any]):
    """The first of a list's elements, without a copy."""

    def __init__(self, elements: Sequence[Any], length: int) -> None:
        self._elements = elements
        self._length = min(length, len(elements))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            return self._elements[start:stop:step]
        return self._elements[index]


_UNTIL = "vLLM 0.23, which has it"

PATCHES = (
    Patch(
        "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager.cache_blocks",
        "A block that no hit can reach is cached, and pushes out one that a hit could reach.",
        "Each block is asked when it is due; nothing changes where retention is off.",
        "vllm-project/vllm#42258, #43447, #44082",
        _UNTIL,
        {"0.20.2": "fc671343f348797e", "0.22.1": "bf129875272ae9fb", "0.23.0": "0235a67bc06ee518"},
        cache_blocks,
    ),
    Patch(
        "vllm.v1.core.kv_cache_coordinator:HybridKVCacheCoordinator.cache_blocks",
        "Managers are passed the last boundary of hits of whole blocks, and cache what is due after it too late.",
        "Where the plug-in says what is cached, it is the function of all coordinators, which rounds nothing.",
        "vllm-project/vllm#42258",
        _UNTIL,
        {"0.22.1": "51533ed5cea438c9", "0.23.0": "edc0ff4088ac531f"},
        cache_to_the_token,
    ),
)
WHERE_VLLM_MASKS = tuple(
    evolve(patch, written_for={release: one for release, one in patch.written_for.items() if release != "0.20.2"})
    for patch in PATCHES
    if isinstance(patch.written_for, dict)
)
"""What partial hits need on a vLLM that leaves out what hits of whole blocks cannot read."""
