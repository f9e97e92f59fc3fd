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
from collections.abc import Callable, Iterator
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

        def hashed(value: Any) -> bytes:
            self.hashed += 1
            return sha256(value)

        hasher = get_request_block_hasher(geometry.grain_tokens, hashed)
        sampling = SamplingParams(max_tokens=1)

        def new(name: str, tokens: list[int]) -> Request:
            return Request(name, tokens, sampling, None, block_hasher=hasher)

        self._new = new
        self._names = count()

    def request(self, tokens: int, first: int | None = None) -> Request:
        """A new request; without a ``first`` token its prompt begins like no other."""
        name = next(self._names)
        return self._new(str(name), [10_000_000 + name if first is None else first, *range(1, tokens)])

    def prefill(self, request: Request) -> None:
        """Look up, admit, and compute the prompt in chunks."""
        blocks, hit = self.kv.get_computed_blocks(request)
        taken = min(CHUNK_TOKENS, request.num_tokens - hit)
        assert self.kv.can_fit_full_sequence(request, hit, blocks)
        assert self.kv.allocate_slots(request, taken, hit, blocks)
        request.num_computed_tokens = hit + taken
        while request.num_computed_tokens < request.num_tokens:
            taken = min(CHUNK_TOKENS, request.num_tokens - request.num_computed_tokens)
            assert self.kv.allocate_slots(request, taken)
            request.num_computed_tokens += taken

    def decode(self, request: Request, steps: int) -> None:
        """So many tokens, one a step."""
        for step in range(steps):
            request.append_output_token_ids(step)
            assert self.kv.allocate_slots(request, 1)
            request.num_computed_tokens += 1


def requests(manager: Manager, tokens: int) -> Iterator[tuple[float, int]]:
    """Whole requests, each with a prompt of its own: admit, prefill, decode, free. Per request."""
    while True:
        request = manager.request(tokens)
        started = time.process_time()
        manager.prefill(request)
        manager.decode(request, DECODE_STEPS)
        manager.kv.free(request)
        yield time.process_time() - started, 1


def decode_steps(manager: Manager, tokens: int) -> Iterator[tuple[float, int]]:
    """Decode steps behind a prompt of so many tokens. Per step; the context grows by what is decoded."""
    while True:
        request = manager.request(tokens)
        manager.prefill(request)
        started = time.process_time()
        manager.decode(request, 1024)
        spent = time.process_time() - started
        manager.kv.free(request)
        yield spent, 1024


def hits(manager: Manager, tokens: int) -> Iterator[tuple[float, int]]:
    """Look-ups of a prompt that has just been computed."""
    before = manager.request(tokens, first=0)
    manager.prefill(before)
    manager.kv.free(before)
    yield from _look_ups(manager, manager.request(tokens, first=0), hit=True)


def misses(manager: Manager, tokens: int) -> Iterator[tuple[float, int]]:
    """Look-ups of a prompt that nobody has computed."""
    yield from _look_ups(manager, manager.request(tokens, first=-1), hit=False)


def _look_ups(manager: Manager, request: Request, hit: bool) -> Iterator[tuple[float, int]]:
    assert hit == (manager.kv.get_computed_blocks(request)[1] > 0)
    while True:
        started = time.process_time()
        for _ in range(200):
            manager.kv.get_computed_blocks(request)
        yield time.process_time() - started, 200


LOADS: dict[str, Callable[[Manager, int], Iterator[tuple[float, int]]]] = {
    "request": requests,
    "decode step": decode_steps,
    "look-up, hit": hits,
    "look-up, miss": misses,
}


def timed(manager: Manager, name: str, tokens: int, seconds: float) -> float:
    """Seconds of process time per unit of a load, over at least ``seconds``."""
    load_units = LOADS[name](manager, tokens)
    next(load_units)
    spent, units = 0.0, 0
    while spent < seconds:
        more, done = next(load_units)
        spent, units = spent + more, units + done
    return spent / units


def counted(manager: Manager, tokens: int, steps: int = 256) -> dict[str, float]:
    """Operations per decode step behind a prompt of so many tokens: hashes, accesses to the map of what is cached and
    to the free queue, and all calls of Python functions, which no machine makes slower.
    """
    request = manager.request(tokens)
    manager.prefill(request)
    pool = manager.kv.block_pool
    table, queue = type(pool.cached_block_hash_to_block), type(pool.free_block_queue)
    seen: Counter[str] = Counter()
    before = manager.hashed
    with _counting(seen, "table", table, TABLE), _counting(seen, "queue", queue, QUEUE):
        manager.decode(request, steps)
    hashed = manager.hashed - before

    def call(_frame: Any, event: str, _argument: Any) -> None:
        seen["calls"] += event in ("call", "c_call")

    sys.setprofile(call)
    manager.decode(request, steps)
    sys.setprofile(None)
    manager.kv.free(request)
    return {"hashes": hashed / steps} | {name: seen[name] / steps for name in ("table", "queue", "calls")}


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
        if job.pop("counted", False):
            print(json.dumps(counted(manager, **job)), flush=True)
        else:
            print(json.dumps(timed(manager, **job)), flush=True)


if __name__ == "__main__":
    main()
