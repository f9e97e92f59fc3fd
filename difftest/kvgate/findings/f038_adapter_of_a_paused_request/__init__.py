"""Finding 038: The adapter of a request that runs and is passed over in a step is not counted, and too many run."""

from __future__ import annotations

from traceback import walk_tb

from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence
from kvreference.population import Status


def _too_many_run(divergence: Divergence, engine: Engine) -> bool:
    """The requests that run have more adapters than a step may, and vLLM asserts that those it schedules have not."""
    difference, most = divergence.difference, engine.stage.adapters_max or 0
    if (difference.statement, difference.subject) != ("KV-SYS-01", AssertionError.__name__) or not most:
        return False
    requests = engine.followed.population.alive.values()
    adapters = {each.keys.adapter for each in requests if each.status is Status.RUNNING and each.keys.lora is not None}
    return most < min(len(adapters), _adapters_asserted(engine.lockstep.raised))


def _adapters_asserted(raised: BaseException | None) -> int:
    """How many adapters the running requests that a step schedules have, if ``schedule`` itself raised."""
    if raised is None:
        return 0
    *_, (frame, _line) = walk_tb(raised.__traceback__)
    return len(frame.f_locals.get("scheduled_loras", ())) if frame.f_code.co_name == "schedule" else 0


FINDING = Finding(
    id="038-adapter-of-a-paused-request",
    rank=38,
    statement="KV-SYS-01",
    condition="adapters, and a request that runs and is passed over in a step",
    on=lambda stage: stage.adapters_max is not None,
    explains_engine=_too_many_run,
)
