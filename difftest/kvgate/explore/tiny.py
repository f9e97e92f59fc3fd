"""What a tiny model is: one mechanism, in a scope so small that all of its states can be visited.

Blocks hold a token or two and windows slide at once, because what breaks is an edge and not a length. Two requests are
enough to share, to compete and to leave something behind for each other; a pool has one or two blocks fewer than both
would like. Each model has a deeper variant, for a machine that has the time.
"""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from kvgate.explore.designs import Design
from kvgate.explore.exploration import Limits
from kvgate.explore.manager_world import ManagerWorld
from kvgate.explore.menu import Menu
from kvgate.explore.scope import Scope
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.settings import Settings

SHALLOW = Limits(states_max=200_000, seconds_max=120.0)
DEEP = Limits(states_max=1_000_000, seconds_max=3600.0)


@frozen
class Tiny:
    """A model in two scopes."""

    name: str
    mechanism: str
    """What it is about, in one line."""
    shallow: Scope = field(repr=False)
    deep: Scope = field(repr=False)

    def world(self, deep: bool = False, design: Design | None = None) -> ManagerWorld:
        """The world to explore: of the reference, or of a design that does not work."""
        chosen = self.deep if deep else self.shallow
        if design is None:
            return ManagerWorld(self.name, chosen)
        return ManagerWorld(self.name, chosen, design.factory, design.checks)


def scope(*groups: Group, menu: Menu, **settings: Any) -> Scope:
    """A scope for two requests; nobody listens to events."""
    return Scope(Settings(Geometry(groups), **{"requests_max": 2, "tells_events": False, **settings}), menu)


def window(block_size_tokens: int, window_tokens: int, lookahead: bool = False) -> Group:
    """A group with a sliding window."""
    return Group(Kind.SLIDING_WINDOW, block_size_tokens, window_tokens, lookahead)
