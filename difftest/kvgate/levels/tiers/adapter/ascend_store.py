"""vLLM-Ascend's ``AscendStoreConnector``: both of its halves, on tensors of the CPU, with a store in memory.

The store is a model, for those that the connector has are other products, with hardware of their own: it keeps so many
blocks, evicts what was stored first, and says of a block that is gone that it cannot be read. What the halves ask each
other over a socket is a call here, and what waits for the device finds it idle.
"""

from __future__ import annotations

import ctypes
from collections import Counter, OrderedDict
from collections.abc import Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any, ClassVar

from kvgate.adapters.kv_cache_groups import alone
from kvgate.kernel.errors import UsageError
from kvreference.settings import Settings

PACKAGE = "vllm_ascend.distributed.kv_transfer.kv_pool.ascend_store"
BACKEND = "kvgate"


def configuration(settings: Settings, chunks: int) -> dict[str, Any]:
    """The store has room for so many blocks."""
    del settings
    Store.blocks_max = chunks
    return {"backend": BACKEND}


class Store:
    """A store of blocks by key."""

    blocks_max: ClassVar[int] = 1
    kept: ClassVar[OrderedDict[str, list[bytes]]] = OrderedDict()
    stores: ClassVar[Counter[str]] = Counter()
    """How often each key was stored."""
    taken_from: ClassVar[dict[str, int]] = {}
    """By key, the address of what was stored last."""
    brought: ClassVar[dict[int, tuple[str, bytes, int]]] = {}
    """By address, the key that was read to there last, what came, which is nothing if it was gone, and its address when
    it was stored."""

    def __init__(self, *_arguments: Any, **_named: Any) -> None:
        """The device and its configuration are nothing to it."""

    @classmethod
    def create_scheduler_client(cls, _parallel: Any) -> Store:
        return cls()

    def set_device(self) -> None:
        """There is none."""

    def register_buffer(self, ptrs: Sequence[int], lengths: Sequence[int]) -> None:
        """All memory can be read."""

    def exists(self, keys: Sequence[str]) -> list[int]:
        return [int(key in self.kept) for key in keys]

    batch_is_exist = exists

    def put(self, keys: Sequence[str], addrs: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]]) -> list[int]:
        for key, places, lengths in zip(keys, addrs, sizes, strict=True):
            self.kept[key] = [ctypes.string_at(*each) for each in zip(places, lengths, strict=True)]
            self.kept.move_to_end(key)
            self.stores[key] += 1
            self.taken_from[key] = places[0]
            while len(self.kept) > self.blocks_max:
                self.kept.popitem(last=False)
        return [0] * len(keys)

    def get(self, keys: Sequence[str], addrs: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]]) -> list[int]:
        answers = []
        for key, places, lengths in zip(keys, addrs, sizes, strict=True):
            held = self.kept.get(key, [])
            answers.append(0 if held else 1)
            self.brought[places[0]] = key, held[0] if held else b"", self.taken_from.get(key, 0)
            for part, place, length in zip(held, places, lengths, strict=False):
                ctypes.memmove(place, part, length)
        return answers


class _Event:
    """What the device has reached: it is idle."""

    def record(self) -> None:
        """Nothing is under way."""

    def synchronize(self) -> None:
        """There is nothing to wait for."""


class _Lookup:
    """What the half at the scheduler asks the half at the worker."""

    worker: ClassVar[Any] = None

    def __init__(self, *halves: Any) -> None:
        if len(halves) > 1:
            _Lookup.worker = halves[0]

    def lookup(self, tokens: int, hashes: Sequence[bytes], groups: Sequence[int], hbm_hit_tokens: int = 0) -> int:
        named = [each.hex() for each in hashes]
        found = self.worker.lookup_scheduler(tokens, named, groups, use_layerwise=False, hbm_hit_tokens=hbm_hit_tokens)
        return int(found)


def connector() -> Any:
    """The class of the connector, for the vLLM-Ascend that is loaded.

    Raises:
        UsageError: none is.
    """
    import torch

    device: Any = torch.__dict__.setdefault("npu", SimpleNamespace())
    device.Event = _Event
    try:
        module: Any = import_module(f"{PACKAGE}.ascend_store_connector")
        backends: Any = import_module(f"{PACKAGE}.backend")
        scheduler: Any = import_module(f"{PACKAGE}.pool_scheduler")
    except ImportError as error:
        raise UsageError(
            f"--connector ascend-store is that of vLLM-Ascend: run it with --sut ascend@... ({error})"
        ) from error
    backends.backend_map[BACKEND] = {"name": "Store", "path": __name__}
    module.LookupKeyServer = scheduler.LookupKeyClient = _Lookup

    class AscendStore(module.AscendStoreConnector):  # type: ignore[misc] # of a class that mypy does not see
        """Each case begins with an empty store."""

        def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
            from vllm.config import set_current_vllm_config

            if role.name == "SCHEDULER":
                for each in (Store.kept, Store.stores, Store.taken_from, Store.brought):
                    each.clear()
            with set_current_vllm_config(vllm_config):
                alone()
            super().__init__(vllm_config, role, kv_cache_config)

        @staticmethod
        def was_stored_again(address: int) -> bool:
            """Whether what was last read to there came, and had been stored more than once."""
            key, came, _ = Store.brought.get(address, ("", b"", 0))
            return bool(came) and Store.stores[key] > 1

        @staticmethod
        def was_read_by(address: int, block_hash: bytes, group: int) -> bool:
            """Whether what was last read to there has this block hash and group in its key."""
            key, _, _ = Store.brought.get(address, ("", b"", 0))
            return key.endswith(f"@{block_hash.hex()}") and f"@group:{group}@" in key

        @staticmethod
        def slots_read(address: int) -> Sequence[int]:
            """What was last read to there, by slot."""
            return memoryview(Store.brought.get(address, ("", b"", 0))[1]).cast("q")

        @staticmethod
        def was_stored_from(address: int, source: int) -> bool:
            """Whether what was last read to there had been stored from this address."""
            return address in Store.brought and Store.brought[address][2] == source

        @staticmethod
        def was_gone(address: int) -> bool:
            """Whether what was last to be read to there was gone."""
            return address in Store.brought and not Store.brought[address][1]

    return AscendStore


def __getattr__(name: str) -> Any:
    """The connector's class, which is made when it is asked for: vLLM-Ascend is loaded then."""
    if name != "AscendStore":
        raise AttributeError(name)
    made = globals()[name] = connector()
    return made
