"""Finding 083: A load is padded with drafts past what a step may compute of one prompt, and the engine ends."""

from __future__ import annotations

import traceback

from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence

ASKED = "num_spec_tokens"
"""What the assertion asks, and no other of a scheduler's steps: how many drafts there are."""


def _is_raised(divergence: Divergence, engine: Engine) -> bool:
    """An assertion about drafts, where a step may compute less of a prompt than a token and all drafts."""
    raised, most_tokens = engine.lockstep.raised, engine.stage.long_prefill_tokens
    if divergence.difference.statement != "KV-SYS-01" or not isinstance(raised, AssertionError):
        return False
    place = traceback.extract_tb(raised.__traceback__)[-1]
    is_about_drafts = place.name == "schedule" and ASKED in (place.line or "")
    return is_about_drafts and most_tokens is not None and most_tokens < 1 + engine.settings.drafts_max


FINDING = Finding(
    id="083-padding-longer-than-a-chunk",
    rank=83,
    statement="KV-SYS-01",
    condition="a connector, and a limit on what a step computes of one prompt that is less than a token and all drafts",
    where=lambda settings: settings.drafts_max > 0,
    on=lambda stage: stage.connector and stage.long_prefill_tokens is not None,
    explains_engine=_is_raised,
)
