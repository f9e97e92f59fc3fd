"""What can happen to an engine, as values: clients come and give up, steps are taken, transfers and grammars get ready.

An operation that means nothing when its turn comes is left out, so every part of a list of operations is a legal one.
The alphabet is that of the reference's scheduler, and more; ``Serve`` is its ``Submit``, and is said where that can be.
"""

from __future__ import annotations

from typing import TypeAlias

from attrs import field, frozen
from attrs.validators import ge, instance_of, optional

from kvreference.operations import Abort, OfRequest, Transferred
from kvreference.scheduler.operations import Reply, Step, Submit

__all__ = [
    "OPERATIONS",
    "Abort",
    "Collect",
    "GrammarReady",
    "Lost",
    "Operation",
    "Reply",
    "ResetCache",
    "Serve",
    "Step",
    "Submit",
    "Transferred",
]

_number = [instance_of(int), ge(0)]


@frozen
class Serve(Submit):
    """A request is submitted to an engine. Without a connector nobody offers it anything, and nobody reads it."""

    priority: int = field(default=0, validator=_number)
    """Where an engine serves by priority: the smallest first."""
    structured: bool = False
    """Whether its answer follows a grammar: it waits for ``GrammarReady`` first."""
    undecided: int = field(default=0, validator=_number)
    """How often the connector says that it cannot tell yet what it offers."""
    fails_from_block: int | None = field(default=None, validator=optional(_number))
    """The first load fails from here on: so many blocks behind the hit are written before. None: it does not fail."""


@frozen
class GrammarReady(OfRequest):
    """The grammar of a request is compiled."""


@frozen
class Lost(OfRequest):
    """The other node is gone: the transfer of a request never ends, and nobody says so."""


@frozen
class Collect:
    """The oldest step in flight comes back from the worker, before as many are in flight as may be.

    Only where steps are taken asynchronously. Its replies are those of its ``Step``.
    """


@frozen
class ResetCache:
    """Forget the prefix cache: refused while blocks are held, unless whoever runs is preempted for it."""

    preempts: bool = False


Operation: TypeAlias = Submit | Serve | Step | Collect | Abort | Transferred | Lost | GrammarReady | ResetCache

OPERATIONS: tuple[type, ...] = (Submit, Serve, Step, Collect, Abort, Transferred, Lost, GrammarReady, ResetCache)
"""Every kind of operation, for whoever stores them by name."""
