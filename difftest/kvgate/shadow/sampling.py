"""Sampling: what part of an engine's life is observed.

A request cannot be left out by itself: what it takes and gives back decides what the others get. So what is left out is
time. In a period everything is observed, and between periods nothing; a period begins with the whole state. What was
cached between periods cannot be checked: hits on it are counted as not checked.
"""

from __future__ import annotations


class Sampling:
    """Which steps are observed: ``share`` of them, in periods of ``period_steps``."""

    def __init__(self, share: float = 1.0, period_steps: int = 2000) -> None:
        self.period_steps = period_steps
        self.cycle_steps = max(period_steps, round(period_steps / share))
        self._is_stopped = False

    def is_sampled(self, step: int) -> bool:
        """Whether a step, from 1 on, is observed."""
        return not self._is_stopped and (step - 1) % self.cycle_steps < self.period_steps

    def stop(self) -> None:
        """From now on no step is observed."""
        self._is_stopped = True
