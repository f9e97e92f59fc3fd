"""What newer schedulers of vLLM ask of their block manager otherwise, by design: the reference, asked the same.

As in ``kvgate.adapters.release_variants``, no difference here is a defect, and the comparison stays exact. Where a
scheduler only asks for more (as many blocks kept free for others as it likes), the reference is told how much; whether
that much is enough is for the progress monitor to say.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvreference.answers import Answer, Granted, Hit, Refused
from kvreference.holdings import Allocation, Holdings, Span
from kvreference.manager import Manager
from kvreference.operations import Admit, LookUp, Operation, Sample
from kvreference.population import Request, Status
from kvreference.settings import Settings

PADDING = -1
"""A draft that nobody proposed: it makes a request compute as many tokens as the others, and never holds."""


class LookAheadAtOnce(Manager):
    """Whoever is let in gets look-ahead slots with its first tokens, but for a load."""

    def _let_in(
        self, request: Request, budget_tokens: int, hit: Hit, provided: int, later: bool, lookahead_tokens: int
    ) -> Granted | Refused:
        del lookahead_tokens
        asked = 0 if later else self.settings.lookahead_tokens
        return super()._let_in(request, budget_tokens, hit, provided, later, asked)


class KeepsRoom(Manager):
    """Whoever is let in leaves as many blocks free as its scheduler keeps for others."""

    kept: Mapping[int, int] = {}
    """By the number of an operation: how many blocks it must leave free; set by whoever follows a scheduler."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._performed = 0

    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        self._performed += 1
        return answer

    def _let_in(
        self, request: Request, budget_tokens: int, hit: Hit, provided: int, later: bool, lookahead_tokens: int
    ) -> Granted | Refused:
        whole, count = self.holdings, self.kept.get(self._performed, 0)
        self.holdings = _leaving(whole, count) if count else whole
        try:
            return super()._let_in(request, budget_tokens, hit, provided, later, lookahead_tokens)
        finally:
            self.holdings = whole


def _leaving(holdings: Holdings, count: int) -> Holdings:
    """The same holdings, of which an allocation must leave so many blocks free."""
    kind = type(holdings)

    # Whatever the holdings are of is known only here.
    class Leaving(kind):  # type: ignore[misc, valid-type]
        def allocate(self, request: int, span: Span, hit: Hit) -> Allocation | None:
            pool, make_room = self.pool, self.pool.make_room
            pool.make_room = lambda needed, held: make_room(needed + count, held)
            try:
                given: Allocation | None = super().allocate(request, span, hit)
                return given
            finally:
                del pool.make_room

    leaving: Holdings = Leaving.__new__(Leaving)
    vars(leaving).update(vars(holdings))
    return leaving


class PadsDrafts(Manager):
    """Whoever is let in with one token to compute gets drafts beside it that nobody proposed, and that never hold."""

    padded: Mapping[int, int] = {}
    """By the number of an operation: how many; set by whoever follows a scheduler."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._count = 0

    def apply(self, operation: Operation) -> Answer:
        drafts = self.padded.get(self._count)
        self._count += 1
        if drafts is None or not isinstance(operation, Admit):
            return super().apply(operation)
        self.population[operation.request].drafts = [PADDING] * drafts
        answer = super().apply(operation)
        if not isinstance(answer, Granted):
            self.population[operation.request].drafts = []
        return answer


class CountsAdmitted(Manager):
    """A look-up counts if its request is let in behind it."""

    def apply(self, operation: Operation) -> Answer:
        before = self.cache.statistics
        answer = super().apply(operation)
        if isinstance(operation, LookUp) or (isinstance(operation, Admit) and not isinstance(answer, Granted)):
            self.cache.statistics = before
        return answer


class CachesAnswers(Manager):
    """Where there are drafts, the blocks that an answer fills are cached when it is taken."""

    def apply(self, operation: Operation) -> Answer:
        answer = super().apply(operation)
        if isinstance(operation, Sample) and self.settings.drafts_max:
            request = self.population[operation.request]
            if request.status is Status.RUNNING:
                self._register(request, request.tokens_computed, now=False)
        return answer


SCHEDULED: Mapping[str, type[Manager]] = {
    "look-ahead-at-once": LookAheadAtOnce,
    "keeps-room": KeepsRoom,
    "pads-drafts": PadsDrafts,
    "counts-admitted": CountsAdmitted,
    "caches-answers": CachesAnswers,
}
"""By the name that the traits of a scheduler give."""


def scheduled(base: type[Manager], system: object) -> type[Manager]:
    """The reference ``base`` as the scheduler of a system asks it, if one drives it and asks otherwise."""
    decides: tuple[str, ...] = getattr(system, "decides", ())
    if not decides:
        return base
    told = {"kept": getattr(system, "kept", {}), "padded": getattr(system, "padded", {})}
    return type("Scheduled", (*map(SCHEDULED.__getitem__, decides), base), told)
