"""What vLLM 0.20.2 is known to do wrong on one of two nodes; there is nothing more that it is known to do on both.

Whatever was found on a node is explained as on one engine, by the same mechanism: ``kvgate.levels.scheduler.known``. A
parked load on the decode node holds up the prefill node as well, and is still that parked load.
"""

from __future__ import annotations

from kvgate.kernel.difference import Divergence
from kvgate.levels.pair.pair import Pair
from kvgate.levels.scheduler import known


def explain(divergence: Divergence, pair: Pair) -> str | None:
    """The id of the finding that explains ``divergence``, or None. ``pair`` stands where it diverged."""
    seen = next((each for each in pair.seen if each.told == divergence), None)
    if seen is None or seen.on_node is None:
        return None
    return known.explain(seen.on_node, seen.engine)
