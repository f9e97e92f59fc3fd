"""The tiny models: one for each mechanism, in a scope so small that all of its states can be visited.

Blocks hold a token or two and windows slide at once, because what breaks is an edge and not a length. Two requests are
enough to share, to compete and to leave something to each other; a pool has one or two blocks fewer than both would
use. Each model has a deeper variant, for a machine that has the time. To add one is to add a ``Tiny`` here: a name, its
mechanism, and two scopes. The last ones are schedulers: does every request make progress in every case?
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attrs import field, frozen

from kvgate.explore.ahead_world import AheadWorld
from kvgate.explore.canonical import Prompt
from kvgate.explore.designs import Design
from kvgate.explore.exploration import Limits
from kvgate.explore.manager_world import ManagerWorld
from kvgate.explore.scheduler_world import Shop, TinyScheduler
from kvgate.explore.scope import Menu, Scope
from kvgate.explore.tier_world import TierScope, TinyTier
from kvgate.explore.world import Explorable
from kvgate.kernel.errors import UsageError
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.operations import Arrive, Run
from kvreference.scheduler.limits import Limits as StepLimits
from kvreference.scheduler.operations import Reply, Submit
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
        kind = AheadWorld if chosen.settings.steps_in_flight_max > 1 else ManagerWorld
        if design is None:
            return kind(self.name, chosen)
        return kind(self.name, chosen, design.factory, design.checks)


def scope(*groups: Group, menu: Menu, **settings: Any) -> Scope:
    """A scope for two requests, without events."""
    return Scope(Settings(Geometry(groups), **{"requests_max": 2, "tells_events": False, **settings}), menu)


def window(block_size_tokens: int, window_tokens: int, lookahead: bool = False) -> Group:
    """A group with a sliding window."""
    return Group(Kind.SLIDING_WINDOW, block_size_tokens, window_tokens, lookahead)


_FULL_1, _FULL_2, _FULL_4 = (Group(Kind.FULL, size) for size in (1, 2, 4))
_COMPRESSED = Group(Kind.FULL, 4, compress_ratio=2)
_COPIED = Group(Kind.FULL, 4, compress_ratio=2, unit_tokens=2)
_LOCAL = Group(Kind.CHUNKED_LOCAL, 1, 2)


def _states(mode: StateMode, drafts: int = 0, block_size_tokens: int = 2) -> Group:
    return Group(Kind.MAMBA, block_size_tokens, states=mode, draft_states=drafts)


def _limits(tokens_max: int) -> dict[str, int]:
    """A step computes two tokens of a request at most, so that few blocks are room for two requests."""
    return {"tokens_max": tokens_max, "chunk_tokens": 2}


MECHANISMS = (
    Tiny(
        "tiny-masked",
        "masked caching with a draft layer: the tail before a boundary, and the look-ahead block after it",
        scope(
            _FULL_4,
            window(2, 3, lookahead=True),
            menu=Menu((Prompt(7), Prompt(7, 4)), budgets_tokens=(4, 8), samples=False),
            blocks=9,
            tokens_max=8,
            retention_interval_tokens=4,
            scratch_first=True,
        ),
        scope(
            _FULL_4,
            window(2, 3, lookahead=True),
            menu=Menu((Prompt(7), Prompt(7, 4)), budgets_tokens=(2, 8), drafts=(0, 1)),
            blocks=9,
            tokens_max=9,
            drafts_max=1,
            retention_interval_tokens=4,
            scratch_first=True,
        ),
    ),
    Tiny(
        "tiny-retention",
        "retention with an interval of two alignments: a tail per interval, and the replay boundary",
        scope(
            _FULL_2,
            window(1, 2),
            menu=Menu((Prompt(5), Prompt(7), Prompt(7, 4)), budgets_tokens=(2, 8), samples=False),
            blocks=10,
            tokens_max=8,
            retention_interval_tokens=4,
            scratch_first=True,
        ),
        scope(
            _FULL_2,
            window(1, 2),
            menu=Menu((Prompt(5), Prompt(7), Prompt(7, 4)), budgets_tokens=(2, 8)),
            blocks=9,
            tokens_max=9,
            retention_interval_tokens=4,
            scratch_first=True,
        ),
    ),
    Tiny(
        "tiny-replay",
        "a retention interval of 0: the replay boundary alone",
        scope(
            window(1, 3),
            menu=Menu((Prompt(3), Prompt(4)), budgets_tokens=(1, 8)),
            blocks=6,
            tokens_max=5,
            retention_interval_tokens=0,
            scratch_first=True,
        ),
        scope(
            _FULL_1,
            window(1, 3),
            menu=Menu((Prompt(3), Prompt(4)), budgets_tokens=(1, 8)),
            blocks=9,
            tokens_max=5,
            retention_interval_tokens=0,
            scratch_first=True,
        ),
    ),
    Tiny(
        "tiny-junction",
        "prompts that part: the boundary at which they do is kept besides the replay boundary",
        scope(
            _FULL_1,
            window(1, 2, lookahead=True),
            menu=Menu((Prompt(4), Prompt(3), Prompt(4, 2)), samples=False, preempts=False),
            blocks=13,
            tokens_max=5,
            retention_interval_tokens=0,
            keeps_junctions=True,
            scratch_first=True,
        ),
        scope(
            _FULL_1,
            window(1, 2, lookahead=True),
            menu=Menu((Prompt(5), Prompt(4), Prompt(5, 3)), budgets_tokens=(2, 8), samples=False),
            blocks=14,
            tokens_max=6,
            retention_interval_tokens=0,
            keeps_junctions=True,
            scratch_first=True,
        ),
    ),
    Tiny(
        "tiny-compressed",
        "a compressed group, a window and a compressor state: three block sizes, one alignment",
        scope(
            _COMPRESSED,
            window(2, 3),
            window(1, 2),
            menu=Menu((Prompt(5), Prompt(7)), budgets_tokens=(2, 4), samples=False),
            blocks=13,
            tokens_max=8,
            chunk_tokens=4,
        ),
        scope(
            _COMPRESSED,
            window(2, 3),
            window(1, 2),
            menu=Menu((Prompt(5), Prompt(7), Prompt(7, 4)), budgets_tokens=(2, 4)),
            blocks=13,
            tokens_max=8,
            chunk_tokens=4,
        ),
    ),
    Tiny(
        "tiny-partial",
        "hits that end inside a compressed block: entries, copies, sources held until they were dispatched",
        scope(
            _COPIED,
            menu=Menu((Prompt(3), Prompt(5, 2)), budgets_tokens=(2, 8), samples=False, dispatches=True),
            blocks=5,
            tokens_max=6,
        ),
        scope(
            _COPIED,
            window(2, 3),
            menu=Menu((Prompt(3), Prompt(5), Prompt(5, 2)), budgets_tokens=(2, 8), dispatches=True, evicts=True),
            blocks=8,
            tokens_max=6,
        ),
    ),
    Tiny(
        "tiny-pinned",
        "a pinned tier: pins on drops and at ends, hits on pinned blocks, demotion under pressure",
        scope(
            window(2, 3),
            menu=Menu((Prompt(5), Prompt(6, 3)), budgets_tokens=(2, 8), samples=False),
            blocks=6,
            tokens_max=7,
            pin_drop_blocks_min=1,
        ),
        scope(
            _FULL_1,
            window(1, 2),
            menu=Menu((Prompt(3), Prompt(4, 2)), budgets_tokens=(1, 2), evicts=True, resets=True),
            blocks=8,
            tokens_max=5,
            pin_drop_blocks_min=1,
            scratch_first=True,
        ),
    ),
    Tiny(
        "tiny-loopholes",
        "a pinned tier that is as small as the loopholes of pins by reference count allow",
        scope(
            window(1, 2),
            menu=Menu((Prompt(3), Prompt(3, 1)), budgets_tokens=(1,), samples=False),
            blocks=5,
            tokens_max=4,
            pin_drop_blocks_min=2,
        ),
        scope(
            window(1, 2),
            menu=Menu((Prompt(3), Prompt(3, 1)), budgets_tokens=(1, 2)),
            blocks=5,
            tokens_max=5,
            pin_drop_blocks_min=2,
        ),
    ),
    Tiny(
        "tiny-local",
        "chunked local attention next to full attention: a chunk is read from its first token",
        scope(
            _FULL_1,
            _LOCAL,
            menu=Menu((Prompt(2), Prompt(3, 1)), budgets_tokens=(1, 8)),
            blocks=7,
            tokens_max=4,
        ),
        scope(
            _FULL_1,
            _LOCAL,
            menu=Menu((Prompt(2), Prompt(4), Prompt(4, 1)), budgets_tokens=(1, 8), evicts=True),
            blocks=9,
            tokens_max=5,
        ),
    ),
    Tiny(
        "tiny-mamba-all",
        "states kept after every block, and one for each draft in flight",
        scope(
            _states(StateMode.ALL, drafts=1),
            menu=Menu((Prompt(3), Prompt(5)), budgets_tokens=(8,), drafts=(1,), dispatches=True),
            blocks=6,
            tokens_max=6,
            drafts_max=1,
        ),
        scope(
            _FULL_2,
            _states(StateMode.ALL, drafts=1),
            menu=Menu((Prompt(3), Prompt(5)), budgets_tokens=(2, 8), drafts=(0, 1), dispatches=True),
            blocks=10,
            tokens_max=6,
            drafts_max=1,
        ),
    ),
    Tiny(
        "tiny-mamba-align",
        "states kept where a chunk ends: the running one, the one it came from, and one for each draft",
        scope(
            _states(StateMode.ALIGN, drafts=1, block_size_tokens=4),
            menu=Menu((Prompt(5), Prompt(6)), budgets_tokens=(3, 8), drafts=(1,), dispatches=True),
            blocks=6,
            tokens_max=8,
            drafts_max=1,
        ),
        scope(
            _FULL_4,
            _states(StateMode.ALIGN, drafts=1, block_size_tokens=4),
            menu=Menu((Prompt(5), Prompt(6)), budgets_tokens=(3, 8), drafts=(0, 1), dispatches=True),
            blocks=9,
            tokens_max=8,
            drafts_max=1,
        ),
    ),
    Tiny(
        "tiny-transfers",
        "other nodes provide, load and read: blocks that are held for them, and cached when they arrive",
        scope(
            window(1, 2),
            menu=Menu(
                (Prompt(2), Prompt(2, 0)),
                budgets_tokens=(8,),
                samples=False,
                external_tokens=(0, 2),
                loads=True,
                sends=True,
                aborts=True,
            ),
            blocks=5,
            tokens_max=3,
        ),
        scope(
            _FULL_1,
            window(1, 2),
            menu=Menu(
                (Prompt(2), Prompt(4)),
                budgets_tokens=(1, 8),
                external_tokens=(0, 2, 4),
                loads=True,
                sends=True,
                aborts=True,
            ),
            blocks=8,
            tokens_max=5,
        ),
    ),
    Tiny(
        "tiny-ahead",
        "two steps in flight: chunks, preemption, and tokens that are cached when they are known",
        scope(
            _FULL_2,
            menu=Menu((Prompt(3),), budgets_tokens=(2,), dispatches=True),
            blocks=4,
            steps_in_flight_max=2,
            **_limits(4),
        ),
        scope(
            _FULL_2,
            menu=Menu((Prompt(3),), budgets_tokens=(8,), dispatches=True, aborts=True),
            blocks=5,
            steps_in_flight_max=3,
            **_limits(5),
        ),
    ),
    Tiny(
        "tiny-ahead-late",
        "two steps in flight, and two prompts: blocks are allocated again while a step still writes them",
        scope(
            _FULL_2,
            menu=Menu((Prompt(2),), families=2, budgets_tokens=(2,), dispatches=True),
            blocks=3,
            steps_in_flight_max=2,
            **_limits(3),
        ),
        scope(
            _FULL_2,
            menu=Menu((Prompt(2),), families=2, budgets_tokens=(2,), dispatches=True, aborts=True),
            blocks=4,
            steps_in_flight_max=2,
            **_limits(4),
        ),
    ),
    Tiny(
        "tiny-ahead-drafts",
        "two steps in flight with a draft each: what a window keeps until it is known which of them hold",
        scope(
            window(1, 2),
            menu=Menu((Prompt(1),), budgets_tokens=(8,), dispatches=True, releases=True),
            blocks=6,
            requests_max=1,
            drafts_max=1,
            steps_in_flight_max=2,
            **_limits(5),
        ),
        scope(
            window(1, 2),
            menu=Menu((Prompt(1),), budgets_tokens=(8,), dispatches=True),
            blocks=6,
            drafts_max=1,
            steps_in_flight_max=2,
            **_limits(5),
        ),
    ),
    Tiny(
        "tiny-ahead-loads",
        "two steps in flight with a draft each, and another node that writes at any time",
        scope(
            window(1, 2),
            menu=Menu(
                (Prompt(2),),
                budgets_tokens=(8,),
                dispatches=True,
                external_tokens=(2,),
                loads=True,
                preempts=False,
                releases=True,
            ),
            blocks=6,
            drafts_max=1,
            steps_in_flight_max=2,
            loads_out_of_turn=True,
            **_limits(5),
        ),
        scope(
            window(1, 2),
            menu=Menu((Prompt(2),), budgets_tokens=(8,), dispatches=True, external_tokens=(0, 2), loads=True),
            blocks=6,
            drafts_max=1,
            steps_in_flight_max=2,
            loads_out_of_turn=True,
            **_limits(5),
        ),
    ),
    Tiny(
        "tiny-ahead-preempted",
        "two steps in flight: a preempted request may load before its answers are known",
        scope(
            window(1, 2),
            menu=Menu((Prompt(2),), budgets_tokens=(8,), dispatches=True, external_tokens=(2,), loads=True),
            blocks=5,
            steps_in_flight_max=2,
            loads_out_of_turn=True,
            **_limits(4),
        ),
        scope(
            window(1, 2),
            menu=Menu(
                (Prompt(2),), budgets_tokens=(8,), dispatches=True, external_tokens=(0, 2), loads=True, aborts=True
            ),
            blocks=5,
            steps_in_flight_max=2,
            loads_out_of_turn=True,
            **_limits(4),
        ),
    ),
)
"""In the order of the mechanisms."""


_FULL = Group(Kind.FULL, 1)
_WINDOW = Group(Kind.SLIDING_WINDOW, 1, 2)


def _submit(prompt_tokens: int, answers_max: int = 1, external_tokens: int = 0, sends: bool = False) -> Submit:
    """A request; what another node offers is loaded while it waits."""
    arrival = Arrive(0, (Run(0, prompt_tokens),))
    return Submit(arrival, answers_max, external_tokens, loads=external_tokens > 0, sends=sends)


def _settings(*groups: Group, blocks: int, chunk_tokens: int, requests_max: int = 2, **settings: Any) -> Settings:
    limits = {"blocks": blocks, "chunk_tokens": chunk_tokens, "requests_max": requests_max}
    return Settings(Geometry(groups), tells_events=False, **{"tokens_max": 6, **limits, **settings})


SCHEDULERS = (
    TinyScheduler(
        "tiny-scheduler",
        "admission, chunks, preemption and loads under one budget: every request makes progress",
        Shop(
            _settings(_FULL, _WINDOW, blocks=9, chunk_tokens=2),
            StepLimits(budget_tokens=3, running_max=2),
            (_submit(2, 2), _submit(4), _submit(4, external_tokens=2), _submit(3, sends=True)),
        ),
        Shop(
            _settings(_FULL, _WINDOW, blocks=11, requests_max=3, chunk_tokens=2),
            StepLimits(budget_tokens=3, running_max=2),
            (_submit(2, 2), _submit(4), _submit(4, external_tokens=2), _submit(3, sends=True)),
        ),
    ),
    TinyScheduler(
        "tiny-scheduler-tight",
        "full attention in a pool that two requests outgrow: preemption, and requests that never fit",
        Shop(
            _settings(_FULL, blocks=5, chunk_tokens=4),
            StepLimits(budget_tokens=4, running_max=2),
            (_submit(1, 4), _submit(2, 2), _submit(3, external_tokens=2), _submit(5)),
        ),
        Shop(
            _settings(_FULL, blocks=6, requests_max=3, chunk_tokens=2),
            StepLimits(budget_tokens=3, running_max=2),
            (_submit(1, 4), _submit(2, 3), _submit(4, external_tokens=3), _submit(5)),
        ),
    ),
    TinyScheduler(
        "tiny-scheduler-line",
        "three requests and blocks for two: the rejected request is first in the queue",
        Shop(
            _settings(_FULL, blocks=5, chunk_tokens=4, requests_max=3),
            StepLimits(budget_tokens=4, running_max=2),
            (_submit(1, 2), _submit(3)),
        ),
        Shop(
            _settings(_FULL, blocks=6, chunk_tokens=4, requests_max=4),
            StepLimits(budget_tokens=4, running_max=3),
            (_submit(1, 2), _submit(3), _submit(4)),
        ),
    ),
    TinyScheduler(
        "tiny-scheduler-sends",
        "blocks that another node reads when their request has ended: who runs first waits, and loses nothing",
        Shop(
            _settings(Group(Kind.FULL, 2), blocks=6, chunk_tokens=4, requests_max=3, tokens_max=12, caches=False),
            StepLimits(budget_tokens=4, running_max=2),
            (_submit(6, 2, external_tokens=4), _submit(2, 2, sends=True)),
            (Reply(),),
        ),
        Shop(
            _settings(Group(Kind.FULL, 2), blocks=6, chunk_tokens=4, requests_max=3, tokens_max=12),
            StepLimits(budget_tokens=4, running_max=2),
            (_submit(6, external_tokens=4), _submit(2, 2, sends=True)),
        ),
    ),
    TinyScheduler(
        "tiny-scheduler-drafts",
        "a draft layer: look-ahead slots, drafts accepted and rejected, with loads",
        Shop(
            _settings(Group(Kind.FULL, 1, lookahead=True), blocks=7, chunk_tokens=4, drafts_max=1),
            StepLimits(budget_tokens=4, running_max=2),
            (_submit(2, 2), _submit(3, external_tokens=3)),
            (Reply(), Reply(drafts=1), Reply(accepted=1, drafts=1)),
        ),
        Shop(
            _settings(Group(Kind.FULL, 1, lookahead=True), blocks=9, requests_max=3, chunk_tokens=4, drafts_max=1),
            StepLimits(budget_tokens=4, running_max=2),
            (_submit(2, 2), _submit(3, external_tokens=3)),
            (Reply(), Reply(drafts=1), Reply(accepted=1, drafts=1)),
        ),
    ),
)
"""By what they are about."""


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
        "a sliding window: what it drops, and what a hit needs of it",
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

_TWO_GROUPS = Geometry((_FULL_1, window(1, 2)))
_TIERS = (
    TinyTier(
        "tiny-tier",
        "a second tier: jobs that fail or never end, eviction, resets, hits that need both groups",
        TierScope(_TWO_GROUPS, ("a", "b"), blocks=2, chunks=3),
        TierScope(_TWO_GROUPS, ("a", "b", "c"), blocks=2, chunks=3),
    ),
    TinyTier(
        "tiny-tier-window",
        "a second tier: longer prompts, of which a window needs the end alone",
        TierScope(_TWO_GROUPS, ("ab",), blocks=4, chunks=3),
        TierScope(_TWO_GROUPS, ("ab", "c"), blocks=4, chunks=3),
    ),
    TinyTier(
        "tiny-tier-shared",
        "a second tier: two loads of one chunk at once",
        TierScope(_TWO_GROUPS, ("a", "b"), blocks=3, chunks=2),
        TierScope(_TWO_GROUPS, ("a", "b"), blocks=4, chunks=2),
    ),
)

MODELS: Mapping[str, Explorable] = MappingProxyType(
    {tiny.name: tiny for tiny in (*_ALL, *MECHANISMS, *SCHEDULERS, *_TIERS)}
)
"""The tiny models, by name."""


def load(name: str) -> Explorable:
    """The tiny model called ``name``.

    Raises:
        UsageError: the model is unknown.
    """
    if name not in MODELS:
        raise UsageError(f"unknown tiny model {name!r}: give one of {', '.join(MODELS)}")
    return MODELS[name]
