"""Finding 051: A state that was loaded serves nobody before the next step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvgate.findings.finding import Acts, Finding
from kvreference.cached_map import Content
from kvreference.prefix_cache import yet_to_compute
from kvreference.rules import Delta


def _whatever_is_cached(
    waits: Callable[[Sequence[Content], bool], Sequence[Content]], cached: Sequence[Content], _computes: bool
) -> Sequence[Content]:
    """What is loaded counts as what the step computes."""
    return waits(cached, True)


FINDING = Finding(
    id="051-loaded-state-waits-for-a-step",
    rank=51,
    statement="KV-OP-04",
    condition="states, and a load that ends",
    where=lambda settings: settings.geometry.keeps_states,
    acts=lambda *_run: Acts([Delta(yet_to_compute.__name__, _whatever_is_cached)]),
    holds=lambda _ideal, _answered, _cached, computes: not computes,
)
