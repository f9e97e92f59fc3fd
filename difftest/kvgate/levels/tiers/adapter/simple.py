"""vLLM's own ``SimpleCPUOffloadConnector``: both of its halves, and a model of the copies alone.

Its worker half asks events of the device whether a copy has ended. Here these are of ghost memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from attrs import frozen

from kvgate.levels.tiers.adapter.transfers import BYTES_PER_BLOCK, Transfers, sizes_of
from kvgate.levels.tiers.memory import Copy, Number, TierMemory
from kvgate.levels.tiers.operations import TierStage

WORKER = "vllm.v1.simple_kv_offload.worker"


def configuration(stage: TierStage) -> dict[str, Any]:
    """How the connector is configured. One of the blocks on the host stands for no block."""
    return {"cpu_bytes_to_use": (stage.chunks + 1) * BYTES_PER_BLOCK, "lazy_offload": stage.is_lazy}


@frozen
class _Event:
    """Whether the jobs of a copy have ended; what waits for it ends them."""

    transfers: Transfers
    jobs: Sequence[Number]

    def query(self) -> bool:
        return not any(map(self.transfers.is_under_way, self.jobs))

    def synchronize(self) -> None:
        for job in self.jobs:
            self.transfers.end_up_to(job)


class _Recorded:
    """An event of the device that is recorded, and that copies come after: they begin after what is computed."""

    def record(self, _stream: object = None) -> None:
        """The device is not there."""


class Simple:
    """A ``SimpleCPUOffloadConnector``: its half at the scheduler, and its half at the worker."""

    def __init__(self, connector: Any, worker: Any, memory: TierMemory, stage: TierStage, tier: int) -> None:
        del stage
        self.half = connector.scheduler_manager
        self._transfers = Transfers(memory, tier)
        self.stored_again: Counter[int] = Counter()
        """How often the last store that named a block named it after the first time."""
        worker.worker_handler._backend = self

    def patched(self) -> Sequence[tuple[str, Any]]:
        """See ``Half``: streams and events, which only a device has."""
        return ((f"{WORKER}.torch.cuda.current_stream", lambda: None), (f"{WORKER}.torch.Event", _Recorded))

    def shown(self, metadata: Any) -> None:
        """See ``Half``."""

    def launch_copy(
        self,
        src_blocks: Sequence[int],
        dst_blocks: Sequence[int],
        is_store: bool,
        event_idx: int,
        events_list: list[tuple[int, Any]],
        wait_event: object = None,
    ) -> None:
        """What the worker's half gives its copies to. Where one brings blocks to several requests, each is a job."""
        number, memory = 2 * event_idx + is_store, self._transfers.memory
        blocks, chunks = (src_blocks, dst_blocks) if is_store else (dst_blocks, src_blocks)
        if wait_event is None:
            # Its stream is not that of the model, so nothing says that what is under way there comes first.
            memory.check_unordered(blocks, not is_store)
        if is_store:
            self.stored_again.update(
                {block: times - 1 - self.stored_again[block] for block, times in Counter(blocks).items()}
            )
        if len(blocks) != len(chunks):
            memory.misfit(not is_store, f"{len(blocks)} blocks and {len(chunks)} chunks")
            return
        hashes = self._hashes(self.half._gpu_block_pool if is_store else self.half.cpu_block_pool)
        jobs = []
        for part, (request, places) in enumerate(self._requests(event_idx, is_store, blocks)):
            copies, keys = [], {}
            for place in places:
                block, chunk = blocks[place], chunks[place]
                key = hashes(block if is_store else chunk)
                if key is None:
                    memory.misfit(not is_store, "a block without a hash")
                    continue
                keys[chunk] = key
                copies.append(Copy(key[1], block, chunk, 0, 0 if is_store else memory.place_of(request, key[1], block)))
            jobs.append(self._transfers.begin(number, not is_store, request, tuple(copies), keys, part))
        events_list.append((event_idx, _Event(self._transfers, jobs)))

    def _requests(self, event: int, is_store: bool, blocks: Sequence[int]) -> Sequence[tuple[str, Sequence[int]]]:
        """The requests of a copy, and the places of their blocks in it."""
        if is_store:
            names = self.half._store_event_to_reqs.get(event, ())
            return [(", ".join(names) or "no request", range(len(blocks)))]
        found, at = [], 0
        states = {**self.half._reqs_to_load}
        for name in self.half._load_event_to_reqs[event]:
            size = len(states[name].transfer_meta.gpu_block_ids)
            found.append((name, range(at, at + size)))
            at += size
        return found

    @staticmethod
    def _hashes(pool: Any) -> Any:
        from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id

        def of(block: int) -> tuple[bytes, int] | None:
            key = pool.blocks[block].block_hash
            return None if key is None else (bytes(get_block_hash(key)), get_group_id(key))

        return of

    def jobs_of(self, requests: Collection[str] | None) -> set[Number]:
        """See ``Half``: what is under way keeps its blocks, so nothing asks for them."""
        del requests
        return set()

    def blocks_stored(self) -> Counter[int]:
        """By block, how many stores that are not known to have ended read it, including those that a reset dropped."""
        kept = vars(self.half)
        # Releases before 0.30 have the first alone.
        stores = [*kept["_store_event_to_blocks"].values(), *kept.get("_pending_finished_stores", ())]
        stores += kept.get("_abandoned_store_event_to_blocks", {}).values()
        return Counter(block for each in stores for block in each.gpu_block_ids)

    def remaining(self) -> Mapping[str, int]:
        """See ``Half``."""
        held, pool = sizes_of(self.half), self.half.cpu_block_pool
        # One of them stands for no block.
        used = len(pool.blocks) - 1 - pool.get_num_free_blocks()
        return held | ({"chunks that are in use": used} if used else {})
