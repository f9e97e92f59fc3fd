"""Finding 083: A load is padded with drafts past what a step may compute of one prompt, and the engine ends."""

from __future__ import annotations

from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence


def _is_raised(divergence: Divergence, engine: Engine) -> bool:
    """An assertion without a message, where a step may compute less of a prompt than a token and all drafts."""
    difference, most_tokens = divergence.difference, engine.stage.long_prefill_tokens
    raised = difference.statement == "KV-SYS-01" and difference.got.strip() == "AssertionError:"
    return raised and most_tokens is not None and most_tokens < 1 + engine.settings.drafts_max


FINDING = Finding(
    id="083-padding-longer-than-a-chunk",
    rank=83,
    statement="KV-SYS-01",
    condition="a connector, and a limit on what a step computes of one prompt that is less than a token and all drafts",
    where=lambda settings: settings.drafts_max > 0,
    on=lambda stage: stage.connector and stage.long_prefill_tokens is not None,
    explains_engine=_is_raised,
)
