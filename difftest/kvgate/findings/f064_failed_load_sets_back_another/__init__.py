"""Finding 064: A failed load ends, or sets back, a request that was given a block of it later."""

from __future__ import annotations

import re

from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence

_ENDED = "the requests that end since a load failed"
_BOOKS = re.compile(r"request (\d+) \(tokens computed, tokens, whether it runs\)")
_ANSWERED = re.compile(r"request (\d+), answered (\d+) \(tokens, whether it has ended\)")
_NUMBER = re.compile(r"\d+")


def _is_another(divergence: Divergence, engine: Engine) -> bool:
    """A request ends or is set back that has a block of the failed load, and was given it after the load's step."""
    found = divergence.difference
    if (divergence.detector, found.statement) != ("scheduler", "KV-SYS-02"):
        return False
    if found.subject == _ENDED:
        expected, got = ({*map(int, _NUMBER.findall(said))} for said in (found.expected, found.got))
        return expected < got and got - expected <= engine.reusing.keys()
    answered, books = _ANSWERED.fullmatch(found.subject), _BOOKS.fullmatch(found.subject)
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
