"""Tiny models: one per mechanism, each so small that all of its states can be visited.

Blocks hold a token or two and windows slide at once, because what breaks is an edge and not a length. Two requests are
enough to share, to compete and to leave something behind for each other; a pool has one or two blocks fewer than both
would like. Each model has a deeper variant, for a machine that has the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attrs import field, frozen

from kvgate.errors import UsageError
from kvgate.explorer.families import Prompt
from kvgate.explorer.menu import Menu
from kvgate.explorer.scope import Scope
from kvgate.explorer.search import Limits
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


def _scope(*groups: Group, menu: Menu, **settings: Any) -> Scope:
    """A scope for two requests; nobody listens to events."""
    return Scope(Settings(Geometry(groups), **{"requests_max": 2, "tells_events": False, **settings}), menu)


def _window(block_size_tokens: int, window_tokens: int, lookahead: bool = False) -> Group:
    return Group(Kind.SLIDING_WINDOW, block_size_tokens, window_tokens, lookahead)


_FULL_1, _FULL_2, _FULL_4 = (Group(Kind.FULL, size) for size in (1, 2, 4))
_FULL_2_DRAFTING = Group(Kind.FULL, 2, lookahead=True)

_ALL = (
    Tiny(
        "tiny-full",
        "full attention: hits, sharing, duplicates, and the order of eviction",
        _scope(
            _FULL_2,
            blocks=5,
            tokens_max=6,
            menu=Menu((Prompt(3), Prompt(5), Prompt(5, 2)), budgets_tokens=(2, 8), evicts=True, resets=True),
        ),
        _scope(
            _FULL_2,
            blocks=6,
            tokens_max=8,
            menu=Menu((Prompt(3), Prompt(5), Prompt(5, 2)), families=2, budgets_tokens=(2, 8), evicts=True, resets=True),
        ),
    ),
)

MODELS: Mapping[str, Tiny] = MappingProxyType({tiny.name: tiny for tiny in _ALL})
"""The tiny models, by name."""


def load(name: str) -> Tiny:
    """The tiny model called ``name``.

    Raises:
        UsageError: there is none.
    """
    if name not in MODELS:
        raise UsageError(f"unknown tiny model {name!r}: give one of {', '.join(MODELS)}")
    return MODELS[name]
