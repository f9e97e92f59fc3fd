"""One arm of benchmarks/plugin.py: vLLM's block manager in a process of its own, with the plug-in or without.

It reads one job a line from standard input, and answers each with what it took. What the environment switches on is put
in place as vLLM would, before the manager is built; without ``--plug-in`` the plug-in is not even imported.

    python benchmarks/plugin_arm.py --model gpt-oss-hybrid [--plug-in]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from kvgate.adapters.groups import group_specs
from kvgate.kernel.models import load

if TYPE_CHECKING:
    from vllm.v1.request import Request

CHUNK_TOKENS = 8192
TOKENS_MAX = 131_072 + CHUNK_TOKENS
DECODE_STEPS = 64
"""How many tokens a request decodes before it ends."""
LOOK_UPS_TOKENS = 1_000_000
"""Look-ups are timed many at once: of prompts of so many tokens together."""
TABLE = ("get_one_block", "insert", "pop")
QUEUE = ("popleft", "popleft_n", "append", "append_n", "prepend_n", "remove")


class Manager:
    """vLLM's block manager, and the part of its scheduler that calls it."""

    def __init__(self, model: str) -> None:
        from vllm.sampling_params import SamplingParams
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_manager import KVCacheManager
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.kv_cache_interface import KVCacheConfig
        from vllm.v1.request import Request

        geometry = load(model).geometry
        held = sum(group.blocks_occupied(TOKENS_MAX) for group in geometry.groups)
        init_none_hash(sha256)
        self.kv = KVCacheManager(
            KVCacheConfig(num_blocks=2 * held, kv_cache_tensors=[], kv_cache_groups=group_specs(geometry)),
            max_model_len=TOKENS_MAX,
            hash_block_size=geometry.grain_tokens,
            max_num_batched_tokens=CHUNK_TOKENS,
            enable_caching=True,
            use_eagle=any(group.lookahead for group in geometry.groups),
        )
        self.hashed = 0
        self._windows = {index for index, group in enumerate(geometry.groups) if group.window_tokens is not None}

        def hashed(value: Any) -> bytes:
            self.hashed += 1
            return sha256(value)

        hasher = get_request_block_hasher(geometry.grain_tokens, hashed)
        sampling = SamplingParams(max_tokens=1)

        def new(name: str, tokens: list[int]) -> Request:
            return Request(name, tokens, sampling, None, block_hasher=hasher)

        self._new = new
        self._names = count()
        # A step of the scheduler takes the copies of partial hits, and nothing where they are off.
        hits = getattr(self.kv.coordinator, "partial", None)
        self._dispatch = (lambda: None) if hits is None else hits.dispatch

    def request(self, tokens: int, first: int | None = None, before: Sequence[int] = ()) -> Request:
        """A new request; without a ``first`` token its prompt is unique after the tokens ``before``."""
        name = next(self._names)
        own = [10_000_000 + name if first is None else first, *range(1, tokens)]
        return self._new(str(name), [*before, *own])

    def serve(self, request: Request) -> None:
        """Compute the prompt, and end."""
        self.prefill(request)
        self.kv.free(request)

    def evict_windows(self) -> None:
        """Forget what is cached in windows."""
        from vllm.v1.core.kv_cache_utils import get_group_id

        cached = [(block.block_id, key) for block in self.kv.block_pool.blocks if (key := block.block_hash) is not None]
        self.kv.evict_blocks({block_id for block_id, key in cached if get_group_id(key) in self._windows})

    def prefill(self, request: Request) -> None:
        """Look up, admit, and compute the prompt in chunks."""
        blocks, hit = self.kv.get_computed_blocks(request)
        taken = min(CHUNK_TOKENS, request.num_tokens - hit)
        assert self.kv.can_fit_full_sequence(request, hit, blocks)
        assert self.kv.allocate_slots(request, taken, hit, blocks)
        self._dispatch()
        request.num_computed_tokens = hit + taken
        while request.num_computed_tokens < request.num_tokens:
            taken = min(CHUNK_TOKENS, request.num_tokens - request.num_computed_tokens)
            assert self.kv.allocate_slots(request, taken)
            self._dispatch()
            request.num_computed_tokens += taken

    def decode(self, request: Request, steps: int) -> None:
        """So many tokens, one a step."""
        for step in range(steps):
            request.append_output_token_ids(step)
            assert self.kv.allocate_slots(request, 1)
            self._dispatch()
            request.num_computed_tokens += 1


Meter = Callable[[], float]
"""Process time in seconds, or how many calls there were."""
Load = Iterator[tuple[float, int]]
"""Endless: what the meter showed for some units of work, and how many units they were."""


def requests(manager: Manager, tokens: int, meter: Meter) -> Load:
    """Whole requests, each with a prompt of its own: admit, prefill, decode, free. Per request."""
    return _served(manager, meter, lambda: manager.request(tokens))


def replays(manager: Manager, tokens: int, meter: Meter) -> Load:
    """Whole requests with the prompt of the one before. A partial hit on it is copied."""
    return _served(manager, meter, lambda: manager.request(tokens, first=0))


def shared_prompts(manager: Manager, tokens: int, meter: Meter) -> Load:
    """Whole requests that share the first half of their prompts. Where they part is a junction."""
    shared = list(range(tokens // 2))
    return _served(manager, meter, lambda: manager.request(tokens - len(shared), before=shared))


def _served(manager: Manager, meter: Meter, new: Callable[[], Request]) -> Load:
    while True:
        request = new()
        started = meter()
        manager.prefill(request)
        manager.decode(request, DECODE_STEPS)
        manager.kv.free(request)
        yield meter() - started, 1


def decode_steps(manager: Manager, tokens: int, meter: Meter) -> Load:
    """Decode steps after a prompt of so many tokens. Per step; the context grows by what is decoded."""
    while True:
        request = manager.request(tokens)
        manager.prefill(request)
        started = meter()
        manager.decode(request, 1024)
        spent = meter() - started
        manager.kv.free(request)
        yield spent, 1024


def hits(manager: Manager, tokens: int, meter: Meter) -> Load:
    """Look-ups of a prompt that has just been computed."""
    manager.serve(manager.request(tokens, first=0))
    yield from _look_ups(manager, manager.request(tokens, first=0), meter, hit=True)


def misses(manager: Manager, tokens: int, meter: Meter) -> Load:
    """Look-ups of a prompt of which nothing is cached."""
    yield from _look_ups(manager, manager.request(tokens, first=-1), meter, hit=False)


def long_misses(manager: Manager, tokens: int, meter: Meter) -> Load:
    """Look-ups of a prompt of which full attention has everything, and windows have nothing any more."""
    manager.serve(manager.request(tokens, first=0))
    manager.evict_windows()
    yield from _look_ups(manager, manager.request(tokens, first=0), meter, hit=False)


def _look_ups(manager: Manager, request: Request, meter: Meter, hit: bool) -> Load:
    assert hit == (manager.kv.get_computed_blocks(request)[1] > 0)
    times = max(1, LOOK_UPS_TOKENS // request.num_tokens)
    while True:
        started = meter()
        for _ in range(times):
            manager.kv.get_computed_blocks(request)
        yield meter() - started, times


LOADS: dict[str, Callable[[Manager, int, Meter], Load]] = {
    "request": requests,
    "replayed request": replays,
    "request with a shared prompt": shared_prompts,
    "decode step": decode_steps,
    "look-up, hit": hits,
    "look-up, miss": misses,
    "look-up, long miss": long_misses,
}


def timed(manager: Manager, name: str, tokens: int, seconds: float) -> float:
    """Seconds of process time per unit of a load, over at least ``seconds``."""
    load_units = LOADS[name](manager, tokens, time.process_time)
    next(load_units)
    spent, units = 0.0, 0
    while spent < seconds:
        more, done = next(load_units)
        spent, units = spent + more, units + done
    return spent / units


def calls(manager: Manager, name: str, tokens: int) -> float:
    """How many functions are called per unit of a load, of Python and of C: no machine makes them more."""
    seen = 0

    def call(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal seen
        seen += event in ("call", "c_call")

    load_units = LOADS[name](manager, tokens, lambda: seen)
    # What is there once is not counted: the first unit, and of shared prompts the request that learns the junction.
    next(load_units), next(load_units)
    sys.setprofile(call)
    try:
        # The meter itself is a call.
        spent, done = next(load_units)
    finally:
        sys.setprofile(None)
    return (spent - 1) / done


def counted(manager: Manager, tokens: int, steps: int = 256) -> dict[str, float]:
    """Operations per decode step after a prompt of so many tokens: hashes, and accesses to the map of what is cached
    and to the free queue.
    """
    request = manager.request(tokens)
    manager.prefill(request)
    pool = manager.kv.block_pool
    table, queue = type(pool.cached_block_hash_to_block), type(pool.free_block_queue)
    seen: Counter[str] = Counter()
    before = manager.hashed
    with _counting(seen, "table", table, TABLE), _counting(seen, "queue", queue, QUEUE):
        manager.decode(request, steps)
    manager.kv.free(request)
    return {"hashes": (manager.hashed - before) / steps} | {name: seen[name] / steps for name in ("table", "queue")}


@contextmanager
def _counting(seen: Counter[str], name: str, owner: type, methods: tuple[str, ...]) -> Iterator[None]:
    before = {method: vars(owner)[method] for method in methods if method in vars(owner)}

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def counts(*arguments: Any) -> Any:
            seen[name] += 1
            return function(*arguments)

        return counts

    for method, function in before.items():
        setattr(owner, method, counting(function))
    yield
    for method, function in before.items():
        setattr(owner, method, function)


JOBS: dict[str, Callable[..., Any]] = {"timed": timed, "calls": calls, "counted": counted}


def main() -> None:
    """Answer job after job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--plug-in", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    if arguments.plug_in:
        from swa_retention.plugin import register

        register()
    manager = Manager(arguments.model)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(JOBS[job.pop("job")](manager, **job)), flush=True)


if __name__ == "__main__":
    main()
