"""Mutants of requests that wait for a grammar."""

from __future__ import annotations

from typing import Any

from kvgate_mutants.mutants.mutant import breaks

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
    """A request whose grammar is compiled goes on to wait for it."""
    if request.status.name == "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR":
        return False
    return bool(original(self, request))
