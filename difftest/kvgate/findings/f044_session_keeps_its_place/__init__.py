"""Finding 044: By priority, a session keeps its place in the queue when its next part comes."""

from __future__ import annotations

from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence


def _keeps_its_place(divergence: Divergence, engine: Engine) -> bool:
    """A session that continued is asked for before another request, which comes first by vLLM's own comparison."""
    if divergence.detector != "line" or divergence.difference.statement != "KV-LIVE-01":
        return False
    alive = engine.followed.population.alive
    named = {f"request {number}": number for number in alive}
    asked = named.get(divergence.difference.got)
    passed = named.get(divergence.difference.expected.removesuffix(" is asked for first"))
    if asked is None or passed is None or asked not in engine.sessions.open or alive[asked].parts < 2:
        return False
    return bool(engine.followed.request(passed) < engine.followed.request(asked))


FINDING = Finding(
    id="044-session-keeps-its-place",
    rank=44,
    statement="KV-LIVE-01",
    condition="a session that continues, and requests that are served by priority",
    on=lambda stage: stage.by_priority,
    goes_on=True,
    explains_engine=_keeps_its_place,
)
