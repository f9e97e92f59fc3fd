"""Where everything stands in a live scheduler: its requests by number, and the whole state of its block manager."""

from __future__ import annotations

from array import array
from typing import Any

from kvgate.adapters.work_meter import following
from kvgate.shadow.calls import Appended, Arriving, Checkpoint, Media, Standing
from kvgate.shadow.salted import TOKEN


class RequestBook:
    """Which number a request has, and how many of its tokens were told."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._tokens: dict[str, int] = {}
        self._next = 0

    def clear(self) -> None:
        """Nobody is known. Numbers are not given twice."""
        self.numbers.clear()
        self._tokens.clear()

    def forget(self, name: str) -> None:
        """A request is over."""
        del self.numbers[name], self._tokens[name]

    def arrival_of(self, request: Any) -> Arriving:
        """A request, with all the tokens that it has."""
        name, tokens = request.request_id, request._all_token_ids
        self.numbers[name], self._next = self._next, self._next + 1
        self._tokens[name] = len(tokens)
        return Arriving(
            self.numbers[name],
            array(TOKEN, tokens).tobytes(),
            request.num_prompt_tokens,
            not request.skip_reading_prefix_cache,
            request.cache_salt,
            request.lora_request.name if request.lora_request else None,
            [Media(item.identifier, item.mm_position.offset, item.mm_position.length) for item in request.mm_features],
        )

    def more_of(self, request: Any) -> Appended | None:
        """The tokens of a request that were not told yet.

        Raises:
            ValueError: it has fewer than were told.
        """
        name, tokens = request.request_id, request._all_token_ids
        known = self._tokens[name]
        if len(tokens) == known:
            return None
        if len(tokens) < known:
            raise ValueError("a request has lost tokens, which cannot be followed")
        self._tokens[name] = len(tokens)
        return Appended(self.numbers[name], tokens[known:])


def checkpoint_of(scheduler: Any, book: RequestBook) -> Checkpoint:
    """All of the block manager's state. It takes time in proportion to the pool."""
    manager = scheduler.kv_cache_manager
    pool = manager.block_pool
    several = [list(blocks) for blocks in pool.cached_block_hash_to_block._cache.values() if isinstance(blocks, dict)]
    return Checkpoint(
        [block.ref_cnt for block in pool.blocks],
        _free_queue(pool),
        {block.block_id: block._block_hash for block in pool.blocks if block._block_hash is not None},
        [blocks for blocks in several if len(blocks) > 1],
        [_standing(manager, name, number) for name, number in book.numbers.items()],
    )


def _standing(manager: Any, name: str, number: int) -> Standing:
    managers = manager.coordinator.single_type_managers
    return Standing(
        number,
        list(manager.get_block_ids(name)),
        [each.num_cached_block.get(name, 0) for each in managers],
        any(each.req_to_blocks.get(name) for each in managers),
    )


def _free_queue(pool: Any) -> list[int]:
    queue = pool.free_block_queue
    follow, end = following(queue.fake_free_list_head), queue.fake_free_list_tail
    block: Any = follow(queue.fake_free_list_head)
    found: list[int] = []
    while block is not None and block is not end and len(found) <= pool.num_gpu_blocks:
        found.append(block.block_id)
        block = follow(block)
    return found
