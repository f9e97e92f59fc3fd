"""The switch: what a shadow is asked to do, read once from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from attrs import Attribute, field, fields, frozen
from attrs.validators import and_, ge, instance_of, le

from kvgate.kernel.errors import UsageError

VARIABLE = "KVGATE_SHADOW"
MEBIBYTE = 2**20
STALL_SECONDS = 10


class Mode(str, Enum):
    """What a shadow does with what it observes."""

    RECORD = "record"
    """It is written to disk."""
    CHECK = "check"
    """The reference follows in a sidecar of the engine."""
    STRICT = "strict"
    """The reference follows in the engine, and a difference is raised: for tests."""


def _bounded(least: int, most: int) -> Any:
    return and_(instance_of(int), ge(least), le(most))


@frozen
class Switch:
    """A validated configuration. Everything has a bound."""

    mode: Mode
    dir: Path = field(default=Path("kvgate-shadow"))
    """Where recordings, what was found and the status go."""
    max_bytes: int = field(default=1024 * MEBIBYTE, validator=_bounded(MEBIBYTE, 2**44))
    """How much an engine's recordings take on disk, with those of engines that have ended; the oldest go first. And how
    much differences may take, those of all engines together."""
    queue_bytes: int = field(default=64 * MEBIBYTE, validator=_bounded(MEBIBYTE // 16, 2**32))
    """How much may wait in the engine for the sidecar; the rest is dropped, and counted."""
    ring_bytes: int = field(default=64 * MEBIBYTE, validator=_bounded(MEBIBYTE // 16, 2**32))
    """How much is kept in memory for the story of a difference."""
    dumps: int = field(default=8, validator=_bounded(0, 1000))
    """How many differences are written to disk; more are counted."""
    sample: float = field(default=1.0)
    """The share of the engine's steps that is observed, in periods of ``period_steps``."""
    period_steps: int = field(default=2000, validator=_bounded(10, 10**9))
    checkpoint_calls: int = field(default=20_000, validator=_bounded(100, 10**9))
    """After so many calls the whole state is sent, if that does not take too large a share of the time."""

    @sample.validator
    def _is_share(self, _attribute: Attribute[float], sample: float) -> None:
        if not 0 < sample <= 1:
            raise ValueError(f"a share is more than 0 and at most 1, not {sample}")

    worker: int = field(default=0, validator=_bounded(0, 1))
    """Whether the block tables and slots of the model runner are compared too, which waits for the device each step."""
    stall_seconds: int = field(default=STALL_SECONDS, validator=_bounded(1, 10**6))
    """A request that makes no progress for so long stalls."""


def read(environment: Mapping[str, str] = os.environ) -> Switch | None:
    """What the environment asks for; None if it asks for nothing.

    Raises:
        UsageError: a variable has a value that it cannot have.
    """
    mode = environment.get(VARIABLE, "")
    if not mode:
        return None
    given: dict[str, Any] = {}
    for each in fields(Switch):
        name = variable_of(each.name)
        text = environment.get(name, "")
        if text:
            given[each.name] = _value(name, each, text)
    try:
        return Switch(**given)
    except ValueError as error:
        raise UsageError(f"{VARIABLE}_*: {_first_line(error)}") from error


def variable_of(name: str) -> str:
    """The variable that sets a field."""
    return VARIABLE if name == "mode" else f"{VARIABLE}_{name.upper()}"


def _value(name: str, attribute: Attribute[Any], text: str) -> object:
    if attribute.name == "mode":
        try:
            return Mode(text)
        except ValueError:
            raise UsageError(f"{name}={text!r:.40}: give one of {', '.join(mode.value for mode in Mode)}") from None
    if attribute.name == "dir":
        return Path(text)
    try:
        return float(text) if attribute.name == "sample" else int(text)
    except ValueError:
        raise UsageError(f"{name}={text!r:.40}: a number is needed") from None


def _first_line(error: ValueError) -> str:
    return str(error.args[0] if error.args else error).splitlines()[0]
