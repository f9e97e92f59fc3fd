"""What the check of the scheduler reports after a load within a step has failed: findings 062, 063 and 064."""

from __future__ import annotations

import re
from collections.abc import Collection

from kvgate.kernel.difference import Difference

ENDED = "the requests that end since a load failed"
"""The subject of a difference in which requests end; it is of lists of numbers."""
COMPUTED = re.compile(r"request (\d+) \(tokens computed, tokens, whether it runs\)")
"""The subject of a difference in what is known of one request."""
_NUMBER = re.compile(r"\d+")


def others_end(found: Difference, those: Collection[int]) -> bool:
    """Whether all that are to end do, and others too, of which each is one of ``those``."""
    expected, got = ({*map(int, _NUMBER.findall(said))} for said in (found.expected, found.got))
    return expected < got and got - expected <= set(those)
