"""Finding 012: The block in which a prompt ends is cached by a key that no request can look up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve

from kvgate.findings.finding import Acts, Also, Finding
from kvreference.block_pool import contents_lost
from kvreference.cached_map import Content
from kvreference.caching import ends_inside, stored_events
from kvreference.content import Prefix
from kvreference.events import Event, Removed, Stored
from kvreference.geometry import Geometry, Group
from kvreference.population import Request
from kvreference.rules import Delta
from kvreference.settings import Settings
from kvreference.tables import Table, content_up_to


def _acts(settings: Settings, release: str) -> Acts:
    geometry = settings.geometry
    grain, is_newer = geometry.grain_tokens, release == "0.33.0"

    def end_of(group: Group, request: Request) -> int:
        """Where the hashed part of the prompt ends inside a block of a group of full attention, in tokens; else 0.

        The newer release leaves out the last token, which no hit serves, if look-ahead does not match it.
        """
        if not group.keeps_all or group.block_size_tokens == grain:
            return 0
        end = (request.prompt_tokens - (is_newer and not group.lookahead)) // grain * grain
        return end if end % group.block_size_tokens else 0

    def ends(
        ends_inside: Callable[..., list[int]], group: Group, request: Request, table: Table, tokens: int, due: list[int]
    ) -> list[int]:
        """The end of the prompt is an entry as well."""
        ends, end = ends_inside(group, request, table, tokens, due), end_of(group, request)
        # Whole alignments are cached, and a look-ahead block after them.
        cached = tokens // geometry.alignment_tokens * geometry.alignment_tokens
        cached = min(tokens, cached + group.block_size_tokens) if cached and group.lookahead else cached
        is_there = 0 < end <= cached and end // group.block_size_tokens < len(table.blocks)
        return [*ends, end] if is_there else ends

    def events(
        stored_events: Callable[..., list[Event]],
        geometry: Geometry,
        index: int,
        request: Request,
        prefixes: Sequence[Prefix],
        looked_at: range,
        due: Sequence[int],
        began: Sequence[int],
    ) -> list[Event]:
        """The entry is reported as stored; when its block is full, as removed, and as stored again after the block."""
        events = stored_events(geometry, index, request, prefixes, looked_at, due, began)
        group = geometry.groups[index]
        end, ahead = end_of(group, request), geometry.hashed_ahead_tokens
        is_filled = end // group.block_size_tokens in due
        if not end or not (end in began or is_filled):
            return events
        content, keys = content_up_to(geometry, index, prefixes, end), request.keys
        if not is_newer and end > grain:
            keys = evolve(keys, media=keys.media[-1:])
        stored = Stored(
            group=index,
            contents=(content,),
            parent=content_up_to(geometry, index, prefixes, end - grain) if end > grain else None,
            tokens=tuple(request.tokens[end - grain : end]),
            block_size_tokens=grain,
            lora=keys.lora,
            extra_keys=(tuple(keys.of_block(end - grain, end + ahead)),),
            ahead=(tuple(request.tokens[end : end + ahead]),) if ahead else (),
        )
        return [*([Removed(content)] if is_filled and end not in began else ()), *events, stored]

    follow = [Delta(stored_events.__name__, events), Delta(contents_lost.__name__, _with_its_beginning)]
    return Acts([Delta(ends_inside.__name__, ends)], follow)


def _is_known_as_a_whole(
    _ideal: list[int], answered: list[int], group: Group, _request: Request, table: Table, *_rest: Any
) -> bool:
    """Whether the block in which the entry ends was made an entry by all that it holds, before it."""
    return answered[-1] // group.block_size_tokens < table.registered


def _with_its_beginning(
    contents_lost: Callable[..., list[Content]], full: Content | None, begun: Sequence[Content]
) -> list[Content]:
    return [*contents_lost(full, begun), *begun]


def _blocks_of_two_sizes(settings: Settings) -> bool:
    grain = settings.geometry.grain_tokens
    return settings.caches and any(
        group.keeps_all and group.block_size_tokens != grain for group in settings.geometry.groups
    )


FINDING = Finding(
    id="012-prompt-tail-that-serves-nobody",
    rank=12,
    statement="KV-OP-15",
    also=[Also("KV-INV-05", ends_inside.__name__, _is_known_as_a_whole)],
    condition="a prompt that ends inside a block of full attention, and smaller blocks in another group",
    where=_blocks_of_two_sizes,
    acts=_acts,
    holds=lambda ideal, answered, group, *_rest: answered[:-1] == ideal and group.keeps_all,
    live=False,
)
