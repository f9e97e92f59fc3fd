"""What happens to two nodes, in words; and one way to tell of a case of an engine and of one of two."""

from __future__ import annotations

from kvgate.kernel.text import counted
from kvgate.levels.pair.case import PairCase, PairStage
from kvgate.levels.pair.operations import Abort, Acknowledged, Ask, CollectOn, Lost, Operation, StepOn, Transferred
from kvgate.levels.scheduler.case import EngineCase
from kvgate.levels.scheduler.describe import describe_engine, describe_stage
from kvreference.scheduler.operations import Step


def describe_pair_stage(stage: PairStage) -> str:
    """What two nodes are configured with, on one line."""
    chunk = counted(stage.prefill_chunk_tokens, "token")
    prefill = (
        f"{counted(stage.prefill_blocks, 'block')}, a step computes at most {chunk}; {describe_stage(stage.prefill)}"
    )
    return f"the prefill node has {prefill}. The decode node: {describe_stage(stage.decode)}"


def describe_pair(operation: Operation) -> str:
    """An operation on two nodes, on one line."""
    match operation:
        case Ask(arrival=arrival, answers_max=answers):
            prompt, most = counted(operation.prompt_tokens, "token"), counted(answers, "answer")
            return f"A client asks, request {arrival.request}: a prompt of {prompt}, at most {most}"
        case StepOn(node=node, replies=replies):
            _, _, answers_told = describe_engine(Step(replies)).partition("; ")
            return f"The {node.value} node takes a step; {answers_told}"
        case CollectOn(node=node):
            return f"The {node.value} node's worker returns the oldest step in flight"
        case Abort(request=request):
            return f"The client of request {request} gives up"
        case Transferred(request=request, succeeded=succeeded):
            how = "has read" if succeeded else "fails to read"
            return f"The decode node {how} the blocks of request {request}"
        case Acknowledged(request=request):
            return f"The prefill node hears that nobody needs the blocks of request {request} any more"
        case Lost(request=request):
            return f"The next message about the blocks of request {request} never comes"


def configured(case: EngineCase | PairCase) -> str:
    """What was driven is configured with."""
    return describe_pair_stage(case.stage) if isinstance(case, PairCase) else describe_stage(case.stage)


def whose(case: EngineCase | PairCase) -> str:
    """What was driven: a scheduler, or one on each of two nodes; and what it is configured with."""
    return f"{'two nodes' if isinstance(case, PairCase) else 'a scheduler'}: {configured(case)}"


def whose_block_manager(case: EngineCase | PairCase) -> str:
    """What was asked by that, of which the operations follow."""
    if isinstance(case, PairCase):
        return "what the node on which it shows asked of its block manager by that, in its own numbers:"
    return "what it asked of its block manager by that:"


def done_to(case: EngineCase | PairCase) -> list[str]:
    """Everything that was done to it, a line each."""
    if isinstance(case, PairCase):
        return [describe_pair(operation) for operation in case.operations]
    return [describe_engine(operation) for operation in case.operations]
