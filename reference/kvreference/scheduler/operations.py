"""The operations of a scheduler, as values: a request is submitted or aborted, a step is taken, a transfer ends.

``Abort`` and ``Transferred`` are those of the block manager.
"""

from __future__ import annotations

from typing import TypeAlias

from attrs import field, frozen
from attrs.validators import ge, instance_of, min_len

from kvreference.operations import Abort, Arrive, Transferred

_count = [instance_of(int), ge(1)]
_number = [instance_of(int), ge(0)]


@frozen
class Submit:
    """A request is submitted: it is rejected now, or runs to its end unless it is aborted."""

    arrival: Arrive
    answers_max: int = field(default=1, validator=_count)
    """After how many answered tokens it ends, if the model does not end it before."""
    external_tokens: int = field(default=0, validator=_number)
    """How many tokens after its hit another node offers. The offer is good once: after a preemption they are
    computed."""
    loads: bool = False
    """Whether those are loaded while the request waits, and not within a step."""
    sends: bool = False
    """Whether another node reads its blocks once it has ended."""

    @property
    def prompt_tokens(self) -> int:
        """How long the prompt is."""
        return sum(run.length for run in self.arrival.prompt)


@frozen
class Reply:
    """The model's answer to one request: how many drafts hold, the token after them, new drafts."""

    accepted: int = field(default=0, validator=_number)
    token: int = field(default=0, validator=_number)
    drafts: int = field(default=0, validator=_number)
    ends: bool = False
    """Whether the token is the request's last one."""


@frozen
class Step:
    """One step: choose who computes, let the worker compute it, take its replies."""

    replies: tuple[Reply, ...] = field(default=(Reply(),), validator=min_len(1))
    """A rule for all who are answered, in the order in which they run: the replies in turn, over and over."""


Operation: TypeAlias = Submit | Step | Abort | Transferred
