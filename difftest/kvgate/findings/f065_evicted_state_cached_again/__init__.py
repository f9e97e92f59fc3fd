"""Finding 065: A state that was evicted by its block's id is cached again by the next step."""

from __future__ import annotations

from collections.abc import Callable

from kvgate.findings.finding import Acts, Finding
from kvreference.block_pool import NULL
from kvreference.caching import cached_again
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.population import Request
from kvreference.retention import last_boundary
from kvreference.rules import Delta
from kvreference.settings import Settings
from kvreference.tables import Table


def _last_of_prompt(
    again: Callable[..., tuple[int, ...]],
    geometry: Geometry,
    group: Group,
    request: Request,
    table: Table,
    tokens: int,
    is_cached: Callable[[int], bool],
) -> tuple[int, ...]:
    """The state at the last boundary that a replay of the prompt can hit, while no later boundary is reached.

    A single group is not asked for boundaries, but for tokens: there the step must end with that state.
    """
    found = again(geometry, group, request, table, tokens, is_cached)
    boundary = last_boundary(geometry, request.prompt_tokens - max(1, geometry.hashed_ahead_tokens))
    alignment = geometry.alignment_tokens if len(geometry.groups) > 1 else 1
    reached = tokens // alignment * alignment
    if not _is_aligned(group) or reached != boundary or not boundary:
        return found
    position = boundary // group.block_size_tokens - 1
    is_there = position < min(table.registered, len(table.blocks)) and table.blocks[position] != NULL
    return (*found, position) if is_there and not is_cached(table.blocks[position]) else found


def _is_aligned(group: Group) -> bool:
    return group.states is StateMode.ALIGN


def _can_act(settings: Settings) -> bool:
    # With look-ahead, the boundary is looked for in the step that ends there alone, and that step caches it anyway.
    geometry = settings.geometry
    return settings.caches and not geometry.lookahead_tokens and any(map(_is_aligned, geometry.groups))


FINDING = Finding(
    id="065-evicted-state-cached-again",
    rank=65,
    statement="KV-OP-10",
    condition="states kept at block ends, no look-ahead, and a state at the last boundary of a prompt that is in the "
    "request's table and not cached",
    where=_can_act,
    acts=lambda *_run: Acts([Delta(cached_again.__name__, _last_of_prompt)]),
    holds=lambda ideal, answered, _geometry, group, *_rest: answered[:-1] == ideal and _is_aligned(group),
)
