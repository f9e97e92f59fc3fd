"""Finding 051: A state that was loaded cannot be hit before the next step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvgate.findings.finding import Acts, Finding
from kvreference.cached_map import Content
from kvreference.mamba import StateMode
from kvreference.prefix_cache import yet_to_compute
from kvreference.rules import Delta
from kvreference.settings import Settings


def _loaded_too(
    waits: Callable[[Sequence[Content], bool, bool], Sequence[Content]],
    cached: Sequence[Content],
    computes: bool,
    loaded: bool,
) -> Sequence[Content]:
    """What is loaded counts as what a step computes."""
    return waits(cached, computes or loaded, False)


def _can_act(settings: Settings) -> bool:
    return settings.caches and any(group.states is StateMode.ALL for group in settings.geometry.groups)


FINDING = Finding(
    id="051-loaded-state-waits-for-a-step",
    rank=51,
    statement="KV-OP-04",
    condition="states kept at every block, and a load that ends",
    where=_can_act,
    acts=lambda *_run: Acts([Delta(yet_to_compute.__name__, _loaded_too)]),
    holds=lambda _ideal, _answered, cached, _computes, loaded: bool(cached) and loaded,
)
