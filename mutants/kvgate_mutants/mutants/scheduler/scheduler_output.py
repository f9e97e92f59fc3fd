"""Mutants of what a step tells the worker: whose tables, which blocks, from which token."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import HYBRID, breaks
from kvgate_mutants.mutants.scheduler.edited import Put, call

_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"
_CACHED = f"{_SCHEDULER}._make_cached_request_data"

_RESUMED_IS_NOT_FLAGGED = Put("resumed_req_ids.add")
_ALL_BLOCKS_OF_ONE_THAT_RUNS = Put(
    "new_block_ids.append", "new_block_ids.append(self.kv_cache_manager.get_block_ids(req_id))"
)


@breaks(_CACHED, violates="KV-SYS-03")
def new_blocks_are_not_told(original: Any, *arguments: Any, **named: Any) -> Any:
    """The worker is not told of the blocks that a running request gained."""
    data = original(*arguments, **named)
    data.new_block_ids = [
        blocks if name in data.resumed_req_ids else None
        for name, blocks in zip(data.req_ids, data.new_block_ids, strict=True)
    ]
    return data


@breaks(_CACHED, violates="KV-SYS-03", models=HYBRID)
def blocks_go_to_another_group(original: Any, *arguments: Any, **named: Any) -> Any:
    """The new blocks of one group are told as those of another."""
    data = original(*arguments, **named)
    data.new_block_ids = [blocks and tuple(reversed(blocks)) for blocks in data.new_block_ids]
    return data


@breaks(_CACHED, violates="KV-SYS-03")
def all_blocks_are_told_again(original: Any, *arguments: Any) -> Any:
    """A running request's blocks are told again with each step, as if they were new."""
    return call(original, _ALL_BLOCKS_OF_ONE_THAT_RUNS, *arguments)


@breaks(_CACHED, violates="KV-SYS-03", needs=("preemption",))
def resumed_is_not_flagged(original: Any, *arguments: Any) -> Any:
    """The blocks of who comes back are told as further ones, behind those that it lost."""
    return call(original, _RESUMED_IS_NOT_FLAGGED, *arguments)


@breaks(_CACHED, violates="KV-SYS-03")
def told_to_go_on_too_late(original: Any, *arguments: Any, **named: Any) -> Any:
    """The worker is told to go on behind the tokens that it should compute."""
    data = original(*arguments, **named)
    scheduled = named["num_scheduled_tokens"] if "num_scheduled_tokens" in named else arguments[3]
    data.num_computed_tokens = [
        tokens + scheduled[name] for name, tokens in zip(data.req_ids, data.num_computed_tokens, strict=True)
    ]
    return data


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-03")
def hit_is_not_told(original: Any, *arguments: Any) -> Any:
    """The worker is told to compute a new request from its first token on, whatever its hit."""
    output = original(*arguments)
    for data in output.scheduled_new_reqs:
        data.num_computed_tokens = 0
    return output


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-03")
def new_told_as_known(original: Any, *arguments: Any) -> Any:
    """A request that is new to the worker is told as one that it knows."""
    output = original(*arguments)
    new, known = output.scheduled_new_reqs, output.scheduled_cached_reqs
    for data in new:
        known.req_ids.append(data.req_id)
        known.new_block_ids.append(data.block_ids)
        known.num_computed_tokens.append(data.num_computed_tokens)
        known.num_output_tokens.append(0)
    output.scheduled_new_reqs = []
    return output


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-03", needs=("drafts",))
def drafts_are_not_told(original: Any, *arguments: Any) -> Any:
    """The worker is not told which drafts it computes."""
    output = original(*arguments)
    output.scheduled_spec_decode_tokens = {}
    return output


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-03")
def too_much_is_shared(original: Any, *arguments: Any) -> Any:
    """The worker is told that all that run have nine blocks in common."""
    output = original(*arguments)
    output.num_common_prefix_blocks = [9 for _group in output.num_common_prefix_blocks]
    return output


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-03")
def prompt_is_told_backwards(original: Any, *arguments: Any) -> Any:
    """The worker is told the prompt of a new request from its last token to its first."""
    output = original(*arguments)
    for data in output.scheduled_new_reqs:
        data.prompt_token_ids = data.prompt_token_ids[::-1]
    return output


@breaks(_CACHED, violates="KV-SYS-03")
def one_answer_more_is_told(original: Any, *arguments: Any, **named: Any) -> Any:
    """The worker is told of one token more that a request was answered."""
    data = original(*arguments, **named)
    data.num_output_tokens = [tokens + 1 for tokens in data.num_output_tokens]
    return data


@breaks(_CACHED, violates="KV-SYS-03")
def last_token_is_not_told(original: Any, *arguments: Any, **named: Any) -> Any:
    """The worker is not told the last token of who comes back."""
    data = original(*arguments, **named)
    data.all_token_ids = {name: tokens[:-1] for name, tokens in data.all_token_ids.items()}
    return data


@breaks(_CACHED, violates="KV-SYS-03")
def no_token_to_compute(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """A worker that is told its tokens is told none."""
    data = original(self, *arguments, **named)
    data.new_token_ids = [[] for _name in data.req_ids]
    return data


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-03", needs=("preemption",))
def preemption_is_not_told(original: Any, *arguments: Any) -> Any:
    """The worker is not told who lost its blocks."""
    output = original(*arguments)
    output.preempted_req_ids = set()
    return output
