"""Mutants of what a step schedules: the token budget, chunks, queues, admission and preemption."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks
from kvgate_mutants.mutants.scheduler.edited import Ask, Put, call

# Mutants of a step's limits: how many tokens it computes, and how many requests run.

_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"

_RUNNING_COST_NOTHING = Put("token_budget -=")
_WAITING_COST_ONE = Put("token_budget -=", "token_budget -= 1", which=1)
_CHUNK_WITHOUT_LIMIT = Put("num_new_tokens = min(num_new_tokens, token_budget)", which=1)
_ONE_MORE = "len(self.running) > self.max_num_running_reqs"
_ONE_MORE_RUNS = Ask("self.running", "self.max_num_running_reqs", instead=_ONE_MORE)
_BEYOND_THE_LONGEST = Put("num_new_tokens = min(num_new_tokens, self.max_model_len")


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-01")
def running_cost_nothing(original: Any, *arguments: Any) -> Any:
    """What running requests compute is not taken off the step's budget."""
    return call(original, _RUNNING_COST_NOTHING, *arguments)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-01")
def waiting_cost_one_token(original: Any, *arguments: Any) -> Any:
    """An admitted request costs the budget one token, however many it computes."""
    return call(original, _WAITING_COST_ONE, *arguments)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-OP-05")
def chunk_without_limit(original: Any, *arguments: Any) -> Any:
    """An admitted request computes its whole prompt, without regard to the rest of the budget."""
    return call(original, _CHUNK_WITHOUT_LIMIT, *arguments)


@breaks(f"{_SCHEDULER}.__init__", violates="KV-SYS-03")
def budget_with_drafts_on_top(original: Any, self: Any, *arguments: Any, **named: Any) -> None:
    """A step computes a token more than the worker has room for."""
    original(self, *arguments, **named)
    self.max_num_scheduled_tokens += 1


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-01")
def running_limit_passed_by_one(original: Any, *arguments: Any) -> Any:
    """One request more than may run is admitted."""
    return call(original, _ONE_MORE_RUNS, *arguments)


@breaks(f"{_SCHEDULER}.__init__", violates="KV-SYS-03")
def running_limit_read_wrong(original: Any, self: Any, *arguments: Any, **named: Any) -> None:
    """One request more may run than the worker has rows for."""
    original(self, *arguments, **named)
    self.max_num_running_reqs += 1


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-02", needs=("drafts", "token-limit"))
def drafts_beyond_the_longest(original: Any, *arguments: Any) -> Any:
    """Drafts are computed beyond the longest that a request may become."""
    return call(original, _BEYOND_THE_LONGEST, *arguments)


# Mutants of how much a step computes: less than it could, and nothing else is wrong.

_ONE_TOKEN_LEFT_OVER = Put("token_budget -= num_new_tokens", "token_budget = max(0, token_budget - num_new_tokens - 1)")
_SECOND_RESTS = Put(
    "num_new_tokens = min(num_new_tokens, token_budget)",
    "num_new_tokens = 0 if req_index == 1 else min(num_new_tokens, token_budget)",
)


@breaks(f"{_SCHEDULER}.update_draft_token_ids", violates="KV-SYS-06", needs=("drafts",))
def drafts_are_never_taken(_original: Any, _self: Any, _drafts: Any) -> None:
    """What is drafted is thrown away, and never computed."""


@breaks(f"{_SCHEDULER}.__init__", violates="KV-SYS-06")
def three_tokens_of_a_prompt(original: Any, self: Any, *arguments: Any, **named: Any) -> None:
    """A step computes three tokens of one prompt at most, though it has room for more."""
    original(self, *arguments, **named)
    self.scheduler_config.long_prefill_token_threshold = 3


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-06")
def running_cost_one_token_more(original: Any, *arguments: Any) -> Any:
    """A running request costs the budget one token more than it computes."""
    return call(original, _ONE_TOKEN_LEFT_OVER, *arguments)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-06")
def second_that_runs_rests(original: Any, *arguments: Any) -> Any:
    """The second of those that run computes nothing, though there is room."""
    return call(original, _SECOND_RESTS, *arguments)


# Mutants of the queues: who is next, and who is passed over.

_FCFS = "vllm.v1.core.sched.request_queue:FCFSRequestQueue"

_WHILE_ANYBODY_WAITS = Ask("self.waiting", "self.skipped_waiting", instead="self.waiting and token_budget > 0")
_BLOCKED_HEAD_BLOCKS_ALL = Put("request_queue.pop_request", "break")
_SKIPPED_ARE_FORGOTTEN = Put("self.skipped_waiting.prepend_requests")


@breaks(f"{_FCFS}.add_request", violates="KV-LIVE-01")
def last_come_first_served(_original: Any, self: Any, request: Any) -> None:
    """A new request is served before all waiting ones."""
    self.appendleft(request)


@breaks(f"{_FCFS}.peek_request", f"{_FCFS}.pop_request", violates="KV-LIVE-01")
def head_is_passed_over(original: Any, self: Any) -> Any:
    """As long as two wait, the second is served."""
    if len(self) < 2:
        return original(self)
    first = self.popleft()
    request = original(self)
    self.appendleft(first)
    return request


@breaks("vllm.v1.request:Request.__lt__", violates="KV-LIVE-01", needs=("priority",))
def priority_upside_down(original: Any, self: Any, other: Any) -> bool:
    """The least urgent request is served first."""
    return bool(original(other, self))


@breaks(
    "vllm.v1.core.sched.request_queue:PriorityRequestQueue.remove_requests", violates="KV-LIVE-01", needs=("priority",)
)
def removal_leaves_no_heap(_original: Any, self: Any, requests: Any) -> None:
    """After an abort the most urgent request may stand anywhere in the queue."""
    removed = set(requests)
    self._heap = [each for each in reversed(self._heap) if each not in removed]


@breaks(f"{_SCHEDULER}.schedule", violates="KV-LIVE-03")
def skipped_are_never_looked_at(original: Any, *arguments: Any) -> Any:
    """Who was set aside is looked at only while others wait."""
    return call(original, _WHILE_ANYBODY_WAITS, *arguments)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-LIVE-01", needs=("transfers",))
def blocked_head_blocks_all(original: Any, *arguments: Any) -> Any:
    """After a request whose blocks are still loading, no request is admitted."""
    return call(original, _BLOCKED_HEAD_BLOCKS_ALL, *arguments)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-LIVE-01")
def skipped_are_forgotten(original: Any, *arguments: Any) -> Any:
    """Who is set aside is in no queue any more."""
    return call(original, _SKIPPED_ARE_FORGOTTEN, *arguments)


# Mutants of admission: what is asked of the block manager for an admitted request.

_HIT_IS_COMPUTED_AGAIN = Put(
    "num_new_tokens = request.num_tokens - num_computed", "num_new_tokens = request.num_tokens"
)
_HIT_COUNTS_ONE_LESS = Put(
    "request.num_computed_tokens = num_computed_tokens",
    "request.num_computed_tokens = max(0, num_computed_tokens - 1)",
    which=1,
)
_HIT_IS_NOT_TOUCHED = Put(
    "new_computed_blocks, num_new_local",
    "new_computed_blocks = self.kv_cache_manager.empty_kv_cache_blocks; "
    "num_new_local_computed_tokens = self.kv_cache_manager.get_computed_blocks(request)[1]",
)
_DRAFTS_IN_THE_FIRST_CHUNK = Put(
    "effective_lookahead_tokens =", "effective_lookahead_tokens = self.num_lookahead_tokens"
)


@breaks(f"{_SCHEDULER}.__init__", violates="KV-OP-03")
def gate_is_not_asked(original: Any, self: Any, *arguments: Any, **named: Any) -> None:
    """A request's first chunk is admitted without asking whether the whole request fits."""
    original(self, *arguments, **named)
    self.scheduler_reserve_full_isl = False


@breaks(f"{_SCHEDULER}.__init__", violates="KV-OP-05", needs=("drafts", "eagle"))
def no_slots_for_drafts(original: Any, self: Any, *arguments: Any, **named: Any) -> None:
    """The slots that draft layers write ahead are not asked for."""
    original(self, *arguments, **named)
    self.num_lookahead_tokens = 0


@breaks(f"{_SCHEDULER}.schedule", violates="KV-OP-05", needs=("drafts", "eagle"))
def drafts_in_the_first_chunk(original: Any, *arguments: Any) -> Any:
    """A first chunk asks for slots ahead, though nothing is drafted yet."""
    return call(original, _DRAFTS_IN_THE_FIRST_CHUNK, *arguments)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-03")
def hit_counts_one_less(original: Any, *arguments: Any) -> Any:
    """Of a hit one token less counts as computed."""
    return call(original, _HIT_COUNTS_ONE_LESS, *arguments)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-OP-05")
def hit_is_computed_again(original: Any, *arguments: Any) -> Any:
    """After a hit, as many tokens are asked for as without one."""
    return call(original, _HIT_IS_COMPUTED_AGAIN, *arguments)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-OP-05")
def hit_is_not_held(original: Any, *arguments: Any) -> Any:
    """The tokens of a hit count as computed, and its blocks are not passed on."""
    return call(original, _HIT_IS_NOT_TOUCHED, *arguments)


# Mutants of preemption: who loses its blocks, what is forgotten of it, and where it waits afterwards.

_PREEMPT = f"{_SCHEDULER}._preempt_request"

_FIRST_IS_PREEMPTED = Put("preempted_req = self.running.pop", "preempted_req = self.running.pop(0)")
_MOST_URGENT_IS_PREEMPTED = Put(
    "preempted_req = max", "preempted_req = min(self.running, key=lambda each: (each.priority, each.arrival_time))"
)
_STILL_IN_THE_STEP = Put("scheduled_running_reqs.remove")


@breaks(_PREEMPT, violates="KV-SYS-02", needs=("preemption",))
def preempted_keeps_its_count(original: Any, self: Any, request: Any, *more: Any) -> None:
    """A preempted request still counts its tokens as computed."""
    computed = request.num_computed_tokens
    original(self, request, *more)
    request.num_computed_tokens = computed


@breaks(_PREEMPT, violates="KV-SYS-02", needs=("preemption",))
def preempted_is_freed_twice(original: Any, self: Any, request: Any, *more: Any) -> None:
    """The blocks of a preempted request are released twice."""
    original(self, request, *more)
    self.kv_cache_manager.free(request)


@breaks(_PREEMPT, violates="KV-SYS-02", needs=("preemption",))
def preempted_keeps_its_blocks(original: Any, self: Any, request: Any, *more: Any) -> None:
    """A preempted request keeps its blocks."""
    manager = self.kv_cache_manager
    free = vars(manager).get("free")
    manager.free = lambda _request: None
    try:
        original(self, request, *more)
    finally:
        if free is None:
            del manager.free
        else:
            manager.free = free


@breaks(_PREEMPT, violates="KV-LIVE-01", needs=("preemption",))
def preempted_waits_behind_all(original: Any, self: Any, request: Any, *more: Any) -> None:
    """A preempted request waits after those that came later."""
    original(self, request, *more)
    self.waiting.remove_request(request)
    self.waiting.add_request(request) if hasattr(self.waiting, "_heap") else self.waiting.append(request)


@breaks(_PREEMPT, violates="KV-LIVE-01", needs=("preemption",))
def preempted_is_forgotten(original: Any, self: Any, request: Any, *more: Any) -> None:
    """A preempted request is in no queue."""
    original(self, request, *more)
    self.waiting.remove_request(request)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-LIVE-02", needs=("preemption",))
def first_is_preempted(original: Any, *arguments: Any) -> Any:
    """The request that has run longest is preempted, and not the last one admitted."""
    return call(original, _FIRST_IS_PREEMPTED, *arguments)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-LIVE-02", needs=("preemption", "priority"))
def most_urgent_is_preempted(original: Any, *arguments: Any) -> Any:
    """By priority, the most urgent request is preempted."""
    return call(original, _MOST_URGENT_IS_PREEMPTED, *arguments)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-01", needs=("preemption", "priority"))
def preempted_stays_in_the_step(original: Any, *arguments: Any) -> Any:
    """A request that is preempted after it was scheduled is still sent to the worker."""
    return call(original, _STILL_IN_THE_STEP, *arguments)
