"""Finding 082: vLLM-Ascend 0.23.0's scheduler of profiled chunks ends the engine when it must preempt."""

from __future__ import annotations

from kvgate.findings.finding import Engine, Finding
from kvgate.kernel.difference import Divergence

UNSET = "'ProfilingChunkScheduler' object has no attribute '_disable_preemption'"
"""What is raised: it asks itself for what another scheduler sets."""


def _is_raised(divergence: Divergence, _engine: Engine) -> bool:
    difference = divergence.difference
    return difference.statement == "KV-SYS-01" and UNSET in difference.got


FINDING = Finding(
    id="082-preemption-ends-the-engine",
    rank=82,
    statement="KV-SYS-01",
    condition="vLLM-Ascend's scheduler of profiled chunks, and a step for which blocks are short",
    on=lambda _stage: True,
    explains_engine=_is_raised,
    live=False,
)
