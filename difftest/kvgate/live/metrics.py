"""Checks a server's own counters after the exercises: that the cache was used, and that nothing is held."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from kvgate.live.sample import Sample, summed

HITS = "vllm:prefix_cache_hits_total"
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
USED = "vllm:kv_cache_usage_perc"
QUIET_SECONDS_MAX = 20.0


def held_at_rest(read: Callable[[], tuple[Sample, ...]], seconds: float = QUIET_SECONDS_MAX) -> str | None:
    """What is still running, waiting or held although no request is open; None if nothing is.

    Metrics lag behind, so they are read again for up to ``seconds``. A server that does not report what runs is not at
    rest for that.
    """
    until = time.monotonic() + seconds
    while True:
        sums = summed(read())
        held = _held(sums)
        if not held:
            return None
        if time.monotonic() >= until:
            return ", ".join(held)
        time.sleep(0.5)


def _held(sums: Mapping[str, float]) -> list[str]:
    if RUNNING not in sums:
        return [f"{RUNNING} is not reported"]
    return [f"{name} is {sums[name]:g}" for name in (RUNNING, WAITING, USED) if sums.get(name)]
