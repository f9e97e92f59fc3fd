"""Which transitions an operation of the manager may consist of; what it must have done is in ``required``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kvreference.operations import (
    Abort,
    Admit,
    Dispatch,
    Evict,
    Finish,
    Operation,
    Preempt,
    ReleaseSkipped,
    Schedule,
    Transferred,
)
from kvreference.operations import Reset as ResetOperation
from kvspec.pool.contents import Begin, Demote, Forget, Pin, Register, Reset
from kvspec.pool.holders import Aim, Drop, Hold, Move, Read, ReadDone, Take
from kvspec.pool.transition import Transition

_CACHES = frozenset[type[Transition]]({Register, Begin})
_GIVES_UP = frozenset[type[Transition]]({Pin, Drop})
_GROWS = frozenset[type[Transition]]({Demote, Take, Move, *_GIVES_UP, *_CACHES})

ALLOWED: Mapping[type[Operation], frozenset[type[Transition]]] = MappingProxyType(
    {
        Admit: _GROWS | {Hold, Read, Aim},
        Schedule: _GROWS,
        ReleaseSkipped: _GIVES_UP,
        Preempt: _GIVES_UP,
        Finish: _GIVES_UP,
        Abort: _GIVES_UP,
        Transferred: _GIVES_UP | _CACHES,
        Evict: frozenset({Forget}),
        Dispatch: frozenset({ReadDone}),
        ResetOperation: frozenset({Reset}),
    }
)
"""By operation; one that is not here changes no block."""
