"""Finding 064: A failed load ends, or sets back, a request that was given a block of it later."""

from __future__ import annotations

import re

from kvgate.findings.engine_state import is_of_the_scheduler
from kvgate.findings.failed_load import COMPUTED, ENDED, others_end
from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence

_ANSWERED = re.compile(r"request (\d+), answered (\d+) \(tokens, whether it has ended\)")


def _is_another(divergence: Divergence, engine: Engine) -> bool:
    """A request ends or is set back that has a block of the failed load, and was given it after the load's step."""
    found = divergence.difference
    if not is_of_the_scheduler(divergence):
        return False
    if found.subject == ENDED:
        return others_end(found, engine.reusing)
    answered, books = _ANSWERED.fullmatch(found.subject), COMPUTED.fullmatch(found.subject)
    if answered and int(answered[1]) in engine.reusing:
        # None of its answers is taken.
        due, taken = (int(said[1:].partition(",")[0]) for said in (found.expected, found.got))
        return 0 < due - taken <= int(answered[2]) and found.got == str((taken, engine.stage.failed_loads_end))
    if books and int(books[1]) in engine.reusing:
        first, *rest = found.expected[1:-1].split(", ")
        computed = engine.reusing[int(books[1])]
        return computed < int(first) and found.got == f"({', '.join((str(computed), *rest))})"
    return False


FINDING = Finding(
    id="064-failed-load-sets-back-another",
    rank=64,
    statement="KV-SYS-02",
    condition="asynchronous steps, a connector, and a failed block that another request was given meanwhile",
    on=lambda stage: stage.asynchronous and stage.connector,
    explains_engine=_is_another,
)
