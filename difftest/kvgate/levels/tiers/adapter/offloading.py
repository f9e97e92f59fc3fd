"""vLLM's own ``OffloadingConnector`` with its tier on the host: both of its halves, and a model of the copy alone.

The connector's scheduler half, its manager and its worker half are those of the release.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from inspect import signature
from typing import Any

from kvgate.levels.tiers.adapter.transfers import BYTES_PER_BLOCK, Transfers, sizes_of
from kvgate.levels.tiers.memory import Copy, Number, TierMemory
from kvgate.levels.tiers.operations import TierStage
from kvreference.settings import Settings


def configuration(settings: Settings, stage: TierStage, groups: Sequence[Any]) -> dict[str, Any]:
    """How the connector is configured."""
    extra: dict[str, Any] = {
        "cpu_bytes_to_use": stage.chunks * stage.blocks_per_chunk * BYTES_PER_BLOCK,
        "eviction_policy": stage.policy,
        "offload_prompt_only": not stage.stores_answers,
    }
    if stage.blocks_per_chunk > 1:
        extra["block_size"] = stage.blocks_per_chunk * settings.geometry.groups[0].block_size_tokens
    if stage.sync_load_tokens:
        extra["sync_load_budget_bytes"] = stage.sync_load_tokens * bytes_per_token(groups)
    return extra


def bytes_per_token(groups: Sequence[Any]) -> int:
    """What a token takes in the layers of all groups, of which the connector's budget for a step is counted."""
    specs = ((group.kv_cache_spec, len(group.layer_names)) for group in groups)
    return sum(spec.page_size_bytes * layers // spec.block_size for spec, layers in specs)


class Copies(Transfers):
    """What the worker's half gives its jobs to: ends them when it is asked to wait, or when a case says so."""

    def __init__(self, memory: TierMemory, tier: int) -> None:
        super().__init__(memory, tier)
        self.prepared: dict[int, tuple[Any, list[Any]]] = {}
        """By the identity of what a transfer is given: that, and the keys that it stands for."""
        self.requests: dict[int, str] = {}
        self.resets: dict[int, int | None] = {}
        """Of each job's request, when the job was made; see ``TierMemory.reset_at``."""
        self.left: dict[int, Sequence[int]] = {}
        """The same of ``TierMemory.left``."""
        self.keys: dict[Any, int] = {}
        """Every key that a job named, numbered in the order in which they were named first."""
        self._begun: dict[int, Number] = {}

    def name(self, keys: Iterable[Any]) -> None:
        """A job names these keys."""
        for key in keys:
            self.keys.setdefault(key, len(self.keys))

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        self._begin(job_id, src_spec, dst_spec, loads=False)
        return True

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any, expedited: bool = False) -> bool:
        if expedited:
            # It ends before the step writes what others of this step compute and the request hit: reads are checked.
            self.memory.claims.pop(self.requests[job_id], None)
        self._begin(job_id, dst_spec, src_spec, loads=True)
        return True

    def transfer_async(self, job_id: int, spec: Any) -> bool:
        """The same in releases before 0.27: the direction follows from the two ends."""
        source, destination = spec
        loads = not hasattr(source, "group_sizes")
        return (self.submit_load if loads else self.submit_store)(job_id, source, destination)

    def get_finished(self) -> list[Any]:
        ended = [number for number, begun in self._begun.items() if not self.is_under_way(begun)]
        for number in ended:
            del self._begun[number]
        return [_result(number) for number in ended]

    def wait(self, job_ids: Iterable[int]) -> None:
        for number in sorted(job_ids):
            if number in self._begun:
                self.end_up_to(self._begun[number])

    def shutdown(self) -> None:
        """Nothing is held."""

    def _begin(self, number: int, device: Any, host: Any, loads: bool) -> None:
        chunks, named = [int(chunk) for chunk in host.block_ids], self.prepared.pop(id(host))[1]
        self.name(named)
        request = self.requests[number]
        copies = tuple(_copies(device, chunks, self.memory.blocks_per_chunk))
        if len(chunks) != len(named) or not _fits(copies, device, chunks):
            got = f"{len(device.block_ids)} blocks, {len(chunks)} chunks and {len(named)} keys"
            self.memory.misfit(loads, got, request)
            copies = ()
        keys = {chunk: _named(key) for chunk, key in zip(chunks, named, strict=False)}
        reset_at, left = self.resets[number], self.left[number]
        self._begun[number] = self.begin(number, loads, request, copies, keys, reset_at=reset_at, left=left)


def _copies(device: Any, chunks: Sequence[int], blocks_per_chunk: int) -> Iterator[Copy]:
    """What a job copies: the blocks of a group are consecutive, from a place in the first of its chunks on."""
    blocks, at, chunk = [int(block) for block in device.block_ids], 0, 0
    for group, (size, first) in enumerate(zip(device.group_sizes, device.block_indices, strict=True)):
        skipped = first % blocks_per_chunk
        for offset, block in enumerate(blocks[at : at + size]):
            place, part = divmod(skipped + offset, blocks_per_chunk)
            if chunk + place < len(chunks):
                yield Copy(group, block, chunks[chunk + place], part, first + offset)
        at += size
        chunk += -(-(skipped + size) // blocks_per_chunk) if size else 0


def _fits(copies: Sequence[Copy], device: Any, chunks: Sequence[int]) -> bool:
    """Whether a job has a chunk for each block, a block for each chunk, and as many blocks as its groups have."""
    used = len({copy.chunk for copy in copies})
    return len(copies) == len(device.block_ids) == sum(device.group_sizes) and used == len(chunks)


def _named(key: Any) -> tuple[bytes, int]:
    """What a key of the tier stands for: the hash of a chunk's last block, and the group."""
    base: Any = import_module("vllm.v1.kv_offload.base")
    return bytes(base.get_offload_block_hash(key)), base.get_offload_group_idx(key)


def _result(number: int) -> Any:
    base = import_module("vllm.v1.kv_offload.base")
    if not hasattr(base, "TransferResult"):
        # Before 0.27.
        base = import_module("vllm.v1.kv_offload.worker.worker")
    return base.TransferResult(job_id=number, success=True)


class Offloading:
    """An ``OffloadingConnector``: its half at the scheduler, and its half at the worker."""

    def __init__(self, connector: Any, worker: Any, memory: TierMemory, stage: TierStage, tier: int) -> None:
        self.half = connector.connector_scheduler
        self.manager = self.half.manager
        self.host = self.manager
        """The manager of the tier on the host."""
        self._chunks, self._is_lru, self._tier = stage.chunks, stage.policy == "lru", tier
        self._copies = worker.connector_worker.worker = Copies(memory, tier)
        self.rejected: set[tuple[bytes, int]] = set()
        """What a store named for which the tier had no room."""
        self.ended: dict[int, int] = {}
        """By job that began after its request had ended: how many tokens the request has."""
        load, store = self.manager.prepare_load, self.manager.prepare_store

        def prepare_load(keys: Any, *rest: Any) -> Any:
            spec = load(keys, *rest)
            self._copies.prepared[id(spec)] = spec, list(keys)
            return spec

        def prepare_store(keys: Any, *rest: Any) -> Any:
            output = store(keys, *rest)
            if output is None:
                self.rejected.update(map(_named, keys))
            else:
                self._copies.prepared[id(output.store_spec)] = output.store_spec, list(output.keys_to_store)
            return output

        self.manager.prepare_load, self.manager.prepare_store = prepare_load, prepare_store
        # The half at the scheduler has them as a set, whose order would depend on the process.
        for name in ("complete_load", "complete_store"):
            setattr(self.manager, name, self._in_order(getattr(self.manager, name)))

    def _in_order(self, complete: Callable[..., Any]) -> Callable[..., Any]:
        """What ends jobs, given their keys in the order in which jobs named them first."""
        return lambda keys, *rest, **named: complete(sorted(keys, key=self._copies.keys.__getitem__), *rest, **named)

    def patched(self) -> Sequence[tuple[str, Any]]:
        """See ``Half``."""
        return ()

    def shown(self, metadata: Any) -> None:
        """See ``Half``."""
        for number, job in (*metadata.load_jobs.items(), *metadata.store_jobs.items()):
            self._copies.requests[number] = job.req_id
            self._copies.resets[number] = self._copies.memory.reset_at.get(job.req_id)
            self._copies.left[number] = self._copies.memory.left(job.req_id)
            status = self.half._req_status.get(job.req_id)
            if status is not None and status.req.is_finished():
                self.ended[number] = status.req.num_tokens

    def jobs_of(self, requests: Collection[str] | None) -> set[Number]:
        """See ``Half``."""
        status = self.half._req_status
        named = [each for name, each in status.items() if requests is None or name in requests]
        return {(self._tier, number, 0) for each in named for number in each.transfer_jobs}

    def remaining(self) -> Mapping[str, int]:
        """See ``Half``."""
        held = sizes_of(self.half)
        chunks = [self.host._policy.get(key) for key in self._copies.keys]
        pinned = sum(chunk is not None and chunk.ref_cnt != 0 for chunk in chunks)
        if pinned:
            held["chunks that a job uses"] = pinned
        elif not held and self._is_lru and not self._has_room():
            held["chunks without room for new ones"] = self._chunks
        return held

    def _has_room(self) -> bool:
        """Whether the tier has room for as many new chunks as it has chunks. By ARC it may keep what was used often."""
        base: Any = import_module("vllm.v1.kv_offload.base")
        keys = [base.make_offload_key(number.to_bytes(32, "big"), 0) for number in range(self._chunks)]
        named = {"req_id": "of no request"} if "req_id" in signature(base.ReqContext).parameters else {}
        context = base.ReqContext(**named)
        # Releases before 0.23 do not show it which requests there are.
        getattr(self.manager, "on_new_request", lambda _context: None)(context)
        return self.manager.prepare_store(keys, context) is not None
