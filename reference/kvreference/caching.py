"""Caching: which blocks of a request become known to the cache, when, and what is told about it.

Blocks are cached when their tokens are scheduled, each once, and drafts are never among them. Where a hit may end
inside a block, the boundaries inside it become entries, each once as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kvreference.block_pool import NULL, BlockPool
from kvreference.cached_map import Content
from kvreference.content import Prefix
from kvreference.events import Event, Stored
from kvreference.geometry import Geometry, Group
from kvreference.population import Request
from kvreference.retention import Retention
from kvreference.tables import Table, Tables, content_up_to


def register(
    pool: BlockPool,
    geometry: Geometry,
    retention: Retention,
    request: Request,
    prefixes: Sequence[Prefix],
    tables: Tables,
    tokens: int,
) -> tuple[list[Event], list[Content]]:
    """Cache what the first ``tokens`` tokens of ``request`` make due.

    Returns the events, and the content that cannot serve a hit before the step was dispatched.
    """
    events: list[Event] = []
    fenced: list[Content] = []
    for index, (group, table) in enumerate(zip(geometry.groups, tables, strict=True)):
        due = list(_take_due(group, retention, request, table, tokens))
        contents = [content_up_to(geometry, index, prefixes, (i + 1) * group.block_size_tokens) for i in due]
        for position, content in zip(due, contents, strict=True):
            pool.cached.register(content, table.blocks[position])
        beginnings = list(_take_boundaries(group, retention, request, table, tokens))
        for end in beginnings:
            content = content_up_to(geometry, index, prefixes, end)
            pool.partial.register(content, table.blocks[end // group.block_size_tokens])
            contents.append(content)
        fenced += contents if group.fences else ()
        events += (_stored(geometry, index, request, prefixes, run) for run in _runs(due))
    return events, fenced


def _take_due(group: Group, retention: Retention, request: Request, table: Table, tokens: int) -> Iterator[int]:
    """The positions of the blocks that are due now; whatever was looked at is not looked at again."""
    for position in range(table.registered, tokens // group.block_size_tokens):
        due_tokens = retention.due_tokens(group, position, request.prompt_tokens)
        if due_tokens is not None and due_tokens > tokens:
            return
        table.registered = position + 1
        # Accepted drafts may span a whole window: the blocks they filled can be dead before they are cached.
        if due_tokens is not None and table.blocks[position] != NULL:
            yield position


def _take_boundaries(group: Group, retention: Retention, request: Request, table: Table, tokens: int) -> Iterator[int]:
    """Where prefixes end that are entries now, in tokens: behind every boundary, as much as a hit there must match."""
    if not group.copies:
        return
    reached = tokens - group.lookahead_tokens
    for boundary in retention.boundaries(table.boundary_tokens, reached, request.prompt_tokens):
        table.boundary_tokens = boundary
        matched = group.tokens_matched(boundary)
        if matched % group.block_size_tokens:
            yield matched


def _runs(positions: Iterable[int]) -> Iterator[list[int]]:
    """Neighbouring positions together."""
    run: list[int] = []
    for position in positions:
        if run and position != run[-1] + 1:
            yield run
            run = []
        run.append(position)
    if run:
        yield run


def _stored(geometry: Geometry, index: int, request: Request, prefixes: Sequence[Prefix], run: list[int]) -> Stored:
    """The event of one run of neighbouring blocks."""
    size = geometry.groups[index].block_size_tokens
    start, end = run[0] * size, (run[-1] + 1) * size
    return Stored(
        group=index,
        contents=tuple(content_up_to(geometry, index, prefixes, (i + 1) * size) for i in run),
        parent=content_up_to(geometry, index, prefixes, start) if start else None,
        tokens=tuple(request.tokens[start:end]),
        block_size_tokens=size,
        lora=request.keys.lora,
        extra_keys=tuple(request.keys.of_block(i * size, (i + 1) * size) for i in run),
    )
