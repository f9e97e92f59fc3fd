"""Caching: which blocks of a request become known to the cache, when, and which events report it.

Blocks are cached when their tokens are scheduled, each once, and drafts are never among them. Where a hit may end
inside a block, the boundaries inside it become entries, each once as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from kvreference.block_pool import NULL, BlockPool
from kvreference.cached_map import Content
from kvreference.content import Prefix
from kvreference.events import Event, Stored
from kvreference.geometry import Geometry, Group
from kvreference.population import Request
from kvreference.retention import Retention
from kvreference.rules import OWN_RULES, Rules
from kvreference.tables import Table, Tables, content_up_to


def register(
    pool: BlockPool,
    geometry: Geometry,
    retention: Retention,
    request: Request,
    prefixes: Sequence[Prefix],
    tables: Tables,
    tokens: int,
    begun: int | None = None,
    rules: Rules = OWN_RULES,
) -> tuple[list[Event], list[Content]]:
    """Cache what the first ``tokens`` tokens of ``request`` make due, of which a step computes those after ``begun``,
    or no step if it is None.

    Returns the events, and the content that cannot serve a hit before the step was dispatched.
    """
    events: list[Event] = []
    fenced: list[Content] = []
    # The content of a block may depend on tokens after it, which are not known yet.
    known = len(prefixes) * geometry.grain_tokens
    for index, (group, table) in enumerate(zip(geometry.groups, tables, strict=True)):
        seen = table.registered
        looks_at = rules.ask(tokens_looked_at, retention, geometry, group, tokens)
        passed = range(looks_at if begun is None else begun + 1, looks_at)
        taken = _take_due(group, retention, request, table, looks_at, known, passed, rules)
        # After a failed load, another request that shares a block may have computed it again, and cached it.
        due = [position for position in taken if pool.cached.content_of(table.blocks[position]) is None]
        size = group.block_size_tokens
        contents = [rules.ask(content_up_to, geometry, index, prefixes, (i + 1) * size) for i in due]
        for position, content in zip(due, contents, strict=True):
            pool.register(content, table.blocks[position])
        again = rules.ask(cached_again, geometry, group, request, table, looks_at, pool.is_cached)
        for position in again:
            contents.append(content_up_to(geometry, index, prefixes, (position + 1) * size))
            pool.register(contents[-1], table.blocks[position])
        boundaries = list(_take_boundaries(group, retention, request, table, min(tokens, known)))
        ends = rules.ask(ends_inside, group, request, table, looks_at, boundaries)
        began = [
            end for end in ends if _begins(pool, content_up_to(geometry, index, prefixes, end), table, end // size)
        ]
        contents += (content_up_to(geometry, index, prefixes, end) for end in ends)
        fenced += contents if group.fences else ()
        looked_at = range(seen, table.registered)
        events += rules.ask(stored_events, geometry, index, request, prefixes, looked_at, due, began)
        events += (_stored(geometry, index, request, prefixes, [position], [position]) for position in again)
    return events, fenced


def _begins(pool: BlockPool, content: Content, table: Table, position: int) -> bool:
    """Make the beginning of a block an entry; returns whether it was not one before."""
    known = content in pool.partial.contents_of(table.blocks[position])
    pool.register_beginning(content, table.blocks[position])
    return not known


def tokens_looked_at(retention: Retention, geometry: Geometry, group: Group, tokens: int) -> int:
    """How many of the first ``tokens`` tokens decide now what is due: all of them."""
    del retention, geometry, group
    return tokens


def due_tokens(retention: Retention, group: Group, index: int, prompt_tokens: int) -> int | None:
    """How many tokens must be computed for the block at ``index`` to be cached; None if it never is."""
    return retention.due_tokens(group, index, prompt_tokens)


def _take_due(
    group: Group,
    retention: Retention,
    request: Request,
    table: Table,
    tokens: int,
    known: int,
    passed: range,
    rules: Rules,
) -> Iterator[int]:
    """The positions of the blocks that are due now; each position is looked at once."""
    for position in range(table.registered, min(tokens, known) // group.block_size_tokens):
        due = rules.ask(due_tokens, retention, group, position, request.prompt_tokens)
        if due is not None and due > tokens:
            return
        table.registered = position + 1
        end = (position + 1) * group.block_size_tokens
        # Accepted drafts may span a whole window: the blocks they filled can be dead before they are cached.
        if due is not None and table.blocks[position] != NULL and rules.ask(holds_its_end, group, end, passed):
            yield position


def cached_again(
    geometry: Geometry, group: Group, request: Request, table: Table, tokens: int, is_cached: Callable[[int], bool]
) -> tuple[int, ...]:
    """The positions of blocks that were looked at and lost what they held, and are cached again: none."""
    del geometry, group, request, table, tokens, is_cached
    return ()


def holds_its_end(group: Group, end: int, passed: range) -> bool:
    """Whether a block that ends after ``end`` tokens holds what is there.

    A state does not if a step has ``passed`` that end: then it is the state from which that step began.
    """
    return not (group.attention.stops_at_block_ends and end in passed)


def _take_boundaries(group: Group, retention: Retention, request: Request, table: Table, tokens: int) -> Iterator[int]:
    """Where the prefixes that are entries now end, in tokens: after every boundary, as much as a hit there must
    match."""
    if not group.copies:
        return
    reached = tokens - group.lookahead_tokens
    for boundary in retention.boundaries(table.boundary_tokens, reached, request.prompt_tokens):
        table.boundary_tokens = boundary
        matched = group.tokens_matched(boundary)
        if matched % group.block_size_tokens:
            yield matched


def ends_inside(group: Group, request: Request, table: Table, tokens: int, due: list[int]) -> list[int]:
    """Where, in the first ``tokens`` tokens, prefixes end inside blocks that are entries now: those ``due``."""
    del group, request, table, tokens
    return due


def stored_events(
    geometry: Geometry,
    index: int,
    request: Request,
    prefixes: Sequence[Prefix],
    looked_at: range,
    due: Sequence[int],
    began: Sequence[int],
) -> list[Event]:
    """The events of what became cached in a group: one for each run of neighbours among the positions ``due``.

    They are of the positions ``looked_at``. Blocks that ``began``, up to these tokens, have none.
    """
    del looked_at, began
    return [_stored(geometry, index, request, prefixes, run, run) for run in _runs(due)]


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


def _stored(
    geometry: Geometry,
    index: int,
    request: Request,
    prefixes: Sequence[Prefix],
    run: Sequence[int],
    named: Sequence[int],
) -> Stored:
    """The event of one run of neighbouring blocks, of which some are named."""
    size = geometry.groups[index].block_size_tokens
    start, end = run[0] * size, (run[-1] + 1) * size
    ahead = geometry.hashed_ahead_tokens
    return Stored(
        group=index,
        contents=tuple(content_up_to(geometry, index, prefixes, (i + 1) * size) for i in named),
        parent=content_up_to(geometry, index, prefixes, start) if start else None,
        tokens=tuple(request.tokens[start:end]),
        block_size_tokens=size,
        lora=request.keys.lora,
        extra_keys=tuple(request.keys.of_block(i * size, (i + 1) * size + ahead) for i in named),
        ahead=tuple(tuple(request.tokens[(i + 1) * size :][:ahead]) for i in named) if ahead else (),
    )
