"""The ledger of one simulation: what happened to each request, and to the pool, until it is a result."""

from __future__ import annotations

import time
from collections.abc import Callable

from attrs import define, field

from kvgate.simulation.arm import Setting
from kvgate.simulation.clients import Sending
from kvgate.simulation.result import Counters, Result, Served, Soundness, Usage

USAGE_MAX = 400
"""How many steps of the pool's use are kept."""


@define
class Entry:
    """One request so far. Counts are in tokens by default."""

    sending: Sending
    hit: int | None = None
    hit_with_tier: int | None = None
    """The same, had it been served with the ideal tier; None where there is none."""
    computed: int = 0
    copied: int = 0
    preemptions: int = 0
    look_ups: int = 0
    ended: bool = False

    def served(self) -> Served:
        """The result of it."""
        sending = self.sending
        return Served(
            sending.number,
            sending.session,
            sending.turn,
            sending.counted,
            sending.asked.prompt_tokens,
            sending.asked.answers.length,
            self.hit or 0,
            self.computed,
            self.copied,
            self.preemptions,
            self.look_ups,
            self.hit_with_tier,
        )


class UsageSamples:
    """The pool's use, at evenly spread steps: when there are too many, every other one is dropped."""

    def __init__(self) -> None:
        self.kept: list[Usage] = []
        self._every = 1

    def due(self, step: int) -> bool:
        """Whether this step is kept."""
        return step % self._every == 0

    def add(self, usage: Usage) -> None:
        """Keep one step."""
        self.kept.append(usage)
        if len(self.kept) > USAGE_MAX:
            self._every *= 2
            self.kept = [each for each in self.kept if each.step % self._every == 0]


@define
class Ledger:
    """What happened."""

    setting: Setting
    arm: str
    clock: Callable[[], float] = time.process_time
    entries: dict[int, Entry] = field(factory=dict)
    samples: UsageSamples = field(factory=UsageSamples)
    steps: int = 0
    evictions: int = 0
    system: str = ""
    """The system whose block manager serves, or is followed; none for the reference."""
    crash: str | None = None
    """Why the engine's process ended, if it did."""
    started: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.started = self.clock()

    def enter(self, sending: Sending) -> None:
        """A request was sent."""
        self.entries[sending.number] = Entry(sending)

    def admit(self, number: int, hit_tokens: int) -> None:
        """A request got blocks after a hit; the first time counts."""
        entry = self.entries[number]
        if entry.hit is None:
            entry.hit = hit_tokens

    def end(self, number: int) -> None:
        """A request was served to its end."""
        self.entries[number].ended = True

    def result(self, server: Counters, soundness: Soundness) -> Result:
        """What the run came to."""
        setting = self.setting
        return Result(
            self.arm,
            setting.workload.name,
            setting.serving.model,
            setting.policy.name,
            setting.serving.blocks,
            setting.seed,
            tuple(entry.served() for _number, entry in sorted(self.entries.items()) if entry.ended),
            server,
            soundness,
            self.steps,
            self.evictions,
            tuple(self.samples.kept),
            self.clock() - self.started,
            self.system,
            crash=self.crash,
        )
