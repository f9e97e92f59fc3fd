"""A step: one operation with everything around it that says what must be so behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from attrs import frozen

from kvreference.answers import Answer
from kvreference.cached_map import Content
from kvreference.manager import Manager
from kvreference.operations import OfRequest, Operation
from kvreference.population import Request
from kvspec.conformance.labels import Labelled
from kvspec.conformance.picture import Picture

Blocks: TypeAlias = Sequence[Sequence[int]]
"""Per group, the blocks that a request's table names, in token order."""


@frozen(eq=False)
class Step:
    """An operation that was performed."""

    operation: Operation
    answer: Answer
    manager: Manager
    """As it is now."""
    was: Request | None
    """The request that it is about, as it was before."""
    before: Picture
    after: Picture
    happened: Sequence[Labelled]
    """The transitions that it consisted of."""
    undispatched: frozenset[Content]
    """What the worker had yet to compute before, where that cannot serve every hit."""

    @property
    def number(self) -> int:
        """The request that it is about."""
        assert isinstance(self.operation, OfRequest)
        return self.operation.request

    @property
    def named(self) -> Blocks | None:
        """What the request named before; None if it held nothing."""
        return _named(self.before, self.number)

    @property
    def names(self) -> Blocks | None:
        """What it names now."""
        return _named(self.after, self.number)


def _named(picture: Picture, number: int) -> Blocks | None:
    known = picture.raw.tables.get(number)
    return None if known is None else known[0]
