"""vLLM's own ``OffloadingConnector`` with its tier on the host: both of its halves, and a model of the copy alone.

The connector's scheduler half, its manager and its worker half are those of the release; so is the order in which the
worker's half is called. What copies bytes is a model: ghost memory copies what the slots hold.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from importlib import import_module
from inspect import signature
from typing import Any
from unittest.mock import patch

from attrs import frozen

from kvgate.levels.tiers.memory import Claim, Copy, Job, TierMemory
from kvgate.levels.tiers.operations import TierStage
from kvreference.settings import Settings

BYTES_PER_BLOCK = 4096
"""Of all layers together; a page of the host."""
MIXIN = "vllm.v1.worker.kv_connector_model_runner_mixin"


@frozen
class HostTier:
    """How the connector and its tier are configured."""

    settings: Settings
    stage: TierStage

    def transfers(self) -> Any:
        from vllm.config import KVTransferConfig

        stage = self.stage
        extra: dict[str, Any] = {
            "cpu_bytes_to_use": stage.chunks * stage.blocks_per_chunk * BYTES_PER_BLOCK,
            "eviction_policy": stage.policy,
            "offload_prompt_only": not stage.stores_answers,
        }
        if stage.blocks_per_chunk > 1:
            extra["block_size"] = stage.blocks_per_chunk * self.settings.geometry.groups[0].block_size_tokens
        if stage.sync_load_tokens:
            extra["sync_load_budget_bytes"] = stage.sync_load_tokens * BYTES_PER_BLOCK
        return KVTransferConfig(kv_connector="OffloadingConnector", kv_role="kv_both", kv_connector_extra_config=extra)

    def tensors(self, blocks: int, groups: Sequence[Any]) -> list[Any]:
        tensor: Any = import_module("vllm.v1.kv_cache_interface").KVCacheTensor

        names = [name for group in groups for name in group.layer_names]
        size = blocks * BYTES_PER_BLOCK
        if "shared_by" in signature(tensor).parameters:
            return [tensor(size=size, shared_by=names)]
        return [tensor(size=size, layers=names, layer_stride=0, block_stride=BYTES_PER_BLOCK)]


class Copies:
    """What the worker's half gives its jobs to: ends them when it is asked to wait, or when a case says so."""

    def __init__(self, memory: TierMemory, keys_of: Callable[[Any], Sequence[Any]], request_of: Callable[[int], str]):
        self._memory = memory
        self._keys_of = keys_of
        self._request_of = request_of
        self._ended: list[int] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        self._begin(job_id, src_spec, dst_spec, loads=False)
        return True

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any, expedited: bool = False) -> bool:
        if expedited:
            # It ends before the step writes what others of this step compute and the request hit: reads are checked.
            self._memory.claims.pop(self._request_of(job_id), None)
        self._begin(job_id, dst_spec, src_spec, loads=True)
        return True

    def transfer_async(self, job_id: int, spec: Any) -> bool:
        """The same in releases before 0.27: the direction follows from the two ends."""
        source, destination = spec
        loads = not hasattr(source, "group_sizes")
        return (self.submit_load if loads else self.submit_store)(job_id, source, destination)

    def get_finished(self) -> list[Any]:
        ended, self._ended = self._ended, []
        return [_result(number) for number in ended]

    def wait(self, job_ids: Iterable[int]) -> None:
        for number in sorted(job_ids):
            job = self._memory.jobs.get(number)
            if job is not None:
                self.end(job.loads, 1 + list(self._memory.under_way(job.loads)).index(number))

    def end(self, loads: bool, jobs: int) -> int:
        """So many jobs of one direction end; how many did."""
        numbers = list(self._memory.under_way(loads))[:jobs]
        for number in numbers:
            self._memory.end(number)
        self._ended += numbers
        return len(numbers)

    def shutdown(self) -> None:
        """Nothing is held."""

    def _begin(self, number: int, device: Any, host: Any, loads: bool) -> None:
        base: Any = import_module("vllm.v1.kv_offload.base")
        chunks = [int(chunk) for chunk in host.block_ids]
        keys = {
            chunk: (bytes(base.get_offload_block_hash(key)), base.get_offload_group_idx(key))
            for chunk, key in zip(chunks, self._keys_of(host), strict=True)
        }
        copies = tuple(_copies(device, chunks, self._memory.blocks_per_chunk))
        self._memory.begin(Job(number, loads, self._request_of(number), copies, keys))


def _copies(device: Any, chunks: Sequence[int], blocks_per_chunk: int) -> Iterator[Copy]:
    """What a job copies: the blocks of a group are consecutive, from a place in the first of its chunks on."""
    blocks, at, chunk = [int(block) for block in device.block_ids], 0, 0
    for group, (size, first) in enumerate(zip(device.group_sizes, device.block_indices, strict=True)):
        skipped = first % blocks_per_chunk
        for offset in range(size):
            place, part = divmod(skipped + offset, blocks_per_chunk)
            yield Copy(group, blocks[at + offset], chunks[chunk + place], part, first + offset)
        at += size
        chunk += -(-(skipped + size) // blocks_per_chunk) if size else 0


def _result(number: int) -> Any:
    base = import_module("vllm.v1.kv_offload.base")
    if not hasattr(base, "TransferResult"):
        # Before 0.27.
        base = import_module("vllm.v1.kv_offload.worker.worker")
    return base.TransferResult(job_id=number, success=True)


class Offloading:
    """The connector of a scheduler, with a worker's half for it."""

    def __init__(self, scheduler: Any, memory: TierMemory, stage: TierStage) -> None:
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

        self._scheduler = scheduler
        self._memory = memory
        self._chunks, self._is_lru = stage.chunks, stage.policy == "lru"
        self.half = scheduler.connector.connector_scheduler
        self.manager = self.half.manager
        self._prepared: dict[int, tuple[Any, list[Any]]] = {}
        self._requests: dict[int, str] = {}
        self.hit_tokens: dict[str, int] = {}
        """How many tokens each request hit on the device when the tier was asked last."""
        config, kv_cache = scheduler.vllm_config, scheduler.kv_cache_config
        self.worker = type(scheduler.connector)(config, KVConnectorRole.WORKER, kv_cache)
        self.copies = Copies(memory, self._keys_of, self._requests.__getitem__)
        self.worker.connector_worker.worker = self.copies
        self._listen()

    def _listen(self) -> None:
        """Note which keys each transfer stands for, and what requests are to go on from."""
        load, store = self.manager.prepare_load, self.manager.prepare_store
        connector = self._scheduler.connector
        asked, allocated = connector.get_num_new_matched_tokens, connector.update_state_after_alloc

        def prepare_load(keys: Any, *rest: Any) -> Any:
            spec = load(keys, *rest)
            self._prepared[id(spec)] = spec, list(keys)
            return spec

        def prepare_store(keys: Any, *rest: Any) -> Any:
            output = store(keys, *rest)
            if output is not None:
                self._prepared[id(output.store_spec)] = output.store_spec, list(output.keys_to_store)
            return output

        def get_num_new_matched_tokens(request: Any, hit_tokens: int) -> Any:
            self.hit_tokens[request.request_id] = hit_tokens
            return asked(request, hit_tokens)

        def update_state_after_alloc(request: Any, blocks: Any, external_tokens: int) -> Any:
            if external_tokens:
                tables = [[block.block_id for block in group] for group in blocks.blocks]
                tokens = self.hit_tokens[request.request_id] + external_tokens
                self._memory.claims[request.request_id] = Claim(tokens, tables)
            return allocated(request, blocks, external_tokens)

        self.manager.prepare_load, self.manager.prepare_store = prepare_load, prepare_store
        connector.get_num_new_matched_tokens = get_num_new_matched_tokens
        connector.update_state_after_alloc = update_state_after_alloc

    def _keys_of(self, spec: Any) -> Sequence[Any]:
        return self._prepared.pop(id(spec))[1]

    @contextmanager
    def step(self, output: Any, computes: bool) -> Iterator[list[Any]]:
        """The worker's half during a step, called as the release calls it; yields where its report comes."""
        metadata = output.kv_connector_metadata
        self._requests.update(
            (number, job.req_id) for jobs in (metadata.load_jobs, metadata.store_jobs) for number, job in jobs.items()
        )
        self.worker.handle_preemptions(metadata)
        reports: list[Any] = []
        with ExitStack() as stack:
            for name, instead in (
                ("get_kv_transfer_group", lambda: self.worker),
                ("get_forward_context", lambda: None),
                ("set_forward_context", lambda *_arguments, **_more: nullcontext()),
            ):
                stack.enter_context(patch(f"{MIXIN}.{name}", instead))
            from vllm.v1.worker.kv_connector_model_runner_mixin import KVConnectorModelRunnerMixin as Runner

            if computes:
                with Runner._get_kv_connector_output(output) as report:
                    yield reports
                reports.append(report)
            else:
                yield reports
                config: Any = None
                reports.append(Runner.kv_connector_no_forward(output, config).kv_connector_output)

    def jobs_of(self, requests: Collection[str]) -> set[int]:
        """The jobs of requests that the scheduler half knows."""
        return {number for name in requests for number in self.half._req_status[name].transfer_jobs}

    def is_held(self) -> bool:
        """Whether some chunks of the tier are held: then it has no room for as many new ones as it has chunks.

        By ARC it may keep what was used often; so it is asked for one.
        """
        base: Any = import_module("vllm.v1.kv_offload.base")
        keys = [
            base.make_offload_key(number.to_bytes(32, "big"), 0)
            for number in range(self._chunks if self._is_lru else 1)
        ]
        context = base.ReqContext(req_id="of no request")
        self.manager.on_new_request(context)
        return self.manager.prepare_store(keys, context) is None

    def remaining(self) -> Mapping[str, int]:
        """What both halves still hold of jobs and requests."""
        names = "_jobs", "_req_status", "_block_id_to_pending_jobs"
        held = {name: len(getattr(self.half, name, ())) for name in names}
        return {name: count for name, count in held.items() if count}


def result_of(names: Sequence[str], sampled: Mapping[str, list[int]], report: Any) -> Any:
    """What a model runner returns for a step, with what the worker's half of the connector reports."""
    from vllm.v1.outputs import ModelRunnerOutput

    return ModelRunnerOutput(
        req_ids=list(names),
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[sampled.get(name, []) for name in names],
        kv_connector_output=report,
    )
