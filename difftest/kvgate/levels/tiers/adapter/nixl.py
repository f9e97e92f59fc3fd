"""vLLM's own ``NixlConnector`` on a node that reads from another one: its half at the scheduler.

Its half at the worker needs NIXL's native library and another node. A model of both stands in its place: the other
node has computed the whole prompt into blocks of its own, and a read that a case ends has brought those that it names.
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
NO_BLOCK = 0
"""Of the other node: the block that never holds anything."""


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
            # Without blocks, the worker only notifies the other node, which may free its own.
            if any(read.local_block_ids):
                self.nixl.begin(name, read)

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
    _blocks: dict[str, set[int]] = field(init=False, factory=dict)
    """The blocks of each request on the other node, by its name there."""
    _blocks_given: int = field(init=False, default=0)
    _under_way: dict[str, Number] = field(init=False, factory=dict)
    _begun: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self.transfers = Transfers(self.memory, self.tier)
        self.worker.connector_worker.nixl = self

    def compute_elsewhere(self, request: Any) -> None:
        """The other node has computed the prompt of a request, under a name of its own."""
        name, tokens = f"{request.request_id} on the other node", self.memory.tokens[request.request_id]
        request.kv_transfer_params = {
            "do_remote_prefill": True,
            "remote_block_ids": [
                self._keep(group, tokens) for group in range(len(self.memory.settings.geometry.groups))
            ],
            "remote_engine_id": "the other node",
            "remote_request_id": name,
            "remote_host": "localhost",
            "remote_port": 1,
            "tp_size": 1,
        }
        self._blocks[name] = {each for blocks in request.kv_transfer_params["remote_block_ids"] for each in blocks}

    def _keep(self, group: int, tokens: Sequence[int]) -> list[int]:
        """The blocks of a group that hold these tokens on the other node. Their ids are not in ascending order."""
        size, blocks = self.memory.settings.geometry.groups[group].block_size_tokens, list[int]()
        for first in range(0, len(tokens), size):
            content = tokens[first : first + size]
            blocks.append((2 + self._blocks_given) ^ 1)
            self._blocks_given += 1
            self.memory.host[self.tier, blocks[-1], 0] = group, (*content, *[None] * (size - len(content)))
        return blocks

    def begin(self, request: str, read: Any) -> None:
        """A read begins: in each group the last blocks of the other node go to the blocks here, in order."""
        of_request, copies = self._blocks.get(read.remote.request_id, ()), list[Copy]()
        for group, (here, there) in enumerate(zip(read.local_block_ids, read.remote.block_ids, strict=True)):
            first = len(there) - len(here)
            if not here or first < 0:
                # The worker's half asserts that it is not so.
                self.memory.misfit(True, f"group {group} has {len(here)} blocks here, and {len(there)} there")
            for index, (block, source) in enumerate(zip(here, there[max(0, first) :], strict=False), max(0, first)):
                copies.append(Copy(group, block, source if source in of_request else NO_BLOCK, 0, index))
        self._under_way[request] = self.transfers.begin(self._begun, True, request, tuple(copies), {})
        self._begun += 1

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
