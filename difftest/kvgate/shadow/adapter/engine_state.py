"""The state of a live scheduler: its requests by number, and the whole state of its block manager."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any

from attrs import define, field

from kvgate.adapters.groups import spec_block_size_tokens
from kvgate.adapters.native import begun_keys
from kvgate.shadow.calls import Appended, Arriving, Checkpoint, EventRun, Media, Standing
from kvgate.shadow.salting import TOKEN

LOST_TOKENS = "a request has lost tokens, which cannot be followed"
LOST_MAX = 1000
"""How many requests are remembered that the scheduler has forgotten with their blocks."""


@define
class Followed:
    """A request that is followed."""

    number: int
    tokens: int
    """How many of its tokens were sent."""
    nulls: list[int] = field(factory=list)
    """Per group with a window, how many leading entries are known to be freed."""


class RequestBook:
    """The requests that are followed, by name."""

    def __init__(self, windowed_groups: int = 0) -> None:
        self.followed: dict[str, Followed] = {}
        self.lost: dict[str, Followed] = {}
        """The requests that the scheduler has forgotten, with blocks that were never freed."""
        self._windowed_groups = windowed_groups
        self._next = 0
        self.version = 0
        """Counts up whenever a request is followed from then on, or no longer."""

    def clear(self) -> None:
        """Follow no request. Numbers are not given twice, and blocks that were lost still are."""
        self.followed.clear()
        self.version += 1

    def lose(self, name: str) -> int:
        """A request is over, and still has its blocks; its number."""
        lost = self.lost[name] = self.followed.pop(name)
        self.version += 1
        if len(self.lost) > LOST_MAX:
            del self.lost[next(iter(self.lost))]
        return lost.number

    def keep_lost(self, holds: Callable[[str], bool]) -> None:
        """Drop the requests of which no block is lost any more."""
        self.lost = {name: lost for name, lost in self.lost.items() if holds(name)}

    def forget(self, name: str) -> None:
        """A request is over."""
        del self.followed[name]
        self.version += 1

    def clear_blocks(self, name: str) -> None:
        """A request has freed its blocks, and those that it has next are new."""
        self.followed[name].nulls = [0] * self._windowed_groups

    def arrival_of(self, request: Any) -> Arriving:
        """A request, with all the tokens that it has."""
        name, tokens = request.request_id, request._all_token_ids
        # What its table holds is counted with this request from now on.
        self.lost.pop(name, None)
        self.followed[name] = Followed(self._next, len(tokens), [0] * self._windowed_groups)
        self._next += 1
        self.version += 1
        return Arriving(
            self.followed[name].number,
            array(TOKEN, tokens).tobytes(),
            request.num_prompt_tokens,
            not request.skip_reading_prefix_cache,
            request.cache_salt,
            request.lora_request.name if request.lora_request else None,
            [Media(item.identifier, item.mm_position.offset, item.mm_position.length) for item in request.mm_features],
        )


def more_of(tokens: list[int], followed: Followed) -> Appended:
    """The tokens of a request that were not sent yet.

    Raises:
        ValueError: it has fewer than were sent.
    """
    known = followed.tokens
    if len(tokens) < known:
        raise ValueError(LOST_TOKENS)
    followed.tokens = len(tokens)
    return Appended(followed.number, tokens[known:])


def checkpoint_of(scheduler: Any, book: RequestBook) -> Checkpoint:
    """All of the block manager's state. It takes time in proportion to the pool."""
    manager = scheduler.kv_cache_manager
    pool = manager.block_pool
    book.keep_lost(lambda name: any(map(any, manager.get_block_ids(name))))
    sizes = [spec_block_size_tokens(group.kv_cache_spec) for group in scheduler.kv_cache_config.kv_cache_groups]
    begun = begun_keys(pool, sizes)
    known = [(block.block_id, block._block_hash) for block in pool.blocks if block._block_hash is not None]
    return Checkpoint(
        [block.ref_cnt for block in pool.blocks],
        _free_queue(pool),
        {block: key for block, key in known if key not in begun.get(block, ())},
        _several(pool.cached_block_hash_to_block._cache),
        [
            _request_state(manager, scheduler.requests.get(name), name, followed.number)
            for those in (book.followed, book.lost)
            for name, followed in those.items()
        ],
    )


def event_runs(events: Iterable[Any]) -> list[EventRun]:
    """KV events, those of one kind and one group that follow each other as one."""
    runs: list[EventRun] = []
    for event in events:
        kind = type(event).__name__
        hashes = [_bytes(each) for each in getattr(event, "block_hashes", ())]
        group = getattr(event, "group_idx", 0) or 0
        if runs and (kind, group) == (runs[-1].kind, runs[-1].group):
            runs[-1].hashes.extend(hashes)
        elif hashes or not hasattr(event, "block_hashes"):
            runs.append(EventRun(kind, group, hashes))
    return runs


def _bytes(known_by: int | bytes) -> bytes:
    return known_by if isinstance(known_by, bytes) else str(known_by).encode()


def _request_state(manager: Any, request: Any, name: str, number: int) -> Standing:
    managers = manager.coordinator.single_type_managers
    return Standing(
        number,
        list(manager.get_block_ids(name)),
        [each.num_cached_block.get(name, 0) for each in managers],
        any(each.req_to_blocks.get(name) for each in managers),
        _junction_tokens(request),
    )


def _junction_tokens(request: Any) -> int:
    """Where a request parted from what was cached, as newer releases note it, or the plug-in; 0 if neither does."""
    noted = (getattr(request, name, 0) for name in ("shared_prefix_boundary", "swa_retention_junction_tokens"))
    return next(filter(None, noted), 0)


def _free_queue(pool: Any) -> list[int]:
    queue = pool.free_block_queue
    end, block = queue.fake_free_list_tail, queue.fake_free_list_head.next_free_block
    found: list[int] = []
    # A queue that has become a ring ends here, too.
    for _ in range(pool.num_gpu_blocks + 1):
        if block is None or block is end:
            break
        found.append(block.block_id)
        block = block.next_free_block
    return found


def _several(cache: dict[Any, Any]) -> list[list[int]]:
    """The blocks that have one content with others, of which a cache keeps a map."""
    if not any(issubclass(kind, dict) for kind in set(map(type, cache.values()))):
        return []
    return [list(blocks) for blocks in cache.values() if isinstance(blocks, dict) and len(blocks) > 1]
