"""A run of two nodes as a value: what both are configured with, and what happens to them."""

from __future__ import annotations

from attrs import evolve, field, frozen
from attrs.validators import ge, instance_of

from kvgate.levels.pair.operations import Operation
from kvgate.levels.scheduler.case import Stage
from kvreference.settings import Settings


def _connected() -> Stage:
    return Stage(connector=True)


@frozen
class PairStage:
    """What tells the two nodes apart, and what their schedulers are configured with."""

    prefill_blocks: int = field(validator=[instance_of(int), ge(2)])
    """How many blocks the prefill node's pool has, the null block among them. The decode node's is in the settings."""
    prefill_chunk_tokens: int = field(default=64, validator=[instance_of(int), ge(1)])
    """The most tokens that a step of the prefill node computes."""
    prefill: Stage = field(factory=_connected)
    decode: Stage = field(factory=_connected)

    def of_prefill(self, settings: Settings) -> Settings:
        """The prefill node's settings, where ``settings`` are those of the decode node."""
        return evolve(settings, blocks=self.prefill_blocks, chunk_tokens=self.prefill_chunk_tokens)


@frozen
class PairCase:
    """Enough to run one run again."""

    settings: Settings
    """Those of the decode node; what the prefill node has otherwise, the stage says."""
    stage: PairStage
    operations: tuple[Operation, ...]
    model: str = ""
    """The model that it was drawn for."""
    preset: str = ""
    seed: str = ""
