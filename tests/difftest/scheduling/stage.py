"""What the tests of engines share: small settings, requests, and how a run is made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvgate.findings import explain
from kvgate.kernel.difference import Divergence
from kvgate.levels.scheduler.engine import Engine
from kvgate.levels.scheduler.operations import Operation, Serve, Stage
from kvreference.geometry import Geometry, Group
from kvreference.operations import Arrive, Run
from kvreference.scheduler.operations import Reply, Step
from kvreference.settings import Settings

FULL = Geometry((Group("full", 16),))
HYBRID = Geometry((Group("full", 16), Group("sliding_window", 16, 32)))
_FAMILY_TOKENS = 1000
"""Prompts of different families share nothing."""


def full(blocks: int, **more: Any) -> Settings:
    """One group of full attention, blocks of 16 tokens."""
    return Settings(FULL, blocks=blocks, **{"tokens_max": 1024, "chunk_tokens": 512, **more})


def serve(number: int, tokens: int, answers: int = 4, family: int | None = None, **more: Any) -> Serve:
    """A request with a prompt of its own, or of a family that shares it."""
    first = (number if family is None else family) * _FAMILY_TOKENS
    return Serve(Arrive(number, (Run(first, tokens),)), answers, **more)


def steps(count: int) -> list[Step]:
    """Steps in which every request is answered with another token."""
    return [Step((Reply(token=500_000 + step),)) for step in range(count)]


def run(engine: Engine, operations: Iterable[Operation]) -> list[Divergence]:
    """All findings of a run and at rest."""
    for operation in operations:
        divergence = engine.perform(operation)
        if divergence is not None:
            return [divergence]
    return engine.close()


def undeclared(engine: Engine, operations: Iterable[Operation]) -> list[Divergence]:
    """The same, without what is declared of vLLM itself."""
    return [each for each in run(engine, operations) if explain(each, engine.lockstep) is None]


def found(settings: Settings, stage: Stage, operations: Iterable[Operation], **more: Any) -> tuple[str, str] | None:
    """The first undeclared difference in a run of vLLM's scheduler, and its detector; None if there are none."""
    divergences = undeclared(Engine(settings, stage, **more), operations)
    return (divergences[0].detector, divergences[0].difference.statement) if divergences else None


def keeps_rejected(original: Any, scheduler: Any, output: Any, answer: Any) -> Any:
    """Drafts that were rejected count as computed."""
    computed = {name: scheduler.requests[name].num_computed_tokens for name in output.num_scheduled_tokens}
    replied = original(scheduler, output, answer)
    for name, tokens in computed.items():
        if name in scheduler.requests:
            scheduler.requests[name].num_computed_tokens = tokens
    return replied
