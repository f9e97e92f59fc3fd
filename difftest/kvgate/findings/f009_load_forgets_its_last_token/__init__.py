"""Finding 009: After a whole prompt was loaded, its last token is computed without what it reads."""

from __future__ import annotations

from attrs import evolve

from kvgate.findings.finding import Finding
from kvgate.findings.shared_faults import ChangesSpan
from kvreference.answers import Granted, Hit, Refused
from kvreference.holdings import Span
from kvreference.population import Request


class LoadForgetsItsLastToken(ChangesSpan):
    """What is loaded counts as computed, though of a whole request the last token is computed again."""

    _end_tokens = 0

    def _admit_with_hit(
        self, request: Request, budget_tokens: int, hit: Hit, provided: int, later: bool, lookahead_tokens: int
    ) -> Granted | Refused:
        self._end_tokens = request.tokens_computed + hit.tokens + provided
        return super()._admit_with_hit(request, budget_tokens, hit, provided, later, lookahead_tokens)

    def _fits(self, request: Request, hit: Hit, computed: int) -> bool:
        return super()._fits(request, hit, max(computed, self._end_tokens))

    def _changed(self, span: Span) -> Span:
        return evolve(span, computed=span.provided, tokens=0) if span.provided > span.computed else span


FINDING = Finding(
    id="009-load-forgets-its-last-token",
    rank=10,
    fault=LoadForgetsItsLastToken,
)
