"""The limits of a step, and why a submitted request is rejected."""

from __future__ import annotations

from enum import Enum

from attrs import field, frozen
from attrs.validators import ge, instance_of

_count = [instance_of(int), ge(1)]


@frozen
class Limits:
    """What one step may do."""

    budget_tokens: int = field(default=1024, validator=_count)
    """How many tokens all requests compute together."""
    running_max: int = field(default=8, validator=_count)
    """How many requests run at once. Waiting requests do not count, even if they hold blocks."""


class Reason(Enum):
    """Why a request is rejected."""

    PROMPT_TOO_LONG = "its prompt leaves no room for an answer"
    NEVER_FITS = "it would not fit if it had the whole pool to itself"
    TOO_MANY = "as many requests are alive as may be"
