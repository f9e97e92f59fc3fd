"""The connectors that are driven: how each is configured, and how its two halves are put together.

The order in which the worker's half is called is that of the release's model runner.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import frozen

from kvgate.levels.scheduler.adapter.worker import InOrder
from kvgate.levels.tiers.adapter import nixl, offloading, own, simple
from kvgate.levels.tiers.adapter.nixl import Nixl
from kvgate.levels.tiers.adapter.offloading import Offloading
from kvgate.levels.tiers.adapter.own import Own
from kvgate.levels.tiers.adapter.simple import Simple
from kvgate.levels.tiers.adapter.tiering import Tiering, tiering_configuration
from kvgate.levels.tiers.adapter.transfers import BYTES_PER_BLOCK, Half
from kvgate.levels.tiers.files import Folder
from kvgate.levels.tiers.memory import Claim, Job, Number, TierMemory
from kvgate.levels.tiers.operations import OWN, TIERING, TierStage
from kvreference.settings import Settings

MIXIN = "vllm.v1.worker.kv_connector_model_runner_mixin"
HALVES: Mapping[str, Any] = {
    "OffloadingConnector": Offloading,
    "SimpleCPUOffloadConnector": Simple,
    "NixlPullConnector": Nixl,
}


@frozen
class HostTier:
    """How the connector and its tier are configured."""

    settings: Settings
    stage: TierStage
    folder: Folder | None = None
    """Where the tier below it has its files, if there is one."""

    @property
    def one_group(self) -> bool:
        """Whether the connector is for models with one group."""
        return self.stage.connector == OWN and own.Chosen.one_group

    def transfers(self, groups: Sequence[Any]) -> Any:
        from vllm.config import KVTransferConfig

        if self.stage.connector == OWN:
            policy: Any = "fail" if self.stage.failed_loads_end else "recompute"
            configuration = own.configuration(self.settings, self.stage.chunks)
            return KVTransferConfig(kv_role="kv_both", kv_load_failure_policy=policy, **configuration)
        if self.folder is not None:
            below = tiering_configuration(self.settings, self.stage, groups, self.folder)
            return KVTransferConfig(
                kv_connector="OffloadingConnector", kv_role="kv_both", kv_connector_extra_config=below
            )
        parts = {
            "offloading": ("OffloadingConnector", offloading.configuration(self.settings, self.stage, groups)),
            "simple": ("SimpleCPUOffloadConnector", simple.configuration(self.stage)),
        }
        if self.stage.connector in parts:
            name, extra = parts[self.stage.connector]
        else:
            order = list(parts.values())
            if self.stage.connector == "nixl":
                order[1:] = [("NixlConnector", {})]
            order = order[::-1] if self.stage.simple_first or self.stage.connector == "nixl" else order
            connectors = [
                {"kv_connector": part, "kv_role": "kv_both", "kv_connector_extra_config": of_part}
                for part, of_part in order
            ]
            name, extra = "MultiConnector", {"connectors": connectors}
        return KVTransferConfig(kv_connector=name, kv_role="kv_both", kv_connector_extra_config=extra)

    def tensors(self, blocks: int, groups: Sequence[Any]) -> list[Any]:
        tensor: Any = import_module("vllm.v1.kv_cache_interface").KVCacheTensor

        names = [name for group in groups for name in group.layer_names]
        size = blocks * BYTES_PER_BLOCK
        if "shared_by" in signature(tensor).parameters:
            return [tensor(size=size, shared_by=names)]
        return [tensor(size=size, layers=names, layer_stride=0, block_stride=BYTES_PER_BLOCK)]


class Connector:
    """The connector of a scheduler, with a worker's half for it."""

    def __init__(self, scheduler: Any, memory: TierMemory, stage: TierStage) -> None:
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

        self._memory = memory
        connector = scheduler.connector
        config, kv_cache = scheduler.vllm_config, scheduler.kv_cache_config
        with patch(nixl.WORKER, nixl.Reads) if stage.connector == "nixl" else nullcontext():
            self.worker = type(connector)(config, KVConnectorRole.WORKER, kv_cache)
        parts = [(connector, self.worker)] if stage.connector == OWN else []
        self.hit_tokens: dict[str, int] = {}
        """How many tokens each request hit on the device when the tier was asked last."""
        self.loads: set[str] = set()
        """The requests for which it then promised a load that a step does not wait for."""
        self.undecided: set[str] = set()
        """The requests for which it then had no answer yet."""
        pairs = parts or zip(_parts(connector), _parts(self.worker), strict=True)
        self.halves: list[Half] = [
            _half_of(part, stage)(part, at_worker, memory, stage, tier) for tier, (part, at_worker) in enumerate(pairs)
        ]
        self._own = next((half for half in self.halves if isinstance(half, Own)), None)
        if self._own is not None:
            self._own.register([name for group in kv_cache.kv_cache_groups for name in group.layer_names])
        self._listen(connector)

    @property
    def offloading(self) -> Offloading | None:
        """The first ``OffloadingConnector`` in it, if there is one."""
        return next((half for half in self.halves if isinstance(half, Offloading)), None)

    @property
    def tiering(self) -> Tiering | None:
        """The ``OffloadingConnector`` with a tier of files, if it is one."""
        return next((half for half in self.halves if isinstance(half, Tiering)), None)

    @property
    def simple(self) -> Simple | None:
        """The ``SimpleCPUOffloadConnector`` in it, if there is one."""
        return next((half for half in self.halves if isinstance(half, Simple)), None)

    @property
    def nixl(self) -> Nixl | None:
        """The ``NixlConnector`` in it, if there is one."""
        return next((half for half in self.halves if isinstance(half, Nixl)), None)

    def is_offloading(self, job: Job) -> bool:
        """Whether a job is of an ``OffloadingConnector``."""
        return isinstance(self.halves[job.tier], Offloading)

    def _listen(self, connector: Any) -> None:
        """Note what requests are to continue from."""
        asked, allocated = connector.get_num_new_matched_tokens, connector.update_state_after_alloc
        build = connector.build_connector_meta

        def build_connector_meta(output: Any) -> Any:
            _put_in_order(output, "finished_req_ids", "preempted_req_ids")
            return build(output)

        def get_num_new_matched_tokens(request: Any, hit_tokens: int, *rest: Any, **named: Any) -> Any:
            self.hit_tokens[request.request_id] = hit_tokens
            if self._own is not None:
                # What was claimed before counts for nothing.
                self._memory.claims.pop(request.request_id, None)
            tokens, is_asynchronous = asked(request, hit_tokens, *rest, **named)
            (self.loads.add if tokens and is_asynchronous else self.loads.discard)(request.request_id)
            (self.undecided.add if tokens is None else self.undecided.discard)(request.request_id)
            return tokens, is_asynchronous

        def update_state_after_alloc(request: Any, blocks: Any, external_tokens: int) -> Any:
            if external_tokens:
                tables = [[block.block_id for block in group] for group in blocks.blocks]
                first = self.hit_tokens[request.request_id]
                claim = Claim(first + external_tokens, tables, first)
                if self._own is not None:
                    # Whether a load has ended is not seen: what is read is checked.
                    self._memory.expect(request.request_id, claim)
                    waits = request.request_id in self.loads
                    own.Chosen.seen[own.WAITING_LOADS if waits else own.LOADS] += 1
                else:
                    self._memory.claims[request.request_id] = claim
            return allocated(request, blocks, external_tokens)

        def request_finished(*arguments: Any) -> Any:
            is_kept, parameters = finished(*arguments)
            own.Chosen.seen[own.STORES_AFTER_END] += is_kept
            return is_kept, parameters

        if self._own is not None:
            name = "request_finished" if own.Chosen.one_group else "request_finished_all_groups"
            finished = getattr(connector, name)
            setattr(connector, name, request_finished)
        connector.get_num_new_matched_tokens = get_num_new_matched_tokens
        connector.update_state_after_alloc = update_state_after_alloc
        connector.build_connector_meta = build_connector_meta

    @contextmanager
    def step(self, output: Any, computes: bool, prepare: Callable[[], None]) -> Iterator[list[Any]]:
        """The worker's half during a step, called as the release calls it; yields where its report comes.

        The worker prepares its blocks after it was told of preemptions, and before loads begin.
        """
        metadata = output.kv_connector_metadata
        for half, part in zip(self.halves, metadata.metadata if len(self.halves) > 1 else [metadata], strict=True):
            half.shown(part)
        reports: list[Any] = []
        with ExitStack() as stack:
            for name, instead in (
                (f"{MIXIN}.get_kv_transfer_group", lambda: self.worker),
                (f"{MIXIN}.get_forward_context", lambda: SimpleNamespace(attn_metadata={})),
                (f"{MIXIN}.set_forward_context", lambda *_arguments, **_more: nullcontext()),
                *(each for half in self.halves for each in half.patched()),
            ):
                stack.enter_context(patch(name, instead))
            from vllm.v1.worker.kv_connector_model_runner_mixin import KVConnectorModelRunnerMixin as Runner

            self.worker.handle_preemptions(metadata)
            prepare()
            if computes:
                with Runner._get_kv_connector_output(output) as report:
                    yield reports
                reports.append(report)
            else:
                yield reports
                config: Any = None
                reports.append(Runner.kv_connector_no_forward(output, config).kv_connector_output)
        if reports[0] is not None:
            _put_in_order(reports[0], "finished_sending", "finished_recving", "failed_recving")

    def failed(self, report: Any) -> tuple[Collection[int], Collection[str]]:
        """The blocks and the requests whose load has failed, which is reported after the step that would use them."""
        if self._own is None or report is None:
            return (), ()
        return report.invalid_block_ids or (), getattr(report, "failed_recving", None) or ()

    def brought(self, requests: Iterable[str]) -> Mapping[str, Claim]:
        """What loads were to bring the requests that a step computes, where only what is read shows that."""
        if self._own is None:
            return {}
        claims = ((name, self._memory.claims.pop(name, None)) for name in requests)
        return {name: claim for name, claim in claims if claim is not None}

    @contextmanager
    def layers(self) -> Iterator[None]:
        """What the layers do with the worker's half, before and after they compute."""
        if self._own is not None:
            self._own.load_layers()
        yield
        if self._own is not None:
            self._own.save_layers()

    def jobs_of(self, requests: Collection[str] | None) -> set[Number]:
        """See ``Half``."""
        return {number for half in self.halves for number in half.jobs_of(requests)}

    def remaining(self) -> Mapping[str, int]:
        """What the halves at the scheduler still hold."""
        return {name: count for half in self.halves for name, count in half.remaining().items()}


def _put_in_order(holder: Any, *names: str) -> None:
    """Let the sets of requests that an object holds under these names be read in one order, whatever the process."""
    for name in names:
        if getattr(holder, name, None):
            setattr(holder, name, InOrder(getattr(holder, name)))


def _half_of(part: Any, stage: TierStage) -> Any:
    if stage.connector == OWN:
        return Own
    return Tiering if stage.connector == TIERING else HALVES[type(part).__name__]


def _parts(connector: Any) -> Sequence[Any]:
    """The connectors in one: itself, or those of a ``MultiConnector``."""
    return list(connector._connectors) if type(connector).__name__ == "MultiConnector" else [connector]


def result_of(names: Sequence[str], sampled: Mapping[str, list[int]], report: Any) -> Any:
    """What a model runner returns for a step, with what the worker's half of the connector reports."""
    from vllm.v1.outputs import ModelRunnerOutput

    return ModelRunnerOutput(
        req_ids=list(names),
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[sampled.get(name, []) for name in names],
        kv_connector_output=report,
    )
