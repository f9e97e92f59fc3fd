"""Mutants of what a step sends to the worker: whose tables, which blocks, from which token."""

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
    """The worker does not get the blocks that a running request gained."""
    data = original(*arguments, **named)
    data.new_block_ids = [
        blocks if name in data.resumed_req_ids else None
        for name, blocks in zip(data.req_ids, data.new_block_ids, strict=True)
    ]
    return data


@breaks(_CACHED, violates="KV-SYS-03", models=HYBRID)
def blocks_go_to_another_group(original: Any, *arguments: Any, **named: Any) -> Any:
    """The new blocks of one group are sent as those of another."""
    data = original(*arguments, **named)
    data.new_block_ids = [blocks and tuple(reversed(blocks)) for blocks in data.new_block_ids]
    return data


@breaks(_CACHED, violates="KV-SYS-03")
def all_blocks_are_told_again(original: Any, *arguments: Any) -> Any:
    """A running request's blocks are sent again with each step, as if they were new."""
    return call(original, _ALL_BLOCKS_OF_ONE_THAT_RUNS, *arguments)


@breaks(_CACHED, violates="KV-SYS-03", needs=("preemption",))
def resumed_is_not_flagged(original: Any, *arguments: Any) -> Any:
    """The blocks of a resumed request are sent as further ones, after those that it lost."""
    return call(original, _RESUMED_IS_NOT_FLAGGED, *arguments)


@breaks(_CACHED, violates="KV-SYS-03")
def told_to_go_on_too_late(original: Any, *arguments: Any, **named: Any) -> Any:
    """The worker gets the order to continue after the tokens that it should compute."""
    data = original(*arguments, **named)
    scheduled = named["num_scheduled_tokens"] if "num_scheduled_tokens" in named else arguments[3]
    data.num_computed_tokens = [
        tokens + scheduled[name] for name, tokens in zip(data.req_ids, data.num_computed_tokens, strict=True)
    ]
    return data


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-03")
def hit_is_not_told(original: Any, *arguments: Any) -> Any:
    """The worker gets the order to compute a new request from its first token on, in spite of its hit."""
    output = original(*arguments)
    for data in output.scheduled_new_reqs:
        data.num_computed_tokens = 0
    return output


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-03")
def new_told_as_known(original: Any, *arguments: Any) -> Any:
    """A request that is new to the worker is sent as one that it knows."""
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
    """The worker does not get the drafts that it computes."""
    output = original(*arguments)
    output.scheduled_spec_decode_tokens = {}
    return output


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-03")
def too_much_is_shared(original: Any, *arguments: Any) -> Any:
    """The worker gets the message that all running requests have nine blocks in common."""
    output = original(*arguments)
    output.num_common_prefix_blocks = [9 for _group in output.num_common_prefix_blocks]
    return output


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-03")
def prompt_is_told_backwards(original: Any, *arguments: Any) -> Any:
    """The worker gets the prompt of a new request from its last token to its first."""
    output = original(*arguments)
    for data in output.scheduled_new_reqs:
        data.prompt_token_ids = data.prompt_token_ids[::-1]
    return output


@breaks(_CACHED, violates="KV-SYS-03")
def one_answer_more_is_told(original: Any, *arguments: Any, **named: Any) -> Any:
    """The worker gets one answered token of a request too many."""
    data = original(*arguments, **named)
    data.num_output_tokens = [tokens + 1 for tokens in data.num_output_tokens]
    return data


@breaks(_CACHED, violates="KV-SYS-03")
def last_token_is_not_told(original: Any, *arguments: Any, **named: Any) -> Any:
    """The worker does not get the last token of a resumed request."""
    data = original(*arguments, **named)
    data.all_token_ids = {name: tokens[:-1] for name, tokens in data.all_token_ids.items()}
    return data


@breaks(_CACHED, violates="KV-SYS-03")
def no_token_to_compute(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """A worker that should get its tokens gets none."""
    data = original(self, *arguments, **named)
    data.new_token_ids = [[] for _name in data.req_ids]
    return data


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-03", needs=("preemption",))
def preemption_is_not_told(original: Any, *arguments: Any) -> Any:
    """The worker does not learn which request lost its blocks."""
    output = original(*arguments)
    output.preempted_req_ids = set()
    return output


# What a step has of requests that are not in it


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-03", needs=("drafts",))
def drafts_of_one_that_is_not_in_the_step(original: Any, self: Any) -> Any:
    """The drafts of a request that the step does not compute are sent with it."""
    output = original(self)
    for name, request in self.requests.items():
        if name not in output.num_scheduled_tokens:
            output.scheduled_spec_decode_tokens[name] = list(request.spec_token_ids) or [1]
    return output


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-03")
def all_tokens_of_one_that_is_not_in_the_step(original: Any, self: Any) -> Any:
    """All tokens of a request are sent that the step does not compute."""
    output = original(self)
    for name, request in self.requests.items():
        if name not in output.num_scheduled_tokens:
            output.scheduled_cached_reqs.all_token_ids[name] = list(request.all_token_ids)
    return output


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-03")
def new_ones_are_flagged_as_resumed(original: Any, self: Any) -> Any:
    """A request that is new is flagged as one that comes back."""
    output = original(self)
    output.scheduled_cached_reqs.resumed_req_ids.update(data.req_id for data in output.scheduled_new_reqs)
    return output


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-03")
def ended_twice(original: Any, self: Any) -> Any:
    """The worker is sent the requests that ended in two steps."""
    output = original(self)
    output.finished_req_ids = output.finished_req_ids | getattr(self, "ended_before", set())
    self.ended_before = set(output.finished_req_ids)
    return output


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-03")
def one_that_waits_has_ended(original: Any, self: Any) -> Any:
    """The worker is sent a request that waits as one that has ended."""
    output = original(self)
    waiting = {request.request_id for request in self.waiting if not request.num_computed_tokens}
    output.finished_req_ids = output.finished_req_ids | waiting
    return output


# What a new request comes with, changed where it stands


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-03")
def sampling_of_a_new_one_is_changed(original: Any, self: Any) -> Any:
    """Of a new request, the worker samples with another temperature."""
    output = original(self)
    for data in output.scheduled_new_reqs:
        if data.sampling_params is not None:
            data.sampling_params.temperature += 0.5
    return output


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-03", needs=("encoder",))
def item_of_another_hash(original: Any, self: Any) -> Any:
    """The items of a new request come with the hash of the first one."""
    output = original(self)
    for data in output.scheduled_new_reqs:
        for item in data.mm_features[1:]:
            item.mm_hash = data.mm_features[0].mm_hash
    return output


# Events and resets

_PUBLISHED = "vllm.v1.core.sched.scheduler:KVEventBatch"


@breaks(_PUBLISHED, violates="KV-OP-12")
def published_tokens_are_changed(original: Any, *arguments: Any, **named: Any) -> Any:
    """The tokens of stored blocks are published in the reverse order."""
    batch = original(*arguments, **named)
    for event in batch.events:
        if hasattr(event, "token_ids"):
            event.token_ids = list(event.token_ids)[::-1]
    return batch


@breaks("vllm.v1.core.block_pool:BlockPool.take_events", violates="KV-OP-12")
def blocks_stored_elsewhere(original: Any, self: Any) -> Any:
    """Blocks are said to be stored in the host's memory."""
    events = original(self)
    for event in events:
        if hasattr(event, "token_ids"):
            event.medium = "CPU"
    return events


@breaks("vllm.v1.core.block_pool:BlockPool.take_events", violates="KV-OP-12", needs=("adapter",))
def stored_for_another_adapter(original: Any, self: Any) -> Any:
    """Blocks are said to be stored for an adapter of another number."""
    events = original(self)
    for event in events:
        if getattr(event, "lora_id", None) is not None:
            event.lora_id += 1000
    return events


@breaks(f"{_SCHEDULER}.reset_encoder_cache", violates="KV-OP-11", needs=("encoder",))
def encoder_is_not_reset(_original: Any, _self: Any) -> Any:
    """The encoder's cache stays as it is when it is reset."""
    return None
