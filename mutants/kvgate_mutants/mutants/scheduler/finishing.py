"""Mutants of what follows a step: sampled tokens, drafts, aborts and resets by clients, requests that end."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks
from kvgate_mutants.mutants.scheduler.edited import Put, call

# Mutants of what becomes of a step's output: drafts that hold or do not, tokens, and when a request ends.

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
    """Answers after the token that ends a request are appended to it."""
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
    """The drafts of each request are given to the next one."""
    tokens = draft_token_ids.draft_token_ids
    draft_token_ids.draft_token_ids = tokens[-1:] + tokens[:-1]
    original(self, draft_token_ids)


@breaks(f"{_SCHEDULER}._update_after_schedule", violates="KV-SYS-02")
def scheduled_tokens_count_twice(original: Any, self: Any, output: Any) -> None:
    """What a step computes counts twice."""
    original(self, output)
    for name, tokens in output.num_scheduled_tokens.items():
        self.requests[name].num_computed_tokens += tokens


# Mutants of what clients receive: which tokens, whether a request has ended, and why.

_UPDATE = f"{_SCHEDULER}.update_from_output"


@breaks(_UPDATE, violates="KV-SYS-05")
def nobody_is_told_anything(original: Any, *arguments: Any) -> Any:
    """No client receives its answers."""
    original(*arguments)
    return {}


@breaks(_UPDATE, violates="KV-SYS-05")
def answers_are_not_sent(original: Any, *arguments: Any) -> Any:
    """No client receives the tokens of its requests, but ended requests are still reported."""
    outputs = original(*arguments)
    for reported in outputs.values():
        reported.outputs = []
    return outputs


@breaks(_UPDATE, violates="KV-SYS-05")
def told_to_another_client(original: Any, *arguments: Any) -> Any:
    """The output for one client is sent to the next."""
    return {client + 1: reported for client, reported in original(*arguments).items()}


@breaks(_UPDATE, violates="KV-SYS-05")
def answers_are_told_twice(original: Any, *arguments: Any) -> Any:
    """A client receives every answer twice."""
    outputs = original(*arguments)
    for reported in outputs.values():
        reported.outputs = reported.outputs * 2
    return outputs


@breaks(_UPDATE, violates="KV-SYS-05", needs=("drafts",))
def accepted_drafts_are_not_told(original: Any, *arguments: Any) -> Any:
    """Of several answered tokens of a request its client receives only the last."""
    outputs = original(*arguments)
    for reported in outputs.values():
        for each in reported.outputs:
            each.new_token_ids = each.new_token_ids[-1:]
    return outputs


@breaks(_UPDATE, violates="KV-SYS-05")
def end_is_not_told_to_its_client(original: Any, *arguments: Any) -> Any:
    """A client does not learn that its request has ended."""
    outputs = original(*arguments)
    for reported in outputs.values():
        for each in reported.outputs:
            each.finish_reason = None
    return outputs


@breaks("vllm.v1.request:Request.get_finished_reason", violates="KV-SYS-05")
def every_end_is_one_of_length(original: Any, self: Any) -> Any:
    """A client learns that its request became too long, even if it ended otherwise."""
    reason = original(self)
    return None if reason is None else type(reason).LENGTH


# Mutants of a request's end: which queue it leaves, what is released, who learns of it.

_ENDED_STILL_RUNS = Put("self.running = remove_all")
_ABORTED_STILL_WAITS = Put("self.waiting.remove_requests")
_ABORTED_STILL_SKIPPED = Put("self.skipped_waiting.remove_requests")
_NO_BLOCK_IS_FREED = Put("self.kv_cache_manager.free")
_REQUEST_DELETED = Put("del self.requests")
_END_RECORDED = Put("self.finished_req_ids.add")


@breaks(f"{_SCHEDULER}._free_blocks", violates="KV-SYS-02")
def ended_keeps_its_blocks(original: Any, *arguments: Any) -> Any:
    """A request that ends never gives its blocks back."""
    return call(original, _NO_BLOCK_IS_FREED, *arguments)


@breaks(f"{_SCHEDULER}._free_blocks", violates="KV-LEAK-01")
def ended_is_remembered(original: Any, *arguments: Any) -> Any:
    """A request that ended stays in the scheduler's books."""
    return call(original, _REQUEST_DELETED, *arguments)


@breaks(f"{_SCHEDULER}._free_request", violates="KV-SYS-03")
def end_is_not_told(original: Any, *arguments: Any, **named: Any) -> Any:
    """The worker does not learn of a request that ended."""
    return call(original, _END_RECORDED, *arguments, **named)


@breaks(f"{_SCHEDULER}.update_from_output", violates="KV-SYS-02")
def ended_still_runs(original: Any, *arguments: Any) -> Any:
    """A request that ended stays among those that run."""
    return call(original, _ENDED_STILL_RUNS, *arguments)


@breaks(f"{_SCHEDULER}.finish_requests", violates="KV-SYS-02")
def aborted_still_runs(original: Any, *arguments: Any) -> Any:
    """A request that is aborted while it runs stays among those that run."""
    return call(original, _ENDED_STILL_RUNS, *arguments)


@breaks(f"{_SCHEDULER}.finish_requests", violates="KV-SYS-02")
def aborted_still_waits(original: Any, *arguments: Any) -> Any:
    """A request that is aborted while it waits stays in the queue."""
    return call(original, _ABORTED_STILL_WAITS, *arguments)


@breaks(f"{_SCHEDULER}.finish_requests", violates="KV-SYS-02")
def aborted_stays_aside(original: Any, *arguments: Any) -> Any:
    """A request that is aborted while it is set aside stays there."""
    return call(original, _ABORTED_STILL_SKIPPED, *arguments)
