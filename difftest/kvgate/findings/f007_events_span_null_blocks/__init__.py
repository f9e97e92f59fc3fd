"""Finding 007: An event reports the tokens of null blocks, but not the blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress, groupby, repeat

from attrs import evolve

from kvgate.findings.finding import Acts, Finding
from kvreference.caching import stored_events
from kvreference.content import Prefix
from kvreference.events import Event, Stored
from kvreference.geometry import Geometry
from kvreference.population import Request
from kvreference.rules import Delta
from kvreference.tables import content_up_to


def _spans_null_blocks(
    events: Callable[..., list[Event]],
    geometry: Geometry,
    index: int,
    request: Request,
    prefixes: Sequence[Prefix],
    looked_at: range,
    due: Sequence[int],
    began: Sequence[int],
) -> list[Event]:
    """One event has all tokens that a call caches in a group: those of blocks too that it does not name."""
    all_of_them = events(geometry, index, request, prefixes, looked_at, looked_at, began)
    return [_naming(event, [position in due for position in looked_at]) for event in all_of_them]


def _naming(event: Event, named: Sequence[bool]) -> Event:
    assert isinstance(event, Stored)
    contents, keys = compress(event.contents, named), compress(event.extra_keys, named)
    return evolve(event, contents=tuple(contents), extra_keys=tuple(keys), ahead=tuple(compress(event.ahead, named)))


def _of_parts(
    ideal: Sequence[Event],
    answered: Sequence[Event],
    geometry: Geometry,
    index: int,
    request: Request,
    prefixes: Sequence[Prefix],
    looked_at: range,
    due: Sequence[int],
    _began: Sequence[int],
) -> bool:
    """Whether blocks are left out, and each run of the others has an event, which is its part of the one."""
    whole, size = answered[0], geometry.groups[index].block_size_tokens
    if not isinstance(whole, Stored) or len(answered) > 1 or not len(whole.contents) == len(due) < len(looked_at):
        return False
    named = iter(zip(whole.contents, whole.extra_keys, whole.ahead or repeat(()), strict=False))
    expected = []
    # Neighbours differ from their places by the same number.
    for _, run in groupby(enumerate(due), lambda each: each[1] - each[0]):
        positions = [position for _, position in run]
        start, end = positions[0] * size, (positions[-1] + 1) * size
        contents, keys, ahead = zip(*(next(named) for _ in positions), strict=True)
        parent = content_up_to(geometry, index, prefixes, start) if start else None
        part = evolve(whole, contents=contents, extra_keys=keys, ahead=ahead if whole.ahead else ())
        expected.append(evolve(part, parent=parent, tokens=tuple(request.tokens[start:end])))
    return list(ideal) == expected


FINDING = Finding(
    id="007-events-span-null-blocks",
    rank=8,
    statement="KV-OP-12",
    condition="a block that is cached next to one that is not",
    where=lambda settings: settings.tells_events,
    acts=lambda *_run: Acts([Delta(stored_events.__name__, _spans_null_blocks)]),
    holds=_of_parts,
)
