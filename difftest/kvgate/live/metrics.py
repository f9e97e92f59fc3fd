"""What a server's own counters say when it has been exercised: that the cache was used, and that nothing is held."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from attrs import frozen

HITS, QUERIES = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
USED = "vllm:kv_cache_usage_perc"
JUDGED, DIFFERENCES, LOST = (f"kvgate_shadow_{name}_total" for name in ("judged", "differences", "lost"))
QUIET_SECONDS_MAX = 20.0
SHADOW_SECONDS_MAX = 30.0


@frozen
class Shadow:
    """What the shadows of a server have seen."""

    judged: int
    differences: int
    lost: int

    @property
    def sentence(self) -> str:
        """All of it in one."""
        return f"{self.judged} calls judged, {self.differences} differences, {self.lost} calls lost"


def shadow_of(samples: Mapping[str, float]) -> Shadow | None:
    """The shadow's verdict, if the server has one."""
    if JUDGED not in samples:
        return None
    return Shadow(*(int(samples.get(name, 0)) for name in (JUDGED, DIFFERENCES, LOST)))


def held_at_rest(read: Callable[[], Mapping[str, float]], seconds: float = QUIET_SECONDS_MAX) -> str | None:
    """What is still running, waiting or held although nobody asks any more; None if nothing is.

    Metrics lag behind, so they are read again for up to ``seconds``.
    """
    until = time.monotonic() + seconds
    while True:
        samples = read()
        held = [f"{name} is {samples[name]:g}" for name in (RUNNING, WAITING, USED) if samples.get(name)]
        if not held:
            return None
        if time.monotonic() >= until:
            return ", ".join(held)
        time.sleep(0.5)


def settled_shadow(read: Callable[[], Mapping[str, float]], seconds: float = SHADOW_SECONDS_MAX) -> Shadow | None:
    """The shadow's verdict once it has caught up: when it has judged something, and judges no more."""
    until, before = time.monotonic() + seconds, None
    while True:
        now = shadow_of(read())
        if now is None or (now == before and now.judged) or time.monotonic() >= until:
            return now
        before = now
        time.sleep(2.0)
