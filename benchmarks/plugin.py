"""What the plug-in costs: vLLM's block manager without it, with it and nothing switched on, and with each switch.

Patches are for a whole process, so every arm is a process of its own (benchmarks/plugin_arm.py). Stock vLLM and one arm
take turns (A B B A), each timed by its own process time for a part of a second, and the median of all rounds' ratios is
reported. The arm "stock again" is a second process without the plug-in: its ratio says how far the others can be
trusted. Requests are made, and their prompts hashed, outside of what is timed.

Then, for each arm, a decode step behind prompts of growing length: its time, the slope, and how many hashes, accesses
to the map of what is cached and to the free queue, and calls in all it makes. The counts are exact.

    python -m benchmarks.plugin [--rounds 7] [--seconds 0.4] [--arm NAME]… [--load NAME]…
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import linear_regression, median
from typing import Any

from attrs import frozen
from benchmarks.program import at_least_one, end_with, options_of
from benchmarks.row import Row

RETENTION, PINS = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "VLLM_PIN_SWA_TOKENS"
PARTIAL = "VLLM_PREFIX_CACHE_PARTIAL_HITS"
HYBRID, COMPRESSED = "gpt-oss-hybrid", "dsv4-flash"
LOADS = {
    "request of 1k": ("request", 1024),
    "request of 8k": ("request", 8192),
    "request of 128k": ("request", 131_072),
    "decode step at 8k": ("decode step", 8192),
    "look-up, hit": ("look-up, hit", 8192),
    "look-up, miss": ("look-up, miss", 8192),
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
    "dsv4, retention": Arm(COMPRESSED, {RETENTION: "auto"}),
    "dsv4, pins": Arm(COMPRESSED, {PINS: "1"}),
}


class Process:
    """An arm at work, until it is closed."""

    def __init__(self, arm: Arm) -> None:
        switched = {RETENTION, PINS, PARTIAL}
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


def ratios(stock: Process, arm: Process, rounds: int, **job: Any) -> tuple[float, float, float, float]:
    """Microseconds a unit of stock, then the ratio of the arm to it: median, least, largest of all rounds."""
    found, plain = [], []
    for _ in range(rounds):
        a, b, b_again, a_again = (process.ask(**job) for process in (stock, arm, arm, stock))
        found.append((b + b_again) / (a + a_again))
        plain.append((a + a_again) / 2)
    return median(plain) * 1e6, median(found), min(found), max(found)


def costs(stock: Process, name: str, arm: Process, loads: Iterable[str], rounds: int, seconds: float) -> Iterator[str]:
    """The table's lines for one arm."""
    for load in loads:
        kind, tokens = LOADS[load]
        plain, middle, least, largest = ratios(stock, arm, rounds, name=kind, tokens=tokens, seconds=seconds)
        yield f"{name:<16} {load:<18} {plain:>12,.1f} {middle:>8.3f} {f'{least:.2f}-{largest:.2f}':>12}"


def rows(quick: bool) -> Iterator[Row]:
    """The ratio of every arm to stock vLLM, load by load."""
    rounds, seconds = (1, 0.05) if quick else (7, 0.4)
    for name, arm in ARMS.items():
        with ExitStack() as open_arms:
            stock, other = Process(Arm(arm.model, None)), Process(arm)
            open_arms.callback(stock.close)
            open_arms.callback(other.close)
            for load in QUICK_LOADS if quick else LOADS:
                kind, tokens = LOADS[load]
                _plain, middle, least, largest = ratios(stock, other, rounds, name=kind, tokens=tokens, seconds=seconds)
                yield Row(f"{name}: {load}", middle, "of stock vLLM", least, largest, rounds)


def steps(name: str, arm: Process, rounds: int, seconds: float) -> Iterator[str]:
    """What a decode step costs one arm, by the length of the context, and the slope."""
    spent = {
        tokens: median(arm.ask(name="decode step", tokens=tokens, seconds=seconds) * 1e6 for _ in range(rounds))
        for tokens in CONTEXTS_TOKENS
    }
    counts = {tokens: arm.ask(counted=True, tokens=tokens) for tokens in CONTEXTS_TOKENS}
    for tokens, microseconds in spent.items():
        told = " ".join(f"{value:>8.3f}" for value in counts[tokens].values())
        yield f"{name:<16} {tokens:>8,} {microseconds:>8.2f} {told}"
    slope, _ = linear_regression([tokens / 1024 for tokens in spent], list(spent.values()))
    share = slope * (CONTEXTS_TOKENS[-1] - CONTEXTS_TOKENS[0]) / 1024 / spent[CONTEXTS_TOKENS[0]]
    alike = "the same counts at all lengths" if len({str(each) for each in counts.values()}) == 1 else "COUNTS DIFFER"
    yield f"{name:<16} slope {slope * 1000:+.2f} ns per 1,024 tokens, {share:+.1%} from 1k to 128k; {alike}"


def main() -> None:
    """Measure and print."""
    parser = options_of("plugin", __doc__)
    parser.add_argument("--rounds", type=at_least_one, default=7)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--arm", choices=ARMS, action="append")
    parser.add_argument("--load", choices=LOADS, action="append")
    parser.add_argument("--no-steps", action="store_true", help="leave out the decode steps by length of context")
    arguments = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}, {arguments.rounds} rounds, A B B A")
    headings = " ".join(f"{heading:>8}" for heading in ("hashes", "table", "queue", "calls"))
    for name in arguments.arm or ARMS:
        with ExitStack() as open_arms:
            stock, arm = Process(Arm(ARMS[name].model, None)), Process(ARMS[name])
            open_arms.callback(stock.close)
            open_arms.callback(arm.close)
            print(f"{'arm':<16} {'load':<18} {'stock, us':>12} {'ratio':>8} {'from-to':>12}", flush=True)
            for line in costs(stock, name, arm, arguments.load or LOADS, arguments.rounds, arguments.seconds):
                print(line, flush=True)
            if not arguments.no_steps:
                print(f"{'a decode step at':<16} {'context':>8} {'us':>8} {headings}")
                for line in steps(name, arm, arguments.rounds, arguments.seconds):
                    print(line, flush=True)


if __name__ == "__main__":
    end_with("plugin", main)
