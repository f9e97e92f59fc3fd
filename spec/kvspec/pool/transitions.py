"""All transitions: whatever can happen to a block is one of these."""

from __future__ import annotations

from kvspec.pool.contents import Begin, Demote, Forget, Pin, Register, Reset
from kvspec.pool.holders import Aim, Drop, Hold, Move, Read, ReadDone, Take
from kvspec.pool.transition import Transition

TRANSITIONS: tuple[type[Transition], ...] = (
    Take,
    Hold,
    Read,
    Aim,
    Move,
    Drop,
    ReadDone,
    Pin,
    Demote,
    Forget,
    Register,
    Begin,
    Reset,
)
"""In the order of a block's life. A proof picks one by its place here."""
