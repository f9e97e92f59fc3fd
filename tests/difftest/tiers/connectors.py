"""Connectors that are broken, each in one way."""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1

from examples.connector.host_store import Copies, HostStore


class LoadsTheBlockBefore(HostStore):
    """A load brings each block to the place after its own."""

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        super().update_state_after_alloc(request, blocks, num_external_tokens)
        keys = [key for key, _ in self.loads]
        self.loads = [(key, block) for key, (_, block) in zip(keys[:1] + keys, self.loads, strict=False)]


class SavesTooEarly(HostStore):
    """Blocks are saved before they are computed."""

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        super().start_load_kv(forward_context, **kwargs)
        for key, block in self.copies().stores:
            self.save(key, block)

    def wait_for_save(self) -> None:
        """They are saved already."""


class LoadsTooLate(HostStore):
    """Tokens that a step reads are loaded when the step is over."""

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Not yet."""

    def wait_for_save(self) -> None:
        super().start_load_kv(None)
        super().wait_for_save()


class HitsTheLastToken(HostStore):
    """A hit goes one block further than what is stored."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        tokens, waits = super().get_num_new_matched_tokens(request, num_computed_tokens)
        return tokens + self.block_tokens * bool(tokens), waits


class ReportsNoFailure(HostStore):
    """A load that failed counts as done."""

    def get_block_ids_with_load_errors(self) -> set[int]:
        super().get_block_ids_with_load_errors()
        return set()


class StoresAfterFailure(HostStore):
    """What a step computes from a failed load is stored."""

    def wait_for_save(self) -> None:
        for key, block in self.copies().stores:
            self.save(key, block)


class StoresWhatFailed(HostStore):
    """A block whose load has failed is stored, and what follows is not."""

    def wait_for_save(self) -> None:
        for key, block in self.copies().loads:
            if block in self.failed:
                self.save(key, block)
        super().wait_for_save()


class Raises(HostStore):
    """Its constructor raises."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        del vllm_config, role, kv_cache_config
        raise OSError("no room on the host")


class Half(KVConnectorBase_V1):
    """It has a method alone."""

    def build_connector_meta(self, scheduler_output: Any) -> Copies:
        del scheduler_output
        return Copies()
