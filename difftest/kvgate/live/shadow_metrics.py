"""What the shadows of a server saw while it was driven, by their counters at ``/metrics``.

These report every status file in the shadows' folder, also those of engines that ended long ago. So each engine is
counted from where it stood before, and one whose counters do not move did not follow.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from attrs import evolve, field, frozen

from kvgate.kernel.errors import SystemUnavailableError
from kvgate.live.sample import Sample

CALLS, CHECKED, DIFFERENCES, LOST = (
    f"kvgate_shadow_{name}_total" for name in ("calls", "judged", "differences", "lost")
)
SETTLED_SECONDS_MAX = 30.0
_POLL_SECONDS = 2.0
_FIELDS = {CALLS: "calls", CHECKED: "checked", DIFFERENCES: "differences", LOST: "lost"}

OF_A_WORKER = "-worker"
"""How the name of a model runner's shadow ends."""


@frozen
class Shadow:
    """What the shadow of one engine has seen, or the shadows of several."""

    checked: int = 0
    differences: int = 0
    lost: int = 0
    calls: int = 0

    @property
    def sentence(self) -> str:
        """All of it in one."""
        return f"{self.checked} calls checked, {self.differences} differences, {self.lost} calls lost"


@frozen
class Engine:
    """Whose shadow it is."""

    name: str
    mode: str
    index: str = ""
    """Which engine of the server it is, as vLLM's own metrics call it; nothing if its counters do not say."""


Shadows = Mapping[Engine, Shadow]


@frozen
class Followed:
    """What the shadows of a server saw since they were first met."""

    shadows: Shadows = field(factory=dict)
    """Of the engines whose counters moved."""
    has_settled: bool = True
    """Whether the counters stood still at the end."""
    were_met: bool = False
    """Whether there were any shadows' counters, moving or not."""

    @property
    def shadow(self) -> Shadow:
        """All together."""
        counts = ("checked", "differences", "lost", "calls")
        return Shadow(**{name: sum(getattr(each, name) for each in self.shadows.values()) for name in counts})

    @property
    def of_workers(self) -> Followed:
        """The shadows of model runners alone."""
        workers = {engine: each for engine, each in self.shadows.items() if engine.name.endswith(OF_A_WORKER)}
        return evolve(self, shadows=workers, were_met=bool(workers))

    @property
    def only_records(self) -> bool:
        """Whether nothing is checked, because all shadows only record."""
        return bool(self.shadows) and {"record"} == {engine.mode for engine in self.shadows}

    @property
    def sentence(self) -> str:
        """All of it in one."""
        return self.shadow.sentence

    def missing(self, engines: Collection[str]) -> str | None:
        """What is wrong if these engines served requests: each needs a shadow that moved, if any says whose it is."""
        known = {engine.index for engine in self.shadows if engine.index}
        missing = sorted(set(engines) - known) if known else []
        if not missing:
            return None
        return f"no shadow followed engine {', '.join(missing)}, which served requests meanwhile"

    @property
    def complaint(self) -> str | None:
        """What is wrong, if anything is; not to have followed all of it is."""
        if self.shadow.differences:
            return f"the shadow saw {self.shadow.differences} differences"
        if not self.shadows:
            return "the shadow's counters did not change while the server was driven: has it ended?"
        if not self.has_settled:
            return f"the shadow has not caught up, or others drive the server as well: {self.sentence}"
        if not self.shadow.checked or self.shadow.lost:
            return f"the shadow did not follow all of it: {self.sentence}"
        return None


def shadows_of(samples: Iterable[Sample]) -> dict[Engine, Shadow]:
    """The counters of every shadow that the server reports, by engine.

    Raises:
        SystemUnavailableError: one of them is not a number.
    """
    found: dict[Engine, Shadow] = {}
    for sample in samples:
        if sample.name in _FIELDS:
            # Before it had a label of its own, the name stood where vLLM has the engine's index.
            index = sample.labels.get("engine", "")
            name = sample.labels.get("shadow") or index
            engine = Engine(name, sample.labels.get("mode", ""), index if "shadow" in sample.labels else "")
            counted = {_FIELDS[sample.name]: _count(sample)}
            found[engine] = evolve(found.get(engine, Shadow()), **counted)
    return found


def _count(sample: Sample) -> int:
    if not math.isfinite(sample.value):
        raise SystemUnavailableError(f"/metrics: {sample.name} is {sample.value}, and no count: is that a shadow's?")
    return int(sample.value)


def since(before: Shadows, now: Shadows) -> dict[Engine, Shadow]:
    """By how much each engine's counters went up; those that did not are left out."""
    gone_up = {engine: _less(shadow, before.get(engine, Shadow())) for engine, shadow in now.items()}
    return {engine: shadow for engine, shadow in gone_up.items() if shadow != Shadow()}


def _less(now: Shadow, before: Shadow) -> Shadow:
    return Shadow(
        now.checked - before.checked,
        now.differences - before.differences,
        now.lost - before.lost,
        now.calls - before.calls,
    )


def followed(read: Callable[[], tuple[Sample, ...]], before: Shadows, seconds: float = SETTLED_SECONDS_MAX) -> Followed:
    """What the shadows saw since ``before``, once they have caught up: once something moved, and moves no more."""
    until, last = time.monotonic() + seconds, None
    while True:
        there = shadows_of(read())
        now = since(before, there)
        has_settled = bool(now) and now == last and _is_checked(now)
        if not there or has_settled or time.monotonic() >= until:
            return Followed(now, has_settled, bool(there))
        last = now
        time.sleep(_POLL_SECONDS)


def _is_checked(shadows: Shadows) -> bool:
    """Whether each shadow that is to check has begun."""
    return all(shadow.checked for engine, shadow in shadows.items() if engine.mode != "record")
