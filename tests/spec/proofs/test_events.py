"""KV events: the places that stand for tokens and prefixes in the proofs are where these are."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from kvreference import caching
from kvreference.content import Keys, Prefixes
from kvreference.events import Stored
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Dispatch, Run, Schedule, TakeEvents
from kvreference.settings import Settings
from kvspec.proofs.kv_events import RUNS, SOUND_RUNS, all_in_one, stored_at
from kvspec.prover import holds


def test_places_stand_for_what_is_there() -> None:
    """Goal: the proofs about places hold of tokens and prefixes. Method: generated runs; the running function on a real
    request, and on places, which then are looked up in the request.
    """
    for seed in range(200):
        chance = random.Random(seed)
        grain, size, ahead = chance.choice([1, 2, 3]), chance.randint(1, 3), chance.randint(0, 1)
        first, looked_at, later, last = sorted(chance.randint(0, 9) for _ in range(4))
        u = SimpleNamespace(grain=grain, block=grain * size, ahead=ahead, group=0, first=first, last=last)
        u.looked_at, u.later = looked_at, later
        groups = (SimpleNamespace(block_size_tokens=u.block),)
        geometry: Any = SimpleNamespace(grain_tokens=grain, hashed_ahead_tokens=ahead, groups=groups)
        tokens = [chance.randint(0, 9) for _ in range(u.block * 11)]
        prefixes: Any = []
        Prefixes(grain, ahead_tokens=ahead).extend(prefixes, tokens, Keys())
        request: Any = SimpleNamespace(tokens=tokens, keys=Keys())
        due = range(first, last + 1)
        real: Any = caching.stored_events(geometry, 0, request, prefixes, due, due, ())[0]
        place, looked = stored_at(u), [each - first for each in sorted({looked_at, later})]
        assert tuple(token for part in place.tokens for token in tokens[part.start : part.end]) == real.tokens
        assert _ends([real.contents[each] for each in looked]) == [grains * grain for _, grains in place.contents]
        assert (_ends([real.parent]) if real.parent else [0]) == [place.parent[1] * grain if place.parent else 0]
        assert [tuple(tokens[it.start : it.end]) for (it,) in place.ahead] == [
            real.ahead[each] for each in looked[: ahead * 2]
        ]


def _ends(contents: Any) -> list[int]:
    """How many tokens each content ends at."""
    return [prefix.tokens for _, prefix in contents]


def stored(groups: tuple[Group, ...], chunk_tokens: int, tokens: int) -> list[Stored]:
    """The stored events of one request, computed in chunks."""
    manager = Manager(Settings(Geometry(groups), blocks=64, chunk_tokens=chunk_tokens))
    manager.apply(Arrive(0, (Run(0, tokens),)))
    manager.apply(Admit(0, chunk_tokens))
    for _ in range(-(-tokens // chunk_tokens) - 1):
        if manager.geometry.fences:
            manager.apply(Dispatch())
        manager.apply(Schedule(0, chunk_tokens))
    events: Any = manager.apply(TakeEvents())
    return [event for event in events.events if isinstance(event, Stored)]


MANY = ((Group("full", 4), Group("mamba", 4, states="align")), (Group("full", 8), Group("sliding_window", 4, 6)))


@pytest.mark.parametrize("groups", MANY)
def test_events_of_a_manager_tell_their_tokens(groups: tuple[Group, ...]) -> None:
    """Goal: the same of whole runs. Method: token ids are their positions; each event has as many as its blocks."""
    events = stored(groups, chunk_tokens=12, tokens=40)
    assert len(events) >= 4
    for event in events:
        size = event.block_size_tokens
        assert (len(event.contents) * size, len(event.contents)) == (len(event.tokens), len(event.extra_keys))
        assert tuple(range(event.tokens[0], event.tokens[0] + len(event.tokens))) == event.tokens
        assert (event.tokens[0] == 0) == (event.parent is None)


def test_an_event_that_spans_a_gap_is_noticed() -> None:
    """Goal: the check can fail. Method: all that is due is reported as one run, on numbers: 0 and 2 are not
    adjacent.
    """
    values = {"begun": 0, "fewer": 0, "last": 0, "gap": 0, "second_gap": 1}
    assert holds(RUNS, values)
    assert SOUND_RUNS is caching._runs
    with patch.object(caching, "_runs", all_in_one):
        assert not holds(RUNS, values)
