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
                self.missing.discard(key)
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


class Asynchronous(HostStore):
    """Sound: a request waits for its load, whose end is reported in the step that copies."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.waiting: list[str] = []
        self.ended: set[str] = set()

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        tokens, _ = super().get_num_new_matched_tokens(request, num_computed_tokens)
        return tokens, bool(tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        super().update_state_after_alloc(request, blocks, num_external_tokens)
        self.waiting += [request.request_id] * bool(num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        copies: Any = super().build_connector_meta(scheduler_output)
        copies.names, self.waiting = self.waiting, []
        return copies

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        super().start_load_kv(forward_context, **kwargs)
        self.report_loaded()

    def report_loaded(self) -> None:
        copies: Any = self.copies()
        self.ended |= set(copies.names)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        del finished_req_ids
        ended, self.ended = self.ended, set()
        return None, ended or None


class ReportsALostLoad(Asynchronous):
    """A load is reported to have ended, and brought nothing."""

    def start_load_kv(self, *_arguments: Any, **_named: Any) -> None:
        self.report_loaded()


class NeverReports(Asynchronous):
    """The end of a load is never reported."""

    def report_loaded(self) -> None:
        """It is not."""


class KeepsBlocks(HostStore):
    """Blocks of an ended request are kept for a store whose end is never reported."""

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, Any]:
        super().request_finished(request, block_ids)
        return True, None


class DoesNothing(HostStore):
    """It offers and stores nothing."""

    def get_num_new_matched_tokens(self, *_arguments: Any) -> tuple[int, bool]:
        return 0, False
