"""Managers of chunks on the host, with keys that are numbers; and that of vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol

from attrs import frozen


@frozen
class Stored:
    """What a manager answers when something is to be stored."""

    keys: Sequence[int]
    chunks: Sequence[int]
    evicted: Sequence[int]


class ChunkManager(Protocol):
    """What a manager of chunks is asked, and what it says."""

    evicts_apart: bool
    """Whether it evicts where it is asked to, and not where a store needs room. Then it also knows no requests."""

    @property
    def evictable(self) -> int:
        """How many chunks it may evict."""

    @property
    def storing(self) -> int:
        """How many chunks are being stored."""

    @property
    def used(self) -> int:
        """How many chunks hold something, or are to hold it."""

    def request(self) -> Any:
        """A new request, as it knows one."""

    def leave(self, request: Any) -> None:
        """A request is gone."""

    def look_up(self, key: int) -> str:
        """``HIT``, ``HIT_PENDING`` if it is being stored, or ``MISS``."""
        ...

    def store(self, keys: Sequence[int], request: Any) -> Stored | None:
        """These keys are to be stored; None if there is no room."""

    def end_store(self, keys: Sequence[int], request: Any, succeeded: bool) -> Sequence[int]:
        """A store ends; returns the keys for which that is refused."""
        ...

    def load(self, keys: Sequence[int], request: Any) -> Sequence[int]:
        """A load begins; returns the chunks that it reads."""
        ...

    def end_load(self, keys: Sequence[int], request: Any) -> Sequence[int]:
        """A load ends; returns the keys for which that is refused, or which are not what was read."""
        ...

    def touch(self, keys: Sequence[int], request: Any) -> None:
        """A request uses these keys."""

    def reset(self) -> None:
        """All is forgotten, and what is under way is over."""

    def end_store_and_load(self, keys: Sequence[int]) -> Sequence[int]:
        """A store succeeds, and a load of its keys begins; returns the chunks that it reads."""
        raise NotImplementedError

    def evict(self, share: float) -> Sequence[int]:
        """This share of the keys is to be evicted; returns those that were."""
        raise NotImplementedError

    def delete(self, keys: Sequence[int]) -> Sequence[int]:
        """These keys are to be forgotten; returns those for which that is refused."""
        raise NotImplementedError

    def clear(self) -> None:
        """All is to be forgotten that no job holds."""
        raise NotImplementedError


class HostManager(ChunkManager):
    """A ``CPUOffloadingManager``."""

    evicts_apart = False

    def __init__(self, chunks: int, policy: str) -> None:
        self._base: Any = import_module("vllm.v1.kv_offload.base")
        manager: Any = import_module("vllm.v1.kv_offload.cpu.manager")
        self._manager = manager.CPUOffloadingManager(num_chunks=chunks, cache_policy=policy)
        self._requests = 0

    @property
    def evictable(self) -> int:
        return int(self._manager._num_evictable_cache_chunks)

    @property
    def storing(self) -> int:
        return int(self._manager._num_write_pending_chunks)

    @property
    def used(self) -> int:
        return int(self._manager._num_chunks - self._manager._get_num_free_chunks())

    def _keys(self, numbers: Sequence[int]) -> list[Any]:
        return [self._base.make_offload_key(number.to_bytes(8, "big"), 0) for number in numbers]

    def _numbers(self, keys: Sequence[Any]) -> list[int]:
        return [int.from_bytes(self._base.get_offload_block_hash(key), "big") for key in keys]

    def request(self) -> Any:
        self._requests += 1
        request = self._base.ReqContext(f"request-{self._requests}")
        self._manager.on_new_request(request)
        return request

    def leave(self, request: Any) -> None:
        self._manager.on_request_finished(request)

    def look_up(self, key: int) -> str:
        return str(self._manager.lookup(self._keys([key])[0], self._base.ReqContext("look-up")).name)

    def store(self, keys: Sequence[int], request: Any) -> Stored | None:
        answer = self._manager.prepare_store(self._keys(keys), request)
        if answer is None:
            return None
        chunks = [int(chunk) for chunk in answer.store_spec.block_ids]
        return Stored(self._numbers(answer.keys_to_store), chunks, self._numbers(answer.evicted_keys))

    def end_store(self, keys: Sequence[int], request: Any, succeeded: bool) -> list[int]:
        self._manager.complete_store(self._keys(keys), request, success=succeeded)
        return []

    def load(self, keys: Sequence[int], request: Any) -> list[int]:
        return [int(chunk) for chunk in self._manager.prepare_load(self._keys(keys), request).block_ids]

    def end_load(self, keys: Sequence[int], request: Any) -> list[int]:
        self._manager.complete_load(self._keys(keys), request)
        return []

    def touch(self, keys: Sequence[int], request: Any) -> None:
        self._manager.touch(self._keys(keys), request)

    def reset(self) -> None:
        self._manager.reset_cache()
