"""Refuted: a copy whose source is not held.

A hit that ends inside a block is served by a copy, and the copy is done when the step is dispatched. Between the two
other requests are admitted. If the source is not held, it may be the very block that one of them is given.
"""

from __future__ import annotations

from kvreference.answers import Copy, Hit
from kvreference.holdings import Allocation, Holdings, Span
from kvreference.manager import Manager
from kvreference.settings import Settings


class UnheldSources(Holdings):
    """Holdings that release a copy's source at once."""

    def allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
        allocation = super().allocate(request, span, hit)
        copied = hit.partials if allocation else ()
        self.pool.release(partial.source for partial in copied)
        return allocation

    def dispatch(self) -> tuple[Copy, ...]:
        copies, self.copies = self.copies, []
        return tuple(copies)


class UnheldCopy(Manager):
    """The block manager over such holdings."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.holdings = UnheldSources(settings)
