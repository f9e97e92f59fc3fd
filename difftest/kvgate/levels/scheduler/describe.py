"""What happens to an engine, in words."""

from __future__ import annotations

from collections.abc import Iterator

from kvgate.kernel.text import counted
from kvgate.levels.scheduler.case import Stage
from kvgate.levels.scheduler.operations import (
    Abort,
    Collect,
    GrammarReady,
    Lost,
    Operation,
    ResetCache,
    Serve,
    Step,
    Submit,
    Transferred,
)
from kvreference.scheduler.operations import Reply

REPLIES_MAX = 4
"""How many replies of one step are told."""


def describe_stage(stage: Stage) -> str:
    """What a scheduler is configured with, on one line."""
    parts = [f"at most {counted(stage.running_max, 'request runs', 'requests run')} at once"]
    if stage.asynchronous:
        parts.append(f"steps are asynchronous, at most {stage.in_flight_max} in flight")
    if stage.by_priority:
        parts.append("requests are served by priority")
    if stage.connector:
        parts.append("other nodes offer, load and read blocks")
    if stage.failed_loads_end:
        parts.append("a request whose load failed ends")
    if stage.long_prefill_tokens is not None:
        parts.append(f"a step computes at most {counted(stage.long_prefill_tokens, 'token')} of one prompt")
    return "; ".join(parts)


def describe_engine(operation: Operation) -> str:
    """An operation on an engine, on one line."""
    match operation:
        case Submit():
            return f"Submit request {operation.arrival.request}: {', '.join(_asked(operation))}"
        case Step(replies=replies):
            told = "; ".join(map(_reply, replies[:REPLIES_MAX]))
            more = f"; and {len(replies) - REPLIES_MAX} more" if len(replies) > REPLIES_MAX else ""
            return f"Take a step; the model answers {told}{more}"
        case Collect():
            return "The worker returns the oldest step in flight"
        case Abort() | Transferred():
            return describe_from_outside(operation)
        case Lost(request=request):
            return f"The other node of request {request} is gone: its transfer never ends"
        case GrammarReady(request=request):
            return f"The grammar of request {request} is compiled"
        case ResetCache(preempts=preempts):
            return f"Reset the prefix cache{', preempting whoever runs' if preempts else ''}"


def describe_from_outside(operation: Abort | Transferred) -> str:
    """What others than the scheduler bring about, of which its block manager hears in the same words."""
    if isinstance(operation, Abort):
        return f"Abort request {operation.request}"
    return f"The transfer of request {operation.request} {'is over' if operation.succeeded else 'fails'}"


def _asked(submit: Submit) -> Iterator[str]:
    """What a request asks for."""
    yield f"a prompt of {counted(submit.prompt_tokens, 'token')}"
    yield f"at most {counted(submit.answers_max, 'answer')}"
    if submit.external_tokens:
        when = "loaded while it waits" if submit.loads else "loaded within a step"
        yield f"{counted(submit.external_tokens, 'token')} offered by another node, {when}"
    if submit.sends:
        yield "read by another node at its end"
    if isinstance(submit, Serve):
        yield from _more(submit)


def _more(serve: Serve) -> Iterator[str]:
    if serve.priority:
        yield f"priority {serve.priority}"
    if serve.structured:
        yield "its answer follows a grammar"
    if serve.undecided:
        yield f"its connector is undecided {counted(serve.undecided, 'time')}"
    if serve.fails_from_block is not None:
        yield f"its load fails behind {counted(serve.fails_from_block, 'block')}"


def _reply(reply: Reply) -> str:
    accepted = f", {counted(reply.accepted, 'draft')} accepted" if reply.accepted else ""
    drafts = f", {counted(reply.drafts, 'draft')} proposed" if reply.drafts else ""
    return f"token {reply.token}{accepted}{drafts}{', which ends the request' if reply.ends else ''}"
