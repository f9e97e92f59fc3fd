"""LMCache's connector for vLLM: both of its halves, its engine and its memory on the host, on tensors of the CPU.

Three things stand in for what a machine without an accelerator, or a single process, does not have. LMCache has no
copies between such tensors and its memory: ``_copies`` has. Its halves talk over sockets: here over queues. Its server
for processes that offload their own memory does not run. Each case has an engine of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from queue import Empty, Queue
from types import ModuleType
from typing import Any

from kvgate.adapters.kv_cache_groups import alone
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.levels.tiers.adapter.lmcache_manager import load_lmcache
from kvreference.settings import Settings

NUMBER_BYTES, ALIGNMENT_BYTES = 8, 4096
UNUSED = ("aiofile", "aiofiles")
"""What LMCache imports and calls only for files."""
_made: list[Any] = []
"""The halves of the case before."""


def configuration(settings: Settings, chunks: int) -> dict[str, Any]:
    """A chunk is a block, and the host has room for so many."""
    return {
        "lmcache.chunk_size": settings.geometry.groups[0].block_size_tokens,
        "lmcache.local_cpu": True,
        "lmcache.max_local_cpu_size": chunks * ALIGNMENT_BYTES / 2**30,
        "lmcache.pre_caching_hash_algorithm": "sha256_cbor",
        "lmcache.save_unfull_chunk": False,
    }


def connector() -> Any:
    """The class of the connector, once LMCache is imported.

    Raises:
        UsageError: LMCache cannot be imported.
    """
    for name in UNUSED:
        if find_spec(name) is None:
            sys.modules.setdefault(name, ModuleType(name)).__dict__.setdefault("AIOFile", None)
    os.environ["LMCACHE_DISABLE_BANNER"] = "1"
    # Before the process waits for its threads, which the last case's engine has.
    threads: Any = import_module("threading")
    threads._register_atexit(_end)
    try:
        load_lmcache()
        module: Any = import_module("lmcache.integration.vllm.lmcache_connector_v1")
        engines: Any = import_module("lmcache.v1.gpu_connector")
        services: Any = import_module("lmcache.integration.vllm.vllm_service_factory")
        factory: Any = import_module("lmcache.v1.lookup_client.factory")
        utils: Any = import_module("lmcache.integration.vllm.utils")
    except (ImportError, SystemUnavailableError) as error:
        raise UsageError(f"--connector lmcache: LMCache cannot be imported: {type(error).__name__}: {error}") from error
    engines.CreateGPUConnector = lambda _config, metadata, *_rest, **_named: _copies(engines)(metadata)
    services.VllmServiceFactory.maybe_create_offload_server = lambda _factory: None
    # Its copies do not ask how the device lays out its blocks.
    utils.vllm_layout_hints = lambda _config: {}
    lookups = factory.LookupClientFactory
    lookups._create_zmq_client_transport = staticmethod(lambda *_arguments: Line.latest)
    lookups._create_zmq_server_transport = staticmethod(lambda *_arguments: Line.latest)

    class LMCache(module.LMCacheConnectorV1Dynamic):  # type: ignore[misc] # of a class that mypy does not see
        """LMCache's connector, which says if its engine does not run, and ends with its case."""

        def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
            from vllm.config import set_current_vllm_config

            if role.name == "SCHEDULER":
                _end()
                Line.latest = Line()
            with set_current_vllm_config(vllm_config):
                alone()
            super().__init__(vllm_config, role, kv_cache_config)
            _made.append(self)
            manager = self._lmcache_engine._manager
            if manager._init_failed:
                raise UsageError(f"LMCache's engine does not run: {manager._init_failed_reason}")

    return LMCache


def _end() -> None:
    while _made:
        _made.pop().shutdown()


def _copies(engines: Any) -> Callable[[Any], Any]:
    class Copies(engines.GPUConnectorInterface):  # type: ignore[misc] # of a class that mypy does not see
        """Copies slots between the device's tensor and LMCache's memory, at once."""

        def __init__(self, metadata: Any) -> None:
            self.kvcaches = None
            self._shape = metadata.kv_shape

        def get_shape(self, num_tokens: int) -> Any:
            import torch

            return torch.Size([1, 1, num_tokens, NUMBER_BYTES])

        def _slots(self, memory_obj: Any, start: int, end: int, **named: Any) -> tuple[Any, Any, Any]:
            import torch

            self.initialize_kvcaches_ptr(**named)
            assert self.kvcaches is not None
            held = memory_obj.raw_data.view(torch.uint8).flatten()[: NUMBER_BYTES * (end - start)].view(torch.int64)
            return self.kvcaches[0].view(-1), named["slot_mapping"][start:end], held

        def to_gpu(self, memory_obj: Any, start: int, end: int, **named: Any) -> None:
            device, slots, held = self._slots(memory_obj, start, end, **named)
            # What vLLM has computed of the first chunk stays.
            skipped = min(end - start, max(0, named.get("vllm_cached_tokens", 0) - start))
            device[slots[skipped:]] = held[skipped:]

        def from_gpu(self, memory_obj: Any, start: int, end: int, **named: Any) -> None:
            device, slots, held = self._slots(memory_obj, start, end, **named)
            held.copy_(device[slots])

        def batched_to_gpu(self, memory_objs: Any, starts: Any, ends: Any, **named: Any) -> None:
            for each in zip(memory_objs, starts, ends, strict=True):
                self.to_gpu(*each, **named)

        def batched_from_gpu(self, memory_objs: Any, starts: Any, ends: Any, **named: Any) -> None:
            for each in zip(memory_objs, starts, ends, strict=True):
                self.from_gpu(*each, **named)

    return Copies


class Line:
    """Both ends of what LMCache's half at the scheduler asks that at the worker."""

    latest: Line
    world_size = 1

    def __init__(self) -> None:
        self._asked: Queue[Sequence[Any]] = Queue()
        self._answered: Queue[bytes] = Queue()

    def send_and_recv_all(self, msg: Sequence[Any]) -> list[bytes]:
        self._asked.put(msg)
        return [self._answered.get(timeout=60)]

    def recv_request(self) -> tuple[bytes, Sequence[Any]] | None:
        try:
            return b"", self._asked.get(timeout=0.05)
        except Empty:
            return None

    def send_response(self, identity: bytes, response: bytes) -> None:
        del identity
        self._answered.put(response)

    def close(self) -> None:
        """There is nothing to close."""


def __getattr__(name: str) -> Any:
    """The connector's class, which is made when it is asked for: then LMCache is imported."""
    if name != "LMCache":
        raise AttributeError(name)
    made = globals()[name] = connector()
    return made
