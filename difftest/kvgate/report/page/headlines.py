"""The verdict on one page, in one sentence that needs no knowledge of kvgate."""

from __future__ import annotations

from kvgate.kernel.comparison import hit_tokens_of
from kvgate.kernel.difference import Divergence
from kvgate.kernel.text import counted, printable
from kvgate.report.page.recording import Frame, Recording
from kvreference.answers import Refused
from kvreference.operations import Admit, LookUp, OfRequest, Schedule

_BY_STATEMENT = {
    "KV-SYS-01": "A legal operation raises an exception.",
    "KV-SYS-02": "The scheduler's books do not say what was done.",
    "KV-LIVE-01": "A request is never let in.",
    "KV-LIVE-02": "A running request gets no token any more.",
    "KV-LIVE-03": "The scheduler hangs: it steps on, and nobody gets on.",
    "KV-MEM-01": "A computed token would read memory that is not its own.",
    "KV-MEM-02": "A step has no slot for a token that it computes.",
    "KV-LEAK-01": "Every request has ended, and something of one remains.",
    "KV-LEAK-02": "Every request has ended, and something has grown for good.",
    "KV-OP-02": "A hit is served by another block than it should be.",
    "KV-OP-05": "The new blocks are not those that it was this request's turn to get.",
    "KV-OP-08": "What is cached is not what should be.",
    "KV-OP-09": "Two different contents pass for the same, or the same for two.",
    "KV-OP-10": "A block is still cached, or not, when it should be the other way round.",
    "KV-OP-12": "The KV events do not tell what happened.",
    "KV-OP-13": "The prefix-cache statistics are wrong.",
    "KV-OP-15": "What is cached is not what a later request can resume from.",
}
_BY_FAMILY = {
    "KV-WORK": "The work of a step grows with what came before it.",
    "KV-LIVE": "Somebody does not get on.",
    "KV-LEAK": "Every request has ended, and something remains.",
}


def headline_of(recording: Recording, divergence: Divergence | None) -> str:
    """What is wrong, in one sentence."""
    if divergence is None:
        operations = counted(len(recording.operations), "operation")
        return f"No divergence: both sides agree after each of {operations}."
    frame = next((frame for frame in recording.frames if frame.index == divergence.step), None)
    special = _of_blocks_held(divergence) if frame is None else _of_hit(frame) or _of_refusal(frame)
    statement, subject = divergence.difference.statement, printable(divergence.difference.subject, 80)
    return (
        special
        or _BY_STATEMENT.get(statement)
        or _BY_FAMILY.get(statement.rpartition("-")[0])
        or f"After operation {divergence.step}, the {subject} is not what it must be."
    )


def _of_blocks_held(divergence: Divergence) -> str | None:
    """Blocks that remain when every request has ended."""
    blocks, colon, _ = divergence.difference.got.partition(":")
    if divergence.difference.subject != "blocks held" or not (colon and blocks.isdigit()):
        return None
    return f"Every request has ended, and {counted(int(blocks), 'block is', 'blocks are')} still held."


def _of_hit(frame: Frame) -> str | None:
    """A hit that is too short, or too long."""
    operation = frame.operation
    if frame.reference is None or not isinstance(operation, (LookUp, Admit)):
        return None
    ours, theirs = hit_tokens_of(frame.reference.answer), hit_tokens_of(frame.system.answer)
    if ours is None or theirs is None or ours == theirs:
        return None
    tokens = frame.requests[operation.request].tokens if operation.request in frame.requests else None
    of = "" if tokens is None else f" of its {counted(tokens, 'token')}"
    should = "none" if ours == 0 else str(ours)
    return f"Request {operation.request} is served {theirs}{of} from the prefix cache; it should be {should}."


def _of_refusal(frame: Frame) -> str | None:
    """A request that is refused, or let in, and should not be."""
    if frame.reference is None or not isinstance(frame.operation, OfRequest):
        return None
    answers = frame.reference.answer, frame.system.answer
    if None in answers or frame.system.raised:
        return None
    ours, theirs = (isinstance(answer, Refused) for answer in answers)
    if ours == theirs:
        return None
    number, is_in = frame.operation.request, isinstance(frame.operation, Schedule)
    if theirs:
        return f"Request {number} is refused{' its next step' if is_in else ''}, although its blocks would fit."
    return f"Request {number} is {'given blocks' if is_in else 'let in'}, although they do not fit."
