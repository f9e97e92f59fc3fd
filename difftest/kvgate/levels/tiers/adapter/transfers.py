"""The transfers of one tier, as a model: ghost memory copies what the slots hold, when a case says so."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from kvgate.levels.tiers.memory import Copy, Job, Number, TierMemory

BYTES_PER_BLOCK = 4096
"""Of all layers together; a page of the host."""


class Transfers:
    """What copies the bytes of one tier, in place of the device's copies."""

    def __init__(self, memory: TierMemory, tier: int) -> None:
        self.memory = memory
        self.tier = tier

    def begin(
        self,
        number: int,
        loads: bool,
        request: str,
        copies: Sequence[Copy],
        keys: Mapping[int, tuple[bytes, int]],
        part: int = 0,
        reset_at: int | None = None,
        left: Sequence[int] = (),
    ) -> Number:
        """A job begins; of several that end together, each is a ``part``."""
        job = Job((self.tier, number, part), loads, request, copies, keys, reset_at, left)
        self.memory.begin(job)
        return job.number

    def is_under_way(self, number: Number) -> bool:
        """Whether a job has not ended yet."""
        return number in self.memory.jobs

    def end_up_to(self, number: Number) -> None:
        """A job ends, and before it those of its direction that began before it.

        If it never does, the worker's half waits for it, and the engine with it. The model of that is an engine that
        performs nothing more until the end of the case, where such jobs end.
        """
        if number in self.memory.lost:
            self.memory.waited_for = self.memory.waited_for or self.memory.jobs[number].words
            self.memory.lost.discard(number)
        if number in self.memory.jobs:
            for earlier in self.memory.under_way(self.memory.jobs[number].loads, self.tier):
                self.memory.end(earlier)
                if earlier == number:
                    break


class Half(Protocol):
    """Both halves of a connector of one kind, with a model of the copies alone."""

    def patched(self) -> Sequence[tuple[str, Any]]:
        """What is replaced while the worker's half runs: by name, and what stands there instead."""
        ...

    def shown(self, metadata: Any) -> None:
        """The worker is given the connector's part of a step."""
        ...

    def jobs_of(self, requests: Collection[str] | None) -> set[Number]:
        """The jobs of requests that the scheduler half knows; of all if none are named."""
        ...

    def remaining(self) -> Mapping[str, int]:
        """What the scheduler half holds of jobs, requests and chunks."""
        ...


def sizes_of(half: object) -> dict[str, int]:
    """How much is in each container that an object keeps for itself, of those that are not empty."""
    kept = {name: each for name, each in vars(half).items() if name.startswith("_")}
    return {name: len(each) for name, each in kept.items() if isinstance(each, (dict, set, list)) and each}
