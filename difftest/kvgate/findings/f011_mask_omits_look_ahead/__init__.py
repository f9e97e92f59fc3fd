"""Finding 011: Masked caching leaves out the look-ahead block that every hit asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve

from kvgate.findings.finding import Acts, Finding
from kvreference.caching import due_tokens, tokens_looked_at
from kvreference.geometry import Geometry, Group
from kvreference.retention import Retention, Sparse
from kvreference.rules import Delta
from kvreference.settings import Settings


def without_look_ahead(settings: Settings, _release: str = "") -> Acts:
    """What is cached is what hits read without their look-ahead blocks; what is looked up is with them."""
    interval = settings.retention_interval_tokens
    assert interval is not None, "there is retention"
    bare = Sparse(Geometry(tuple(evolve(group, lookahead=False) for group in settings.geometry.groups)), interval)

    def due(due_tokens: Callable[..., int | None], _retention: Retention, group: Group, *rest: int) -> int | None:
        return due_tokens(bare, evolve(group, lookahead=False), *rest)

    def looked_at(tokens_looked_at: Callable[..., int], retention: Retention, geometry: Geometry, *rest: Any) -> int:
        group, tokens = rest
        return tokens_looked_at(retention, geometry, evolve(group, lookahead=False), tokens)

    return Acts([Delta(due_tokens.__name__, due), Delta(tokens_looked_at.__name__, looked_at)])


FINDING = Finding(
    id="011-mask-omits-look-ahead",
    rank=11,
    statement="KV-OP-15",
    condition="a retention interval and a group with look-ahead",
    where=lambda settings: settings.retention_interval_tokens is not None and settings.geometry.lookahead_tokens > 0,
    acts=without_look_ahead,
    holds=lambda _ideal, _answered, *rule: any(isinstance(each, Group) and each.lookahead for each in rule),
)
