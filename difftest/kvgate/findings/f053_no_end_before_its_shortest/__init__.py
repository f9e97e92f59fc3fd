"""Finding 053: A request that must have more answers than there is room for never ends."""

from __future__ import annotations

import re

from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence


def _must_have_more(divergence: Divergence, engine: Engine) -> bool:
    """A request is as long as it may become, lacks answers that it must have, and does not end."""
    difference, tokens_max = divergence.difference, engine.settings.tokens_max
    named = re.match(r"request (\d+), answered", difference.subject)
    ends = f"({tokens_max}, True)", f"({tokens_max}, False)"
    if divergence.detector != "scheduler" or named is None or (difference.expected, difference.got) != ends:
        return False
    number = int(named[1])
    return bool(engine.followed.request(number).num_output_tokens < engine.answers_min.get(number, 0))


FINDING = Finding(
    id="053-no-end-before-its-shortest",
    rank=53,
    statement="KV-SYS-02",
    condition="a request that becomes as long as a request may, before it has all the answers that it must have",
    on=lambda _stage: True,
    explains_engine=_must_have_more,
)
