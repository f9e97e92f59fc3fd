"""Mutants of requests that wait: for a grammar, for remote KV, or for the output of an in-flight step."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks
from kvgate_mutants.mutants.scheduler.edited import Put, call

# Mutants of requests that wait for a grammar.

_PROMOTE = "vllm.v1.core.sched.scheduler:Scheduler._try_promote_blocked_waiting_request"


@breaks(_PROMOTE, violates="KV-SYS-01")
def runs_before_its_grammar(original: Any, self: Any, request: Any) -> bool:
    """A request whose answer follows a grammar runs before the grammar is compiled."""
    if request.status.name == "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR":
        request.status = type(request.status).WAITING
        return True
    return bool(original(self, request))


@breaks(_PROMOTE, violates="KV-LIVE-01")
def grammar_is_never_noticed(original: Any, self: Any, request: Any) -> bool:
    """A request whose grammar is compiled keeps waiting for it."""
    if request.status.name == "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR":
        return False
    return bool(original(self, request))


# Mutants of transfers: when a load counts, when blocks may go, what is computed where a load failed.

_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"

_LAST_TOKEN_IS_NOT_COMPUTED = Put("request.num_computed_tokens = request.num_tokens - 1")
_NOT_CACHED_WHEN_LOADED = Put("self.kv_cache_manager.cache_blocks(request, request.num_computed_tokens)", which=1)


@breaks(f"{_SCHEDULER}._free_request", violates="KV-OP-25", needs=("transfers",))
def freed_while_it_is_read(original: Any, self: Any, request: Any, delay_free_blocks: bool = False) -> Any:
    """The blocks of a request that ended are released while another node reads them."""
    finished = self._connector_finished
    self._connector_finished = lambda ended: (False, finished(ended)[1])
    try:
        return original(self, request, delay_free_blocks)
    finally:
        del self._connector_finished


@breaks(f"{_SCHEDULER}._free_request", violates="KV-OP-25", needs=("transfers",))
def freed_while_it_loads(original: Any, self: Any, request: Any, delay_free_blocks: bool = False) -> Any:
    """The blocks of a request that is aborted while it loads are released before the load is over."""
    del delay_free_blocks
    return original(self, request, False)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-OP-24", needs=("transfers",))
def given_blocks_after_the_step(original: Any, self: Any) -> Any:
    """The connector is given the blocks of admitted requests after it was shown the step."""
    if self.connector is None:
        return original(self)
    late: list[Any] = []
    self.connector.update_state_after_alloc = lambda *given: late.append(given)
    try:
        output = original(self)
    finally:
        del self.connector.update_state_after_alloc
    for given in late:
        self.connector.update_state_after_alloc(*given)
    return output


@breaks(f"{_SCHEDULER}._try_promote_blocked_waiting_request", violates="KV-OP-25", needs=("transfers",))
def runs_before_it_is_loaded(original: Any, self: Any, request: Any) -> bool:
    """A request runs before its load is over."""
    if request.status.name == "WAITING_FOR_REMOTE_KVS":
        self.finished_recving_kv_req_ids.add(request.request_id)
    return bool(original(self, request))


@breaks(f"{_SCHEDULER}._handle_invalid_blocks", violates="KV-SYS-02", needs=("transfers",))
def failed_load_counts(_original: Any, *_arguments: Any) -> set[str]:
    """Blocks whose load failed count as loaded."""
    return set()


@breaks(f"{_SCHEDULER}._handle_invalid_blocks", violates="KV-SYS-02", needs=("transfers",))
def failed_load_counts_in_an_asynchronous_step(original: Any, self: Any, *arguments: Any) -> set[str]:
    """Where steps are asynchronous, blocks whose load within a step failed count as loaded."""
    if not self.vllm_config.scheduler_config.async_scheduling:
        return set(original(self, *arguments))
    running, self.running = self.running, []
    failed: set[str] = set(original(self, *arguments))
    self.running = running
    return failed


@breaks("vllm.v1.core.kv_cache_manager:KVCacheManager.allocate_slots", violates="KV-OP-10", needs=("transfers",))
def cached_before_it_is_loaded(original: Any, *arguments: Any, **named: Any) -> Any:
    """Blocks that are still loading are offered to others."""
    return original(*arguments, **(named | {"delay_cache_blocks": False}))


@breaks(f"{_SCHEDULER}._update_waiting_for_remote_kv", violates="KV-SYS-01", needs=("transfers",))
def fully_loaded_computes_nothing(original: Any, *arguments: Any) -> Any:
    """A request of which everything was loaded has no token left to compute, and is never answered."""
    return call(original, _LAST_TOKEN_IS_NOT_COMPUTED, *arguments)


@breaks(f"{_SCHEDULER}._update_waiting_for_remote_kv", violates="KV-SYS-02", needs=("transfers",))
def loaded_is_not_cached(original: Any, *arguments: Any) -> Any:
    """What was loaded is not offered to others."""
    return call(original, _NOT_CACHED_WHEN_LOADED, *arguments)


@breaks(f"{_SCHEDULER}._update_from_kv_xfer_finished", violates="KV-LEAK-01", needs=("transfers",))
def read_blocks_are_kept(original: Any, self: Any, output: Any) -> None:
    """Blocks that another node has read are never released."""
    output.finished_sending = None
    original(self, output)


@breaks(f"{_SCHEDULER}._update_from_kv_xfer_finished", violates="KV-LIVE-03", needs=("transfers",))
def load_is_never_over(original: Any, self: Any, output: Any) -> None:
    """That a load is over is not noticed."""
    output.finished_recving = None
    original(self, output)


# Mutants of the asynchronous scheduler: what it assumes of steps whose output it does not know yet.

_ASYNC = "vllm.v1.core.sched.async_scheduler:AsyncScheduler"


@breaks(f"{_ASYNC}._update_after_schedule", violates="KV-SYS-01", needs=("asynchronous",))
def next_token_is_not_expected(original: Any, self: Any, output: Any) -> None:
    """A step in flight is not expected to answer a token."""
    original(self, output)
    for name in output.num_scheduled_tokens:
        self.requests[name].num_output_placeholders = 0


@breaks(f"{_ASYNC}._update_request_with_output", violates="KV-LIVE-03", needs=("asynchronous",))
def answered_token_is_still_expected(original: Any, self: Any, request: Any, tokens: Any) -> Any:
    """A token that was answered still counts as expected."""
    expected = request.num_output_placeholders
    answered = original(self, request, tokens)
    if not answered[1]:
        request.num_output_placeholders = expected
    return answered


@breaks(f"{_ASYNC}._update_after_schedule", violates="KV-SYS-01", needs=("drafts", "asynchronous"))
def drafts_in_flight_are_not_expected(original: Any, self: Any, output: Any) -> None:
    """Drafts that are computed in a step in flight are not expected to hold."""
    original(self, output)
    for name, drafts in output.scheduled_spec_decode_tokens.items():
        self.requests[name].num_output_placeholders -= len(drafts)


_LATE = "self.kv_cache_manager.cache_blocks("
_NOT_CACHED_WITH_ITS_ANSWER = Put(_LATE)
_CACHED_WITH_THE_ANSWER_AFTER_IT = Put(
    _LATE, f"{_LATE}request, request.num_computed_tokens - request.num_output_placeholders - 1)"
)
_REJECTED_STAYS_COMPUTED = Put("request.num_computed_tokens -= num_rejected")
_REJECTED_STAYS_EXPECTED = Put("request.num_output_placeholders -= num_rejected")


@breaks(f"{_ASYNC}._update_request_with_output", violates="KV-OP-08", needs=("asynchronous",))
def late_answer_is_not_cached(original: Any, *arguments: Any) -> Any:
    """A block that was computed before its last token was known is not cached when that is answered."""
    return call(original, _NOT_CACHED_WITH_ITS_ANSWER, *arguments)


@breaks(f"{_ASYNC}._update_request_with_output", violates="KV-OP-08", needs=("asynchronous",))
def late_answer_is_cached_with_the_next(original: Any, *arguments: Any) -> Any:
    """A block that was computed before its last token was known is cached an answer later."""
    return call(original, _CACHED_WITH_THE_ANSWER_AFTER_IT, *arguments)


@breaks(f"{_SCHEDULER}.update_from_output", violates="KV-SYS-06", needs=("drafts", "asynchronous"))
def rejected_draft_stays_computed(original: Any, *arguments: Any) -> Any:
    """A draft that a step ahead has computed, and that does not hold, counts as computed."""
    return call(original, _REJECTED_STAYS_COMPUTED, *arguments)


@breaks(f"{_SCHEDULER}.update_from_output", violates="KV-SYS-06", needs=("drafts", "asynchronous"))
def rejected_draft_stays_expected(original: Any, *arguments: Any) -> Any:
    """A draft that does not hold is still expected from a step in flight."""
    return call(original, _REJECTED_STAYS_EXPECTED, *arguments)
