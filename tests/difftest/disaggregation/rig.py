"""What the tests of two nodes share: small settings, clients, and how a run is made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvgate.findings import explain_pair
from kvgate.kernel.difference import Divergence
from kvgate.levels.pair.operations import Ask, Node, Operation, PairStage, StepOn
from kvgate.levels.pair.pair import Pair
from kvreference.geometry import Geometry, Group
from kvreference.operations import Arrive, Run
from kvreference.scheduler.operations import Reply
from kvreference.settings import Settings

FULL = Geometry((Group("full", 16),))
DRAFTING = Geometry((Group("full", 16, lookahead=True),))
HYBRID = Geometry((Group("full", 16), Group("sliding_window", 16, 32)))
_FAMILY_TOKENS = 1000
P, D = StepOn(Node.PREFILL), StepOn(Node.DECODE)


def settings(geometry: Geometry = FULL, blocks: int = 40, **more: Any) -> Settings:
    """Settings of the decode node."""
    return Settings(geometry, blocks=blocks, **{"tokens_max": 256, "chunk_tokens": 128, **more})


def ask(number: int, tokens: int, answers: int = 3, family: int | None = None) -> Ask:
    """A client with a prompt of its own, or of a family that shares it."""
    first = (number if family is None else family) * _FAMILY_TOKENS
    return Ask(Arrive(number, (Run(first, tokens),)), answers)


def steps(node: Node, count: int) -> list[StepOn]:
    """Steps in which every request is answered with another token."""
    return [StepOn(node, (Reply(token=500_000 + step),)) for step in range(count)]


def pair(of: Settings | None = None, prefill_blocks: int = 40, with_reference: bool = True, **stages: Any) -> Pair:
    """Two nodes."""
    stage = PairStage(prefill_blocks, 128, **stages)
    return Pair(of or settings(), stage, with_reference=with_reference)


def run(nodes: Pair, operations: Iterable[Operation]) -> list[Divergence]:
    """All findings of a run and at rest."""
    for operation in operations:
        divergence = nodes.perform(operation)
        if divergence is not None:
            return [divergence]
    return nodes.close()


def undeclared(nodes: Pair, operations: Iterable[Operation]) -> list[Divergence]:
    """The same, without what is declared of vLLM itself."""
    return [each for each in run(nodes, operations) if explain_pair(each, nodes) is None]
