"""What can happen to two nodes, as values: clients come and give up, nodes take steps, messages arrive or do not.

Requests are named as the prefill node numbers them. An operation that means nothing when its turn comes is left out,
so every part of a list of operations is a legal one.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from attrs import field, frozen
from attrs.validators import ge, instance_of, min_len

from kvgate.levels.scheduler.operations import Lost
from kvreference.operations import Abort, Arrive, OfRequest, Transferred
from kvreference.scheduler.operations import Reply

__all__ = [
    "OPERATIONS",
    "Abort",
    "Acknowledged",
    "Ask",
    "CollectOn",
    "Lost",
    "Node",
    "Operation",
    "StepOn",
    "Transferred",
]


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

    @property
    def prompt_tokens(self) -> int:
        """How long the prompt is."""
        return sum(run.length for run in self.arrival.prompt)


@frozen
class StepOn:
    """One node takes a step."""

    node: Node
    replies: tuple[Reply, ...] = field(default=(Reply(),), validator=min_len(1))
    """A rule for all who are answered, in the order in which they run: the replies in turn, over and over."""


@frozen
class CollectOn:
    """The oldest step in flight on a node comes back from its worker. Only where steps are taken asynchronously."""

    node: Node


@frozen
class Acknowledged(OfRequest):
    """The prefill node hears that nobody will read the blocks of a request any more."""


Operation: TypeAlias = Ask | StepOn | CollectOn | Abort | Transferred | Acknowledged | Lost
"""``Transferred``: the decode node has read the blocks of a request, or failed to; late is whenever it comes late.
``Lost``: the next message about the blocks of a request, whichever that is, never comes."""

OPERATIONS: tuple[type, ...] = (Ask, StepOn, CollectOn, Abort, Transferred, Acknowledged, Lost)
"""Every kind of operation, for whoever stores them by name."""
