"""A KV connector of its own kind: it keeps blocks of prompts in a dictionary on the host, and loads them within steps.

With ``fails_every`` in its configuration every so many loads fail. It reports them, and stores nothing that follows.

It knows nothing of kvgate, which checks it with ``kvgate check --level tiers --connector``. For models with one group.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)


@dataclass
class Copies(KVConnectorMetadata):
    """What the worker's half is to copy in a step: the key and the block of each."""

    loads: list[tuple[bytes, int]] = field(default_factory=list)
    stores: list[tuple[bytes, int]] = field(default_factory=list)
    tables: dict[int, list[int]] = field(default_factory=dict)
    """Of each block that is stored, the blocks that it was computed from."""


@dataclass
class Missing(KVConnectorWorkerMetadata):
    """The keys that the worker's half has not stored, or does not have."""

    keys: set[bytes]

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        assert isinstance(other, Missing)
        return Missing(self.keys | other.keys)


class HostStore(KVConnectorBase_V1):
    """Both halves."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        (group,) = kv_cache_config.kv_cache_groups
        self.block_tokens: int = group.kv_cache_spec.block_size
        self.fails_every: int = self._kv_transfer_config.get_from_extra_config("fails_every", 0)
        # The scheduler's half.
        self.stored: set[bytes] = set()
        self.requests: dict[str, Any] = {}
        self.tables: dict[str, list[int]] = {}
        self.hit_tokens: dict[str, int] = {}
        self.loads: list[tuple[bytes, int]] = []
        # The worker's half.
        self.layers: dict[str, Any] = {}
        self.host: dict[tuple[bytes, str], Any] = {}
        self.loaded = 0
        self.failed: set[int] = set()
        """The blocks whose load has failed in this step."""
        self.failed_before: set[int] = set()
        """Those of the step before, of which the scheduler may not have known when it scheduled this one."""
        self.missing: set[bytes] = set()

    # The scheduler's half

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        self.hit_tokens[request.request_id] = num_computed_tokens
        first = last = num_computed_tokens // self.block_tokens
        # The last token is always computed, even if it is stored.
        while last < (request.num_tokens - 1) // self.block_tokens and bytes(request.block_hashes[last]) in self.stored:
            last += 1
        return (last - first) * self.block_tokens, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self.requests[request.request_id] = request
        first = self.hit_tokens.get(request.request_id, 0) // self.block_tokens
        table = blocks.get_block_ids()[0]
        for place in range(first, first + num_external_tokens // self.block_tokens):
            # A window has left what is in block 0.
            if table[place]:
                self.loads.append((bytes(request.block_hashes[place]), table[place]))

    def build_connector_meta(self, scheduler_output: Any) -> Copies:
        copies, self.loads = Copies(self.loads), []
        cached = scheduler_output.scheduled_cached_reqs
        for new in scheduler_output.scheduled_new_reqs:
            self.tables[new.req_id] = list(new.block_ids[0])
            self._store(copies, new.req_id, new.num_computed_tokens, scheduler_output)
        for name, blocks, computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            if name in cached.resumed_req_ids:
                self.tables[name] = []
            if blocks is not None:
                self.tables[name] += blocks[0]
            self._store(copies, name, computed, scheduler_output)
        return copies

    def _store(self, copies: Copies, name: str, computed: int, output: Any) -> None:
        """Store the blocks of a prompt that are full after this step."""
        request = self.requests[name]
        end = min(computed + output.num_scheduled_tokens[name], request.num_prompt_tokens)
        for place in range(end // self.block_tokens):
            key = bytes(request.block_hashes[place])
            table = self.tables[name]
            if key not in self.stored and table[place]:
                self.stored.add(key)
                copies.stores.append((key, table[place]))
                copies.tables[table[place]] = table[:place]

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        del block_ids
        for kept in (self.requests, self.tables, self.hit_tokens):
            kept.pop(request.request_id, None)
        return False, None

    def update_connector_output(self, connector_output: Any) -> None:
        missing = connector_output.kv_connector_worker_meta
        if missing is not None:
            self.stored -= missing.keys

    # The worker's half

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        self.layers = kv_caches

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        del forward_context, kwargs
        for key, block in self.copies().loads:
            self.loaded += 1
            fails = self.fails_every and self.loaded % self.fails_every == 0
            # What was to store it may have followed a load that failed.
            if fails or any((key, name) not in self.host for name in self.layers):
                self.failed.add(block)
                # If it were offered again, it might fail again and again, and its request would never be computed.
                self.missing.add(key)
            else:
                for name, layer in self.layers.items():
                    layer[block] = self.host[key, name]

    def copies(self) -> Copies:
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, Copies)
        return metadata

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Loads have ended when they were begun."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """All layers are saved at the end."""

    def wait_for_save(self) -> None:
        copies = self.copies()
        for key, block in copies.stores:
            if (self.failed | self.failed_before).intersection([block, *copies.tables[block]]):
                self.missing.add(key)
            else:
                self.save(key, block)

    def save(self, key: bytes, block: int) -> None:
        for name, layer in self.layers.items():
            self.host[key, name] = layer[block].clone()

    def get_block_ids_with_load_errors(self) -> set[int]:
        self.failed_before, self.failed = self.failed, set()
        return self.failed_before

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        missing, self.missing = self.missing, set()
        return Missing(missing) if missing else None
