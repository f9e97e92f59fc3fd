"""What the plug-in costs: vLLM's block manager without it, with it and nothing switched on, and with each switch.

Patches are for a whole process, so every arm is a process of its own (benchmarks/plugin_arm.py). Stock vLLM and one arm
take turns (A B B A), each timed by its own process time for a part of a second, and the median of all rounds' ratios is
reported. The arm "stock again" is a second process without the plug-in: its ratio says how far the others can be
trusted. Requests are made, and their prompts hashed, outside of what is timed.

Then, for each arm, a decode step after prompts of growing length: its time, the slope, and how many hashes, accesses to
the map of what is cached and to the free queue it makes. Next to each ratio of times is that of the calls of Python
functions. The counts are exact.

    python -m benchmarks.plugin [--rounds 7] [--seconds 0.4] [--arm NAME]… [--load NAME]…
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import linear_regression, median
from typing import Any

from attrs import frozen
from benchmarks.harness import Row, at_least_one, end_with, options_of, print_rows, ratio_row, row_of, turns

RETENTION, PINS = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "VLLM_PIN_SWA_TOKENS"
PARTIAL, JUNCTIONS = "VLLM_PREFIX_CACHE_PARTIAL_HITS", "VLLM_PREFIX_CACHE_JUNCTIONS"
HYBRID, COMPRESSED = "gpt-oss-hybrid", "dsv4-flash"
LOADS = {
    "request of 1k": ("request", 1024),
    "request of 8k": ("request", 8192),
    "request of 128k": ("request", 131_072),
    "replayed request of 8k": ("replayed request", 8192),
    "shared prompt of 8k": ("request with a shared prompt", 8192),
    "decode step at 8k": ("decode step", 8192),
    "decode step at 128k": ("decode step", 131_072),
    "look-up, hit": ("look-up, hit", 8192),
    "look-up, miss": ("look-up, miss", 8192),
    "look-up, long miss": ("look-up, long miss", 131_072),
}
"""What is timed: the load and its prompt's tokens."""
QUICK_LOADS = ("request of 1k", "decode step at 8k")
CONTEXTS_TOKENS = (1024, 8192, 32_768, 131_072)


@frozen
class Arm:
    """Stock vLLM, or the plug-in with what is switched on."""

    model: str
    switches: Mapping[str, str] | None
    """The environment; None: the plug-in is not there at all."""


ARMS = {
    "stock again": Arm(HYBRID, None),
    "nothing on": Arm(HYBRID, {}),
    "retention 0": Arm(HYBRID, {RETENTION: "0"}),
    "retention 1024": Arm(HYBRID, {RETENTION: "1024"}),
    "retention auto": Arm(HYBRID, {RETENTION: "auto"}),
    "pins": Arm(HYBRID, {PINS: "1"}),
    "pins, retention": Arm(HYBRID, {PINS: "1", RETENTION: "auto"}),
    "retention 0, no junctions": Arm(HYBRID, {RETENTION: "0", JUNCTIONS: "0"}),
    "dsv4, retention": Arm(COMPRESSED, {RETENTION: "auto"}),
    "dsv4, pins": Arm(COMPRESSED, {PINS: "1"}),
    "dsv4, partial hits": Arm(COMPRESSED, {PARTIAL: "auto"}),
    "dsv4, partial hits, retention": Arm(COMPRESSED, {PARTIAL: "auto", RETENTION: "auto"}),
}


class Process:
    """An arm at work, until it is closed."""

    def __init__(self, arm: Arm) -> None:
        switched = {RETENTION, PINS, PARTIAL, JUNCTIONS}
        environment = {name: value for name, value in os.environ.items() if name not in switched}
        environment |= {"VLLM_PLUGINS": "", "PYTHONHASHSEED": "0", **(arm.switches or {})}
        command = [sys.executable, str(Path(__file__).with_name("plugin_arm.py")), "--model", arm.model]
        self._process = subprocess.Popen(
            command + ([] if arm.switches is None else ["--plug-in"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("an arm has ended: what it said is above")
        return json.loads(line)

    def ask(self, **job: Any) -> Any:
        """The answer to a job; see benchmarks/plugin_arm.py."""
        assert self._process.stdin is not None
        print(json.dumps(job), file=self._process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def load_rows(name: str, arm: Arm, loads: Iterable[str], rounds: int, seconds: float) -> Iterator[Row]:
    """The ratio of one arm to stock vLLM for each load, and what stock vLLM takes."""
    with _processes(Arm(arm.model, None), arm) as (stock, other):
        for load in loads:
            kind, tokens = LOADS[load]
            job = {"name": kind, "tokens": tokens}
            stocks_calls, calls = (process.ask(job="calls", **job) for process in (stock, other))
            yield row_of(f"{name}: {load}, Python calls", [calls / stocks_calls], "of stock vLLM")
            job |= {"job": "timed", "seconds": seconds}
            found = turns({"stock": partial(stock.ask, **job), name: partial(other.ask, **job)}, rounds)
            # The two runs of an arm in a round are one figure.
            base, ours = ([sum(two) / 2 for two in zip(each[::2], each[1::2], strict=True)] for each in found.values())
            yield ratio_row(f"{name}: {load}", ours, base, "of stock vLLM")
            yield row_of(f"stock vLLM next to {name}: {load}", [value * 1e6 for value in base], "us")


def rows(quick: bool) -> Iterator[Row]:
    """The ratio of every arm to stock vLLM, load by load."""
    rounds, seconds = (1, 0.05) if quick else (7, 0.4)
    for name, arm in ARMS.items():
        found = load_rows(name, arm, QUICK_LOADS if quick else LOADS, rounds, seconds)
        yield from (row for row in found if row.unit != "us")


def step_rows(name: str, arm: Arm, rounds: int, seconds: float) -> Iterator[Row]:
    """What a decode step costs one arm: its time and exact counts by the length of the context, and the slope."""
    with _processes(arm) as (process,):
        medians = []
        for tokens in CONTEXTS_TOKENS:
            what = f"{name}: a decode step at {tokens:,} tokens"
            job = {"job": "timed", "name": "decode step", "tokens": tokens, "seconds": seconds}
            spent = [process.ask(**job) * 1e6 for _ in range(rounds)]
            medians.append(median(spent))
            yield row_of(what, spent, "us")
            for counted, value in process.ask(job="counted", tokens=tokens).items():
                yield row_of(f"{what}, {counted}", [value], "a step")
        slope, _ = linear_regression([tokens / 1024 for tokens in CONTEXTS_TOKENS], medians)
        yield row_of(f"{name}: slope", [slope * 1000], "ns per 1,024 tokens")


@contextmanager
def _processes(*arms: Arm) -> Iterator[list[Process]]:
    with ExitStack() as running:
        started = [Process(arm) for arm in arms]
        for process in started:
            running.callback(process.close)
        yield started


def main() -> None:
    """Measure and print."""
    parser = options_of("plugin", __doc__)
    parser.add_argument("--rounds", type=at_least_one, default=7)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--arm", choices=ARMS, action="append")
    parser.add_argument("--load", choices=LOADS, action="append")
    parser.add_argument("--no-steps", action="store_true", help="leave out the decode steps by length of context")
    arguments = parser.parse_args()
    rounds, seconds = arguments.rounds, arguments.seconds
    for name in arguments.arm or ARMS:
        print_rows(load_rows(name, ARMS[name], arguments.load or LOADS, rounds, seconds), name)
        if not arguments.no_steps:
            print_rows(step_rows(name, ARMS[name], rounds, seconds), f"{name}, decode steps")


if __name__ == "__main__":
    end_with("plugin", main)
