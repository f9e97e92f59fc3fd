"""The manager of vLLM's host tier, with keys that are numbers."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from attrs import frozen


@frozen
class Stored:
    """What a manager answers when something is to be stored."""

    keys: Sequence[int]
    chunks: Sequence[int]
    evicted: Sequence[int]


class HostManager:
    """A ``CPUOffloadingManager``."""

    def __init__(self, chunks: int, policy: str) -> None:
        self._base: Any = import_module("vllm.v1.kv_offload.base")
        manager: Any = import_module("vllm.v1.kv_offload.cpu.manager")
        self._manager = manager.CPUOffloadingManager(num_chunks=chunks, cache_policy=policy)
        self._requests = 0

    @property
    def evictable(self) -> int:
        """How many chunks it may evict."""
        return int(self._manager._num_evictable_cache_chunks)

    @property
    def storing(self) -> int:
        """How many chunks are being stored."""
        return int(self._manager._num_write_pending_chunks)

    def _keys(self, numbers: Sequence[int]) -> list[Any]:
        return [self._base.make_offload_key(number.to_bytes(8, "big"), 0) for number in numbers]

    def _numbers(self, keys: Sequence[Any]) -> list[int]:
        return [int.from_bytes(self._base.get_offload_block_hash(key), "big") for key in keys]

    def request(self) -> Any:
        """A new request, as it knows one."""
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

    def end_store(self, keys: Sequence[int], request: Any, succeeded: bool) -> None:
        self._manager.complete_store(self._keys(keys), request, success=succeeded)

    def load(self, keys: Sequence[int], request: Any) -> list[int]:
        return [int(chunk) for chunk in self._manager.prepare_load(self._keys(keys), request).block_ids]

    def end_load(self, keys: Sequence[int], request: Any) -> None:
        self._manager.complete_load(self._keys(keys), request)

    def touch(self, keys: Sequence[int], request: Any) -> None:
        self._manager.touch(self._keys(keys), request)

    def reset(self) -> None:
        self._manager.reset_cache()
