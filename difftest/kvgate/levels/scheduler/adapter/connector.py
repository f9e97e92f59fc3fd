"""A fake connector: it answers vLLM's scheduler as the other nodes of a case do, and transfers nothing.

It has a scheduler's half only. What its worker's half would tell comes from the engine, with the output of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata, SupportsHMA

from kvgate.levels.scheduler.adapter.interception import ended_well
from kvgate.levels.scheduler.adapter.names import number_in
from kvgate.levels.scheduler.nodes import OtherNodes

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.request import Request

Ended = Callable[[int, bool], None]
"""Called for every request that ends, with whether its blocks stay held for another node."""


class FakeMetadata(KVConnectorMetadata):
    """Nothing: there is no worker to tell."""


class FakeConnector(KVConnectorBase_V1, SupportsHMA):
    """The scheduler's half of a connector, for every kind of model."""

    nodes: OtherNodes
    ended: Ended
    keeps_states = False

    def attach(self, nodes: OtherNodes, keeps_states: bool, ended: Ended) -> None:
        """Who is behind it, and who is told of ends."""
        self.nodes = nodes
        self.keeps_states = keeps_states
        self.ended = ended

    # The scheduler's half

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        number = number_in(request.request_id)
        return self.nodes.provided(number, request.num_tokens, num_computed_tokens, self.keeps_states)

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        if not num_external_tokens:
            # Newer releases do not take what is offered to whoever may not read the cache.
            self.nodes.decline(number_in(request.request_id))
            return
        self.nodes.take(number_in(request.request_id), blocks.get_block_ids())

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        del scheduler_output
        return FakeMetadata()

    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        number = number_in(request.request_id)
        reads = self.nodes.reads(number, ended_well(request), block_ids)
        self.ended(number, reads)
        return reads, None

    # The worker's half, which is nobody's

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        raise NotImplementedError("a fake connector has no worker")

    def wait_for_layer_load(self, layer_name: str) -> None:
        raise NotImplementedError("a fake connector has no worker")

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        raise NotImplementedError("a fake connector has no worker")

    def wait_for_save(self) -> None:
        raise NotImplementedError("a fake connector has no worker")
