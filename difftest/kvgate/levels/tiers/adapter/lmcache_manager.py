"""LMCache's manager of memory on the host, with keys that are numbers, and what it evicts in.

The manager, its policy of eviction and its memory are LMCache's. Its thread, which evicts once a second where too much
is in use, does not run: what it does then is done when it is asked for. Each chunk holds its key, in bytes.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kvgate.adapters.fetching import fetch
from kvgate.adapters.releases import LMCACHE
from kvgate.kernel.errors import SystemUnavailableError
from kvgate.levels.tiers.adapter.host_manager import ChunkManager, Stored

POLICIES: Mapping[str, str] = {"lru": "LRU", "arc": "ARC"}
CHUNK_BYTES = 4096


def load_lmcache() -> None:
    """Import the manager of LMCache from the cache of releases; its telemetry is off.

    Raises:
        SystemUnavailableError: it cannot be fetched or imported.
    """
    folder = fetch(LMCACHE)
    os.environ["LMCACHE_TRACK_USAGE"] = "false"
    os.environ.setdefault("LMCACHE_LOG_LEVEL", "CRITICAL")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        importlib.import_module("lmcache.v1.distributed.l1_manager")
    except Exception as error:
        raise SystemUnavailableError(
            f"{LMCACHE.name} in {folder} cannot be imported: {type(error).__name__}: {error}"
        ) from error


class LMCacheManager(ChunkManager):
    """An ``L1Manager`` with the policy of its ``L1EvictionController``."""

    evicts_apart = True

    def __init__(self, chunks: int, policy: str) -> None:
        config: Any = importlib.import_module("lmcache.v1.distributed.config")
        manager: Any = importlib.import_module("lmcache.v1.distributed.l1_manager")
        controllers: Any = importlib.import_module("lmcache.v1.distributed.storage_controllers.eviction_controller")
        torch: Any = importlib.import_module("torch")
        self._api: Any = importlib.import_module("lmcache.v1.distributed.api")
        memory = config.L1MemoryManagerConfig(
            size_in_bytes=chunks * CHUNK_BYTES, use_lazy=False, align_bytes=CHUNK_BYTES, shm_name=""
        )
        self._manager = manager.L1Manager(config.L1ManagerConfig(memory_config=memory))
        self._controller = controllers.L1EvictionController(self._manager, config.EvictionConfig(POLICIES[policy]))
        self._layout = self._api.MemoryLayoutDesc([torch.Size([1])], [torch.int64])
        self._memory: dict[int, Any] = {}
        """The memory that each key was last given to write."""

    def _keys(self, numbers: Iterable[int]) -> list[Any]:
        return [self._api.ObjectKey(number.to_bytes(8, "big"), "model", 0) for number in numbers]

    @staticmethod
    def _answers(answers: Mapping[Any, Any]) -> dict[int, tuple[str, Any]]:
        """What it answers for each key: a word, and the memory, where it gives some."""
        pairs = {key: each if isinstance(each, tuple) else (each, None) for key, each in answers.items()}
        return {int.from_bytes(key.chunk_hash, "big"): (word.name, memory) for key, (word, memory) in pairs.items()}

    @staticmethod
    def _chunks(answers: Mapping[int, tuple[str, Any]]) -> list[int]:
        return [memory.meta.address // CHUNK_BYTES for _, memory in answers.values() if memory is not None]

    def _refused(self, answers: Mapping[Any, Any]) -> list[int]:
        return [key for key, (word, _) in self._answers(answers).items() if word != "SUCCESS"]

    @property
    def evictable(self) -> int:
        return sum(self._manager.is_key_evictable(key) for key in self._keys(self._memory))

    @property
    def storing(self) -> int:
        return int(self._manager.report_status()["staging_object_count"])

    @property
    def used(self) -> int:
        return int(self._manager.get_memory_usage()[0]) // CHUNK_BYTES

    def look_up(self, key: int) -> str:
        wanted = self._keys([key])
        if not self._refused(self._manager.reserve_read(wanted)):
            self._manager.finish_read(wanted)
            return "HIT"
        # Readers do not see what is being stored: only its writer does.
        return "MISS" if self._manager._get_staging(wanted[0], "") is None else "HIT_PENDING"

    def store(self, keys: Sequence[int], request: Any) -> Stored | None:
        del request
        answers = self._answers(self._manager.reserve_write(self._keys(keys), [False] * len(keys), self._layout))
        if any(word == "OUT_OF_MEMORY" for word, _ in answers.values()):
            return None
        given = {key: (word, memory) for key, (word, memory) in answers.items() if memory is not None}
        self._memory.update({key: memory for key, (_, memory) in given.items()})
        return Stored([*given], self._chunks(given), [])

    def end_store(self, keys: Sequence[int], request: Any, succeeded: bool) -> list[int]:
        del request
        if not succeeded:
            return self._refused(self._manager.finish_write_and_delete(self._keys(keys)))
        self._write(keys)
        return self._refused(self._manager.finish_write(self._keys(keys)))

    def load(self, keys: Sequence[int], request: Any) -> list[int]:
        del request
        return self._chunks(self._answers(self._manager.reserve_read(self._keys(keys))))

    def end_store_and_load(self, keys: Sequence[int]) -> list[int]:
        self._write(keys)
        return self._chunks(self._answers(self._manager.finish_write_and_reserve_read(self._keys(keys))))

    def _write(self, keys: Sequence[int]) -> None:
        """What a store does to the memory that it was given."""
        for key in keys:
            self._memory[key].tensor.fill_(key)

    def end_load(self, keys: Sequence[int], request: Any) -> list[int]:
        del request
        read = self._answers(self._manager.unsafe_read(self._keys(keys)))
        others = [key for key, (_, memory) in read.items() if memory is None or memory.tensor.item() != key]
        return others + self._refused(self._manager.finish_read(self._keys(keys)))

    def touch(self, keys: Sequence[int], request: Any) -> None:
        del request
        self._manager.touch_keys(self._keys(keys))

    def reset(self) -> None:
        self._manager.clear(force=True)

    def evict(self, share: float) -> list[int]:
        before = self._there()
        policy = self._controller._eviction_policy
        for action in policy.get_eviction_actions(share, key_eligible_filter=self._manager.is_key_evictable):
            self._controller.execute_eviction_action(action)
        return sorted(before - self._there())

    def delete(self, keys: Sequence[int]) -> list[int]:
        return self._refused(self._manager.delete(self._keys(keys)))

    def clear(self) -> None:
        self._manager.clear()

    def _there(self) -> set[int]:
        return {key for key in self._memory if self.look_up(key) == "HIT"}
