"""A counterexample of z3 as a trace of operations, run on the refuted design and on the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from kvreference.settings import Settings
from kvspec.obligation import Obligation


@frozen
class Replay:
    """The outcome of one trace."""

    settings: Settings
    operations: tuple[Any, ...]
    design: str
    """The result of the refuted design, in one sentence."""
    sound: str
    """The same of the reference."""
    design_fails: bool
    """Whether the design did what must not be."""
    sound_fails: bool
    """The same of the reference."""

    @property
    def shows_it(self) -> bool:
        """Whether the trace shows what is wrong with the design, and nothing wrong with the reference."""
        return self.design_fails and not self.sound_fails


@frozen
class Refuted:
    """A design that does not work, and why z3 says so."""

    name: str
    statement: str
    """The guarantee that it violates."""
    story: str
    """What the design does, and the consequence, in one sentence."""
    obligation: Obligation
    """The claim that the design would have to satisfy: z3 refutes it."""
    replay: Callable[[Mapping[str, Any]], Replay]
    """The counterexample, run."""
