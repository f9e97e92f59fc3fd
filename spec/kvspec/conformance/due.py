"""What must become known to the cache in a step: exactly what retention says is due, each with its own content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from attrs import evolve, frozen

from kvreference.block_pool import NULL
from kvreference.cached_map import Content
from kvreference.geometry import Geometry, Group
from kvreference.manager import Manager
from kvreference.population import Request
from kvreference.retention import Dense, Retention, Sparse
from kvreference.settings import Settings
from kvspec.conformance.identity import content_of_block, content_up_to
from kvspec.conformance.step import Blocks

Known: TypeAlias = tuple[Content, int]
"""A content, and the block that is known to hold it."""


def retention_of(settings: Settings) -> Retention | None:
    """What says which blocks are due; None if nothing is cached."""
    if not settings.caches:
        return None
    interval = settings.retention_interval_tokens
    return Dense(settings.geometry) if interval is None else Sparse(settings.geometry, interval)


@frozen
class Progress:
    """How far a request's content was made known, since it holds blocks."""

    hit_tokens: int
    """What was there already: it is not made known again."""
    tokens: int
    """Of how many tokens all that is due is known."""
    opened: tuple[int, ...]
    """Per group, the first index that is not known, and may be due later."""


def progress_behind(geometry: Geometry, hit_tokens: int) -> Progress:
    """The progress of a request that holds its hit alone."""
    return Progress(hit_tokens, hit_tokens, tuple(hit_tokens // group.block_size_tokens for group in geometry.groups))


@frozen
class Due:
    """What becomes known in one step."""

    full: frozenset[Known]
    begun: frozenset[Known]
    progress: Progress


def due(manager: Manager, retention: Retention, number: int, tables: Blocks, progress: Progress, tokens: int) -> Due:
    """What the first ``tokens`` tokens make due, on top of ``progress``. Drafts are never among them."""
    request = manager.population[number]
    tokens = min(tokens, len(request.tokens))
    full: list[Known] = []
    begun: list[Known] = []
    opened = []
    for index, (group, blocks) in enumerate(zip(manager.geometry.groups, tables, strict=True)):
        places, first = _places(retention, group, request, progress.opened[index], progress.tokens, tokens)
        opened.append(first)
        # Accepted drafts may span a whole window: what they filled may be dead before it is due.
        full += [
            (content_of_block(manager, number, index, place), blocks[place])
            for place in places
            if blocks[place] != NULL
        ]
        begun += [
            (content_up_to(manager, number, index, end), blocks[end // group.block_size_tokens])
            for end in _boundaries(retention, group, request, progress, tokens)
        ]
    return Due(frozenset(full), frozenset(begun), evolve(progress, tokens=tokens, opened=tuple(opened)))


def _places(
    retention: Retention, group: Group, request: Request, first: int, before: int, tokens: int
) -> tuple[Sequence[int], int]:
    """The indices from ``first`` on that become due behind ``before`` tokens, and the first that is not due yet."""
    end = max(first, tokens // group.block_size_tokens)
    found = []
    opened = end
    for index in range(first, end):
        due_tokens = retention.due_tokens(group, index, request.prompt_tokens)
        if due_tokens is None:
            continue
        if due_tokens > tokens:
            opened = min(opened, index)
        elif due_tokens > before:
            found.append(index)
    return found, opened


def _boundaries(retention: Retention, group: Group, request: Request, progress: Progress, tokens: int) -> Iterator[int]:
    """Where prefixes end that become entries inside blocks, in tokens."""
    if not group.copies:
        return
    start = max(progress.hit_tokens, progress.tokens - group.lookahead_tokens)
    for boundary in retention.boundaries(start, tokens - group.lookahead_tokens, request.prompt_tokens):
        matched = group.tokens_matched(boundary)
        if matched % group.block_size_tokens:
            yield matched
