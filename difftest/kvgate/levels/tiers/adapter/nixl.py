"""vLLM's own ``NixlConnector`` on a node that reads from another one: its half at the scheduler.

Its half at the worker needs NIXL's native library and another node. A model of both stands in its place: the other
node has computed the whole prompt, and a read that a case ends has brought it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import Any

from attrs import define, field

from kvgate.levels.tiers.adapter.transfers import Transfers
from kvgate.levels.tiers.memory import Copy, Number, TierMemory
from kvgate.levels.tiers.operations import TierStage

WORKER = "vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector.NixlPullConnectorWorker"


def computed_elsewhere(request: Any, groups: int) -> None:
    """Another node has computed the prompt of a request."""
    request.kv_transfer_params = {
        "do_remote_prefill": True,
        # That node's blocks: how many they are, only the worker's half asks.
        "remote_block_ids": [[1]] * groups,
        "remote_engine_id": "the other node",
        "remote_request_id": request.request_id,
        "remote_host": "localhost",
        "remote_port": 1,
        "tp_size": 1,
    }


class Reads:
    """What stands in the place of the worker's half."""

    use_host_buffer = False
    copy_blocks = None
    xfer_handshake_metadata = None

    def __init__(self, *_arguments: object) -> None:
        self.nixl: Nixl

    def start_load_kv(self, metadata: Any) -> None:
        """Reads begin."""
        for name, read in metadata.reqs_to_recv.items():
            # Without blocks, the other node is told that it may free its own.
            if any(read.local_block_ids):
                self.nixl.begin(name, read.local_block_ids)

    def get_finished(self) -> tuple[set[str], set[str]]:
        """The requests whose blocks were sent and have come since the last call."""
        return set(), self.nixl.ended()

    def get_transfer_results(self) -> Any:
        """The same in later releases."""
        base: Any = import_module("vllm.distributed.kv_transfer.kv_connector.v1.base")
        return base.KVConnectorTransferResults(finished_sending=set(), finished_recving=self.nixl.ended())

    def get_block_ids_with_load_errors(self) -> set[int]:
        return set()

    def get_kv_connector_stats(self) -> None:
        """Nothing is counted."""

    def shutdown(self) -> None:
        """Nothing is held."""


@define
class Nixl:
    """A ``NixlConnector``: its half at the scheduler, and a model of that at the worker."""

    connector: Any
    worker: Any
    memory: TierMemory
    stage: TierStage
    tier: int
    transfers: Transfers = field(init=False)
    _under_way: dict[str, Number] = field(init=False, factory=dict)
    _begun: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self.transfers = Transfers(self.memory, self.tier)
        self.worker.connector_worker.nixl = self

    def begin(self, request: str, blocks_of_groups: Sequence[Sequence[int]]) -> None:
        """A read begins, which brings each block what the request has at its place."""
        claim, tokens = self.memory.claims[request], self.memory.tokens[request]
        copies: list[Copy] = []
        for group, blocks in enumerate(blocks_of_groups):
            size = self.memory.settings.geometry.groups[group].block_size_tokens
            for block in filter(None, blocks):
                index = list(claim.tables[group]).index(block)
                content = tokens[index * size : min(claim.tokens, (index + 1) * size)]
                place = len(copies)
                self.memory.host[self.tier, self._begun + place, 0] = group, (*content, *[None] * (size - len(content)))
                copies.append(Copy(group, block, self._begun + place, 0, index))
        self._under_way[request] = self.transfers.begin(self._begun, True, request, tuple(copies), {})
        self._begun += len(copies)

    def ended(self) -> set[str]:
        """The requests whose read has ended since the last call."""
        names = {name for name, number in self._under_way.items() if not self.transfers.is_under_way(number)}
        for name in names:
            del self._under_way[name]
        return names

    def patched(self) -> Sequence[tuple[str, Any]]:
        """See ``Half``: the connector asserts that its worker's half is of this class."""
        return ((WORKER, Reads),)

    def shown(self, metadata: Any) -> None:
        """See ``Half``."""

    def jobs_of(self, requests: Collection[str] | None) -> set[Number]:
        """See ``Half``."""
        return {number for name, number in self._under_way.items() if requests is None or name in requests}

    def remaining(self) -> Mapping[str, int]:
        """See ``Half``: what is to be sent in the next step. It forgets the rest with the metadata of each step."""
        kept = {name: vars(self.connector.connector_scheduler)[name] for name in ("_reqs_need_recv", "_reqs_need_send")}
        return {name: len(each) for name, each in kept.items() if each}
