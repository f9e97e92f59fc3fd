"""A run of an engine as a value: what it is configured with, and what happens to it."""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import ge, instance_of, optional

from kvgate.levels.scheduler.operations import Operation
from kvreference.settings import Settings

_count = [instance_of(int), ge(1)]


@frozen
class Stage:
    """What a scheduler is configured with, beside its block manager."""

    running_max: int = field(default=8, validator=_count)
    """How many requests run at once."""
    asynchronous: bool = False
    """Whether steps are scheduled before the output of the step before is known."""
    in_flight_max: int = field(default=2, validator=_count)
    """How many steps are in flight at most, where they are asynchronous."""
    by_priority: bool = False
    """Whether requests are served by priority, and not in the order in which they came."""
    connector: bool = False
    """Whether other nodes offer, load and read blocks."""
    failed_loads_end: bool = False
    """Whether a request whose load failed ends with an error. If not, what is missing is computed."""
    long_prefill_tokens: int | None = field(default=None, validator=optional(_count))
    """How many tokens of one prompt a step computes at most; None: as many as all together."""


@frozen
class EngineCase:
    """Enough to run one run again."""

    settings: Settings
    stage: Stage
    operations: tuple[Operation, ...]
    model: str = ""
    """The model that it was drawn for."""
    preset: str = ""
    seed: str = ""
