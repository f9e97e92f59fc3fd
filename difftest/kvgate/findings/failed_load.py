"""What is reported after a load has failed: findings 021, 062, 063, 064 and 066."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from kvgate.kernel.difference import Difference, Divergence

ENDED = "the requests that end since a load failed"
"""The subject of a difference in which requests end; it is of lists of numbers."""
COMPUTED = re.compile(r"request (\d+) \(tokens computed, tokens, whether it runs\)")
"""The subject of a difference in what is known of one request."""
_NUMBER = re.compile(r"\d+")


def left_by_failed_load(divergence: Divergence, engine: Any) -> Any:
    """At the level of two tiers: what was read, if a failed load left it that the scheduler knew of; None if not."""
    shown = engine.memory.shown_by
    is_it = divergence.difference.statement == "KV-MEM-01" and shown is not None and shown.failure is not None
    return shown if is_it and shown.failure.is_known else None


def counts_after_failed_load(divergence: Divergence, engine: Any) -> Any:
    """There: what was read, if the scheduler then took what the step computed from it; None if not."""
    is_it = divergence.difference.statement == "KV-SYS-02" and divergence.detector == "tiers"
    return engine.memory.shown_by if is_it else None


def others_end(found: Difference, those: Collection[int]) -> bool:
    """Whether all that are to end do, and others too, of which each is one of ``those``."""
    expected, got = ({*map(int, _NUMBER.findall(said))} for said in (found.expected, found.got))
    return expected < got and got - expected <= set(those)
