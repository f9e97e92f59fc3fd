"""Mutants of a step's limits: how many tokens it computes, and how many requests run."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks
from kvgate_mutants.mutants.scheduler.edited import Ask, Put, call

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
    """Whoever is let in costs the budget one token, however many it computes."""
    return call(original, _WAITING_COST_ONE, *arguments)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-OP-05")
def chunk_without_limit(original: Any, *arguments: Any) -> Any:
    """Whoever is let in computes its whole prompt, whatever is left of the budget."""
    return call(original, _CHUNK_WITHOUT_LIMIT, *arguments)


@breaks(f"{_SCHEDULER}.__init__", violates="KV-SYS-03")
def budget_with_drafts_on_top(original: Any, self: Any, *arguments: Any, **named: Any) -> None:
    """A step computes a token more than the worker has room for."""
    original(self, *arguments, **named)
    self.max_num_scheduled_tokens += 1


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-01")
def running_limit_passed_by_one(original: Any, *arguments: Any) -> Any:
    """One request more than may run is let in."""
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
