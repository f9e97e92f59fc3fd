"""A fake connector: it answers vLLM's scheduler as the other nodes of a case do, and transfers nothing.

It has only the scheduler's half. What its worker's half would report comes from the engine, with the output of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase, ECConnectorMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata, SupportsHMA
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats

from kvgate.levels.scheduler.adapter.interception import ended_well
from kvgate.levels.scheduler.adapter.names import number_in
from kvgate.levels.scheduler.clients import connector_counted, transfer_parameters
from kvgate.levels.scheduler.encoder import elsewhere
from kvgate.levels.scheduler.nodes import OtherNodes, Tables

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.request import Request


class Listener(Protocol):
    """Is given every call that a fake connector gets."""

    undecided: Callable[[int], None]
    """Called with the number of a request if it does not know yet what other nodes have for it."""
    pools: list[Any]
    """The block pools that it was bound to."""

    def announced(self, request: Request) -> None:
        """A new request is announced."""

    def asked(self, request: Request, hit_tokens: int) -> None:
        """It is asked what other nodes have for a request after its hit."""

    def allocated(self, request: Request, tables: Tables, external_tokens: int) -> None:
        """It is given a request's blocks, and how many tokens the request takes from other nodes."""

    def reset(self, done: bool) -> None:
        """It is asked to forget what it keeps, and has ``done`` it or not."""

    def ended(self, request: Request, tables: Tables, is_read: bool) -> None:
        """A request's end is reported; whether its blocks stay held for another node."""

    def not_due(self, call: str) -> None:
        """It gets a call that a connector of its kind does not get."""

    def shown_step(self, output: Any) -> None:
        """It is shown a step."""

    def shown_output(self, output: Any) -> None:
        """It is shown what its worker's half returned."""

    def taken(self, events: list[Any]) -> None:
        """Its events are taken."""


class FakeMetadata(KVConnectorMetadata):
    """Empty: no worker reads it."""


class Counted(KVConnectorStats):
    """What a half of a connector counted."""

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """What both halves counted."""
        return Counted({**self.data, **other.data})

    def is_empty(self) -> bool:
        """Whether it counted nothing."""
        return not self.data


class OneGroupConnector(KVConnectorBase_V1):
    """The scheduler's half of a connector, for models of one group."""

    nodes: OtherNodes
    listener: Listener
    keeps_states = False

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.pools: list[Any] = []
        """The block pools that it was bound to."""
        self.metadata = FakeMetadata()
        """What it had last for its worker's half."""
        self.counted = self.taken = 0
        """How often its statistics were asked for, and its events taken."""
        self.closed = 0
        """How often it was shut down."""

    def attach(self, nodes: OtherNodes, keeps_states: bool, listener: Listener) -> None:
        """Which nodes it is connected to, and who is given its calls."""
        self.nodes = nodes
        self.keeps_states = keeps_states
        self.listener = listener
        listener.pools = self.pools

    # The scheduler's half

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        self.pools.append(gpu_block_pool)

    def on_new_request(self, request: Request) -> None:
        self.listener.announced(request)

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        self.listener.asked(request, num_computed_tokens)
        number = number_in(request.request_id)
        provided = self.nodes.provided(number, request.num_tokens, num_computed_tokens, self.keeps_states)
        if provided[0] is None and self.nodes.offers[number].is_awaited:
            self.listener.undecided(number)
        return provided

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        self.listener.allocated(request, blocks.get_block_ids(), num_external_tokens)
        if not num_external_tokens:
            # Newer releases do not take what is offered to a request that may not read the cache.
            self.nodes.decline(number_in(request.request_id))
            return
        self.nodes.take(number_in(request.request_id), blocks.get_block_ids())

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        self.listener.shown_step(scheduler_output)
        self.metadata = FakeMetadata()
        return self.metadata

    def update_connector_output(self, connector_output: Any) -> None:
        self.listener.shown_output(connector_output)

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        """What it counted; now and then nothing."""
        self.counted += 1
        counted = connector_counted(self.counted)
        return Counted(counted) if counted else None

    def take_events(self) -> list[Any]:
        """Its events, of which there are some with every other output."""
        self.taken += 1
        events = [f"an event of the connector, with output {self.taken}"] * (self.taken % 2)
        self.listener.taken(events)
        return events

    def reset_cache(self) -> bool | None:
        done = not self.nodes.under_way()
        self.listener.reset(done)
        return done

    def shutdown(self) -> None:
        self.closed += 1

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self._ended(request, (block_ids,))

    def _ended(self, request: Request, tables: Tables) -> tuple[bool, dict[str, Any] | None]:
        number = number_in(request.request_id)
        reads = self.nodes.reads(number, ended_well(request), tables)
        self.listener.ended(request, tables, reads)
        return reads, transfer_parameters(number) if reads else None

    # The worker's half, which nothing calls

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        raise NotImplementedError("a fake connector has no worker")

    def wait_for_layer_load(self, layer_name: str) -> None:
        raise NotImplementedError("a fake connector has no worker")

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        raise NotImplementedError("a fake connector has no worker")

    def wait_for_save(self) -> None:
        raise NotImplementedError("a fake connector has no worker")


class FakeConnector(OneGroupConnector, SupportsHMA):
    """The scheduler's half of a connector, for every kind of model."""

    def request_finished(self, _request: Request, _block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        self.listener.not_due("request_finished")
        return False, None

    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self._ended(request, block_ids)


class FakeEncoderMetadata(ECConnectorMetadata):
    """Empty: no worker loads anything."""


class FakeEncoderConnector(ECConnectorBase):
    """The scheduler's half of a connector of the encoder's cache: other nodes have some of the items."""

    def __init__(self, vllm_config: Any, role: Any) -> None:
        super().__init__(vllm_config, role)
        self.loads: list[tuple[str, int]] = []
        """The items for which room was allocated since the last step, by request and place."""
        self.metadata = FakeEncoderMetadata()
        """What it had last for its worker's half."""
        self.shown: list[Any] = []
        """The steps that it was shown."""

    def has_cache_item(self, identifier: str) -> bool:
        return elsewhere(identifier)

    def update_state_after_alloc(self, request: Request, index: int) -> None:
        self.loads.append((request.request_id, index))

    def build_connector_meta(self, scheduler_output: Any) -> ECConnectorMetadata:
        self.shown.append(scheduler_output)
        self.metadata = FakeEncoderMetadata()
        return self.metadata

    # The worker's half, which nothing calls

    def start_load_caches(self, encoder_cache: Any, **kwargs: Any) -> None:
        raise NotImplementedError("a fake connector has no worker")

    def save_caches(self, encoder_cache: Any, mm_hash: str, **kwargs: Any) -> None:
        raise NotImplementedError("a fake connector has no worker")
