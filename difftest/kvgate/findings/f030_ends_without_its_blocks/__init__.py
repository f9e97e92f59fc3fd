"""Finding 030: A prompt preempted with its last answer in flight ends without blocks that another node is to read."""

from __future__ import annotations

import re

from kvgate.findings.engine_state import blocks_held, is_of_the_scheduler
from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence
from kvreference.population import Status

_FINISHED_FOR_READER = re.compile(r"Finish\(request=(\d+), sends=True\)")


def _finished_while_preempted(divergence: Divergence, engine: Engine) -> bool:
    """A request preempted with its last answer in flight is finished by it, and another node is to read its blocks."""
    finished = _FINISHED_FOR_READER.fullmatch(divergence.difference.got)
    if not is_of_the_scheduler(divergence) or finished is None:
        return False
    request = engine.followed.population.alive.get(int(finished[1]))
    if request is None or not (engine.stage.asynchronous and engine.stage.connector):
        return False
    preempted = request.status is Status.WAITING and request.preemptions > 0 and request.tokens_computed == 0
    answered = len(request.tokens) > request.prompt_tokens
    return preempted and answered and not blocks_held(engine, request.number)


FINDING = Finding(
    id="030-ends-without-its-blocks",
    rank=30,
    statement="KV-SYS-02",
    condition="asynchronous steps, a connector, and a request preempted with its last answer in flight",
    on=lambda stage: stage.asynchronous and stage.connector,
    explains_engine=_finished_while_preempted,
)
