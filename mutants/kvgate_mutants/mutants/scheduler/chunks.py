"""Mutants of how much a step computes: less than it could, and nothing else is wrong."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks
from kvgate_mutants.mutants.scheduler.edited import Put, call

_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"

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
    """Whoever runs costs the budget one token more than it computes."""
    return call(original, _ONE_TOKEN_LEFT_OVER, *arguments)


@breaks(f"{_SCHEDULER}.schedule", violates="KV-SYS-06")
def second_that_runs_rests(original: Any, *arguments: Any) -> Any:
    """The second of those that run computes nothing, though there is room."""
    return call(original, _SECOND_RESTS, *arguments)
