"""What a block must hold: the content of its own request, its own group and its own place, and no other."""

from __future__ import annotations

from kvreference.answers import Answer, Granted
from kvreference.cached_map import Content
from kvreference.manager import Manager


class ForeignPrefixError(LookupError):
    """Where a prefix should stand there is none, or one of another length."""


def content_up_to(manager: Manager, request: int, group: int, tokens: int) -> Content:
    """The content of a block of ``group`` that ends, or in which a boundary lies, at the first ``tokens`` tokens.

    A prefix knows its own length, so that one that stands at a wrong place is not taken.

    Raises:
        ForeignPrefixError: the request has no prefix of that length.
    """
    place = tokens // manager.geometry.grain_tokens - 1
    prefixes = manager.prefixes[request]
    if not 0 <= place < len(prefixes) or prefixes[place].tokens != tokens:
        raise ForeignPrefixError(f"request {request} has no prefix of {tokens} tokens")
    return group, prefixes[place]


def content_of_block(manager: Manager, request: int, group: int, index: int) -> Content:
    """The content of the full block at ``index``."""
    return content_up_to(manager, request, group, (index + 1) * manager.geometry.groups[group].block_size_tokens)


def content_of_source(manager: Manager, request: int, group: int, answer: Answer) -> Content | None:
    """What a block must hold, or begin with, of which a beginning is copied; None if nothing was granted."""
    if not isinstance(answer, Granted):
        return None
    matched = manager.geometry.groups[group].tokens_matched(answer.hit_tokens)
    return content_up_to(manager, request, group, matched)
