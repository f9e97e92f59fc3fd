"""Finding 002: The admission gate lets in requests with a long hit for which there is no room."""

from __future__ import annotations

from typing import Any

from kvgate.findings.explaining import live_with
from kvgate.findings.finding import Finding, LiveReference
from kvreference.answers import Hit
from kvreference.manager import Manager
from kvreference.population import Request


class GateSubtractsSkippedBlocks(Manager):
    """The gate takes the whole table off what a request holds at once at most, of which the dead blocks are no part."""

    def _fits(self, request: Request, hit: Hit, computed: int) -> bool:
        if any(group.keeps_states for group in self.geometry.groups):
            return super()._fits(request, hit, computed)
        sources = {partial.source for partial in hit.partials}
        needed, held = self.pool.count_free(sources), sources
        known = self.tables.get(request.number)
        for index, (group, blocks) in enumerate(zip(self.geometry.groups, hit.blocks, strict=True)):
            peak = min(
                group.blocks_occupied(len(request.tokens)),
                group.blocks_held_at_most(self.settings.chunk_tokens, self.settings.tokens_max),
            )
            dead = group.blocks_dead(computed)
            entries = max(dead, len(blocks)) if known is None else len(known[index].blocks)
            needed += max(0, peak - entries) + self.pool.count_free(blocks[dead:])
            held.update(blocks[dead:])
        return self.pool.make_room(needed, held)


def _answers_live(live: LiveReference, call: Any, hit: Hit) -> bool:
    answers = live_with(GateSubtractsSkippedBlocks, live).fits(call, hit)
    return bool(answers == call.fits)


FINDING = Finding(
    id="002-gate-subtracts-skipped-blocks",
    rank=3,
    fault=GateSubtractsSkippedBlocks,
    together_with=(
        "008-external-tokens-take-other-hits",
        "009-load-forgets-its-last-token",
        "012-prompt-tail-that-serves-nobody",
    ),
    explains_gate=_answers_live,
)
