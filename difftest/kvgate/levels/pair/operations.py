"""What two nodes are configured with, and what can happen to them, as values and in words.

Requests are named as the prefill node numbers them. An operation that means nothing when its turn comes is left out,
so every part of a list of operations is legal.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from attrs import evolve, field, frozen
from attrs.validators import ge, instance_of, min_len

from kvgate.kernel.text import counted
from kvgate.levels.scheduler.operations import (
    GrammarReady,
    Lost,
    ResetCache,
    ResetEncoder,
    Serve,
    Stage,
    asked_of_engine,
    describe_engine,
    describe_stage,
)
from kvreference.operations import Abort, Arrive, OfRequest, Transferred
from kvreference.scheduler.operations import Reply, Step
from kvreference.settings import Settings


def _connected() -> Stage:
    return Stage(connector=True)


@frozen
class PairStage:
    """How the two nodes differ, and what their schedulers are configured with."""

    prefill_blocks: int = field(validator=[instance_of(int), ge(2)])
    """How many blocks the prefill node's pool has, the null block among them. The decode node's is in the settings."""
    prefill_chunk_tokens: int = field(default=64, validator=[instance_of(int), ge(1)])
    """The most tokens that a step of the prefill node computes."""
    prefill: Stage = field(factory=_connected)
    decode: Stage = field(factory=_connected)

    def of_prefill(self, settings: Settings) -> Settings:
        """The prefill node's settings, where ``settings`` are those of the decode node."""
        return evolve(settings, blocks=self.prefill_blocks, chunk_tokens=self.prefill_chunk_tokens)


class Node(Enum):
    """One of the two."""

    PREFILL = "prefill"
    DECODE = "decode"


@frozen
class Ask:
    """A client asks. The prefill node computes the prompt; then the decode node reads its blocks, and answers."""

    arrival: Arrive
    answers_max: int = field(default=1, validator=[instance_of(int), ge(1)])
    """After how many answered tokens it ends, if the model does not end it before."""
    answers_min: int = field(default=0, validator=[instance_of(int), ge(0)])
    """The decode node does not end it before it has so many answers."""
    priority: int = field(default=0, validator=[instance_of(int), ge(0)])
    """Where a node serves by priority: the smallest first."""
    structured: bool = False
    """Whether its answer follows a grammar: on each node it waits for ``GrammarReady`` first."""

    @property
    def prompt_tokens(self) -> int:
        """How long the prompt is."""
        return sum(run.length for run in self.arrival.prompt)

    @property
    def of_prefill(self) -> Serve:
        """What the prefill node is asked: its first answer is the end of it there."""
        return Serve(self.arrival, 1, sends=True, priority=self.priority, structured=self.structured)

    @property
    def of_decode(self) -> Serve:
        """What the decode node is asked. There it has another number: requests are not prefilled as they came."""
        return Serve(
            evolve(self.arrival, request=0),
            self.answers_max,
            self.prompt_tokens,
            loads=True,
            priority=self.priority,
            structured=self.structured,
            answers_min=self.answers_min,
        )


@frozen
class StepOn:
    """One node takes a step."""

    node: Node
    replies: tuple[Reply, ...] = field(default=(Reply(),), validator=min_len(1))
    """A rule for all requests that are answered, in the order in which they run: the replies in turn, repeated."""


@frozen
class CollectOn:
    """The oldest step in flight on a node comes back from its worker. Only where steps are taken asynchronously."""

    node: Node


@frozen
class ResetCacheOn:
    """One node forgets its prefix cache: rejected while blocks are held, unless requests are preempted for it.

    With ``preempts`` it is left out where steps are asynchronous, or a request that does not run holds blocks.
    """

    node: Node
    preempts: bool = False


@frozen
class ResetEncoderOn:
    """One node forgets what its encoder computed."""

    node: Node


@frozen
class Acknowledged(OfRequest):
    """The prefill node gets the message that the blocks of a request will not be read any more."""


Operation: TypeAlias = (
    Ask | StepOn | CollectOn | Abort | GrammarReady | Transferred | Acknowledged | Lost | ResetCacheOn | ResetEncoderOn
)
"""``Transferred``: the decode node has read the blocks of a request, or failed to; late is whenever it comes late.
``Lost``: the next message about the blocks of a request, whichever that is, never comes. ``GrammarReady``: on the node
where the request waits for its grammar."""

OPERATIONS: tuple[type, ...] = (
    *(Ask, StepOn, CollectOn, Abort, GrammarReady, Transferred, Acknowledged, Lost, ResetCacheOn, ResetEncoderOn),
)
"""Every kind of operation."""


# In words


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
        case Ask():
            asked = evolve(operation.of_decode, external_tokens=0, loads=False)
            return f"A client asks, request {operation.arrival.request}: {asked_of_engine(asked)}"
        case StepOn(node=node, replies=replies):
            _, _, answers_described = describe_engine(Step(replies)).partition("; ")
            return f"The {node.value} node takes a step; {answers_described}"
        case CollectOn(node=node):
            return f"The {node.value} node's worker returns the oldest step in flight"
        case Abort(request=request):
            return f"The client of request {request} aborts"
        case Transferred(request=request, succeeded=succeeded):
            how = "has read" if succeeded else "fails to read"
            return f"The decode node {how} the blocks of request {request}"
        case Acknowledged(request=request):
            return f"The prefill node hears that the blocks of request {request} are no longer needed"
        case GrammarReady():
            return describe_engine(operation)
        case ResetCacheOn(node=node, preempts=preempts):
            return f"On the {node.value} node: {describe_engine(ResetCache(preempts))}"
        case ResetEncoderOn(node=node):
            return f"On the {node.value} node: {describe_engine(ResetEncoder())}"
        case Lost(request=request):
            return f"The next message about the blocks of request {request} never comes"
