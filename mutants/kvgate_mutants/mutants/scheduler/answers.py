"""Mutants of what becomes of a step's output: drafts that hold or do not, tokens, and when a request ends."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks
from kvgate_mutants.mutants.scheduler.edited import Put, call

_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"

_REJECTED_STAND = Put("request.num_computed_tokens -= num_rejected")
_ACCEPTED_GO_TOO = Put("num_rejected =", "num_rejected = num_draft_tokens")


@breaks(f"{_SCHEDULER}.update_from_output", violates="KV-SYS-02", needs=("drafts",))
def rejected_drafts_stand(original: Any, *arguments: Any) -> Any:
    """Drafts that were rejected still count as computed."""
    return call(original, _REJECTED_STAND, *arguments)


@breaks(f"{_SCHEDULER}.update_from_output", violates="KV-SYS-02", needs=("drafts",))
def accepted_drafts_are_taken_back(original: Any, *arguments: Any) -> Any:
    """Drafts that hold are computed again."""
    return call(original, _ACCEPTED_GO_TOO, *arguments)


@breaks(f"{_SCHEDULER}._update_request_with_output", violates="KV-SYS-02", needs=("drafts",))
def tokens_behind_the_last_one(original: Any, self: Any, request: Any, tokens: Any) -> Any:
    """What is answered behind the token that ends a request is appended to it."""
    stopped = False
    for token in tokens:
        request.append_output_token_ids(token)
        stopped = original.__globals__["check_stop"](request, self.max_model_len) or stopped
    return tokens, stopped


@breaks("vllm.v1.core.sched.scheduler:check_stop", violates="KV-SYS-02")
def ends_one_token_early(original: Any, request: Any, max_model_len: int) -> bool:
    """A request ends one token before it may."""
    return bool(original(request, max_model_len - 1))


@breaks(f"{_SCHEDULER}.update_draft_token_ids", violates="KV-SYS-03", needs=("drafts",))
def drafts_go_to_the_next(original: Any, self: Any, draft_token_ids: Any) -> None:
    """The drafts of each request are given to the one behind it."""
    tokens = draft_token_ids.draft_token_ids
    draft_token_ids.draft_token_ids = tokens[-1:] + tokens[:-1]
    original(self, draft_token_ids)


@breaks(f"{_SCHEDULER}._update_after_schedule", violates="KV-SYS-02")
def scheduled_tokens_count_twice(original: Any, self: Any, output: Any) -> None:
    """What a step computes counts twice."""
    original(self, output)
    for name, tokens in output.num_scheduled_tokens.items():
        self.requests[name].num_computed_tokens += tokens
