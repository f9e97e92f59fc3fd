"""Checks a server's own counters after the exercises: that the cache was used, and that nothing is held."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from kvgate.kernel.errors import SystemUnavailableError
from kvgate.kernel.text import counted
from kvgate.live.sample import Sample, summed

HITS = "vllm:prefix_cache_hits_total"
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
USED = "vllm:kv_cache_usage_perc"
PREEMPTIONS = "vllm:num_preemptions_total"
CACHE = "vllm:cache_config_info"
GENERATED = "vllm:generation_tokens_total"
STALLED = "kvgate_shadow_stalled"
QUIET_SECONDS_MAX = 20.0


def held_at_rest(read: Callable[[], tuple[Sample, ...]], seconds: float = QUIET_SECONDS_MAX) -> str | None:
    """What is still running, waiting or held although no request is open; None if nothing is.

    Metrics lag, so they are read again for up to ``seconds``. A server that does not report what runs is not at rest
    for that.
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


def cache_tokens(samples: Iterable[Sample]) -> int | None:
    """For how many tokens of one group the server has blocks; None if it does not report it."""
    for sample in samples:
        size, blocks = (sample.labels.get(name, "") for name in ("block_size", "num_gpu_blocks"))
        if sample.name == CACHE and size.isdecimal() and blocks.isdecimal():
            return int(size) * int(blocks)
    return None


def generated(samples: Iterable[Sample]) -> dict[str, float]:
    """By the label of each engine, how many tokens it has generated."""
    return {sample.labels.get("engine", ""): sample.value for sample in samples if sample.name == GENERATED}


def what_hangs(read: Callable[[], tuple[Sample, ...]], unanswered: int) -> str:
    """What is known of requests that were not answered in time; nothing if all were."""
    if not unanswered:
        return ""
    try:
        sums = summed(read())
    except SystemUnavailableError as error:
        return f"; {counted(unanswered, 'request')} not answered, and no metrics: {error}"
    shown = [f"{name} is {sums[name]:g}" for name in (RUNNING, WAITING, STALLED) if name in sums]
    more = "; kvgate status FOLDER says what each waits for" if sums.get(STALLED) else ""
    return f"; {counted(unanswered, 'request')} not answered: {', '.join(shown) or 'the server has no metrics'}{more}"
