"""Mutants of the asynchronous scheduler: what it assumes of steps whose output it does not know yet."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks

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
