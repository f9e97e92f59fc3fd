"""The tiny models: one per mechanism.

To add one is to add a ``Tiny`` here: a name, what it is about, and two scopes. The second is the deeper one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kvgate.explore.families import Prompt
from kvgate.explore.menu import Menu
from kvgate.explore.tiny import Tiny, scope, window
from kvgate.explore.tiny_mechanisms import MECHANISMS
from kvgate.explore.tiny_schedulers import SCHEDULERS
from kvgate.explore.world import Explorable
from kvgate.kernel.errors import UsageError
from kvreference.attention import Kind
from kvreference.geometry import Group

_FULL_1, _FULL_2, _FULL_4 = (Group(Kind.FULL, size) for size in (1, 2, 4))
_DRAFTING_2 = Group(Kind.FULL, 2, lookahead=True)

# A prompt, a longer one that begins with it, and a sibling that leaves it on the way.
_SHORT_AND_LONG = (Prompt(3), Prompt(5), Prompt(5, 2))
_ODD_STEPS = (1, 8)
_EVEN_STEPS = (2, 8)

_ALL = (
    Tiny(
        "tiny-full",
        "full attention: hits, sharing, duplicates, and the order of eviction",
        scope(
            _FULL_2,
            menu=Menu(_SHORT_AND_LONG, budgets_tokens=_EVEN_STEPS, evicts=True, resets=True),
            blocks=5,
            tokens_max=5,
        ),
        scope(
            _FULL_2,
            menu=Menu(_SHORT_AND_LONG, families=2, budgets_tokens=_EVEN_STEPS, evicts=True, resets=True),
            blocks=5,
            tokens_max=6,
        ),
    ),
    Tiny(
        "tiny-swa",
        "a sliding window: what it leaves behind, and what a hit needs of it",
        scope(
            window(1, 3),
            menu=Menu((Prompt(3), Prompt(4, 1)), budgets_tokens=_ODD_STEPS, releases=True),
            blocks=5,
            tokens_max=5,
        ),
        scope(
            window(2, 3),
            menu=Menu(_SHORT_AND_LONG, budgets_tokens=_EVEN_STEPS, releases=True, evicts=True),
            blocks=5,
            tokens_max=6,
        ),
    ),
    Tiny(
        "tiny-hybrid",
        "full attention and a sliding window over one pool: a hit is what both agree on",
        scope(
            _FULL_1,
            window(1, 2),
            menu=Menu((Prompt(2), Prompt(3), Prompt(3, 1)), budgets_tokens=_ODD_STEPS),
            blocks=8,
            tokens_max=4,
        ),
        scope(
            _FULL_1,
            window(1, 2),
            menu=Menu((Prompt(2), Prompt(3), Prompt(3, 1)), budgets_tokens=_ODD_STEPS, releases=True, evicts=True),
            blocks=7,
            tokens_max=4,
        ),
    ),
    Tiny(
        "tiny-eagle",
        "a draft layer: look-ahead blocks, drafts accepted and rejected",
        scope(
            _DRAFTING_2,
            menu=Menu((Prompt(3), Prompt(5)), drafts=(1, 2)),
            blocks=5,
            tokens_max=7,
            drafts_max=2,
        ),
        scope(
            _DRAFTING_2,
            window(2, 3, lookahead=True),
            menu=Menu((Prompt(3), Prompt(5), Prompt(5, 2)), budgets_tokens=_EVEN_STEPS, drafts=(0, 1, 2)),
            blocks=8,
            tokens_max=7,
            drafts_max=2,
        ),
    ),
    Tiny(
        "tiny-mixed",
        "blocks of different sizes: a hit ends where blocks of every group end",
        scope(
            _FULL_4,
            window(2, 4),
            menu=Menu((Prompt(5), Prompt(7, 4)), budgets_tokens=(2, 4)),
            blocks=8,
            tokens_max=8,
            chunk_tokens=4,
        ),
        scope(
            _FULL_4,
            window(2, 4),
            menu=Menu((Prompt(5), Prompt(7), Prompt(7, 4)), budgets_tokens=(2, 4), evicts=True),
            blocks=8,
            tokens_max=8,
            chunk_tokens=4,
        ),
    ),
)

MODELS: Mapping[str, Explorable] = MappingProxyType({tiny.name: tiny for tiny in (*_ALL, *MECHANISMS, *SCHEDULERS)})
"""The tiny models, by name."""


def load(name: str) -> Explorable:
    """The tiny model called ``name``.

    Raises:
        UsageError: there is none.
    """
    if name not in MODELS:
        raise UsageError(f"unknown tiny model {name!r}: give one of {', '.join(MODELS)}")
    return MODELS[name]
