"""Mutants of what clients are told: which tokens, whether a request has ended, and why."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks

_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"
_UPDATE = f"{_SCHEDULER}.update_from_output"


@breaks(_UPDATE, violates="KV-SYS-05")
def nobody_is_told_anything(original: Any, *arguments: Any) -> Any:
    """No client is told what it was answered."""
    original(*arguments)
    return {}


@breaks(_UPDATE, violates="KV-SYS-05")
def told_to_another_client(original: Any, *arguments: Any) -> Any:
    """What one client is to be told is told to the next."""
    return {client + 1: told for client, told in original(*arguments).items()}


@breaks(_UPDATE, violates="KV-SYS-05")
def answers_are_told_twice(original: Any, *arguments: Any) -> Any:
    """A client is told every answer twice."""
    outputs = original(*arguments)
    for told in outputs.values():
        told.outputs = told.outputs * 2
    return outputs


@breaks(_UPDATE, violates="KV-SYS-05", needs=("drafts",))
def accepted_drafts_are_not_told(original: Any, *arguments: Any) -> Any:
    """Of several tokens that a request was answered its client is told the last."""
    outputs = original(*arguments)
    for told in outputs.values():
        for each in told.outputs:
            each.new_token_ids = each.new_token_ids[-1:]
    return outputs


@breaks(_UPDATE, violates="KV-SYS-05")
def end_is_not_told_to_its_client(original: Any, *arguments: Any) -> Any:
    """A client is not told that its request has ended."""
    outputs = original(*arguments)
    for told in outputs.values():
        for each in told.outputs:
            each.finish_reason = None
    return outputs


@breaks("vllm.v1.request:Request.get_finished_reason", violates="KV-SYS-05")
def every_end_is_one_of_length(original: Any, self: Any) -> Any:
    """A client is told that its request became too long, whatever ended it."""
    reason = original(self)
    return None if reason is None else type(reason).LENGTH
