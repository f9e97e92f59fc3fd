"""Finding 007: An event tells the tokens of null blocks, and does not name them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress

from attrs import evolve

from kvgate.findings.finding import Acts, Finding
from kvreference.caching import stored_events
from kvreference.content import Prefix
from kvreference.events import Event, Stored
from kvreference.geometry import Geometry
from kvreference.population import Request
from kvreference.rules import Delta


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


FINDING = Finding(
    id="007-events-span-null-blocks",
    rank=8,
    statement="KV-OP-12",
    condition="a block that is cached next to one that is not",
    where=lambda settings: settings.tells_events,
    acts=lambda *_run: Acts([Delta(stored_events.__name__, _spans_null_blocks)]),
    holds=lambda _ideal, _answered, _geometry, _index, _request, _prefixes, looked_at, due, _began: (
        len(due) < len(looked_at)
    ),
)
