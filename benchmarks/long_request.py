"""What a request of 131,072 tokens costs: its prefill in chunks of 8,192, and each decode step after it.

The arms take turns forth and back in one process and are timed by process time; reported are medians, in milliseconds
a step, with the ratio to vLLM alone.

    python -m benchmarks.long_request [--model gpt-oss-hybrid] [--rounds 7]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.harness import Row, against_base, at_least_one, end_with, options_of, print_rows, turns

from kvgate.adapters.registry import load_system
from kvgate.kernel.difference import Divergence
from kvgate.kernel.models import load
from kvgate.levels.manager import Bench
from kvreference.operations import Admit, Arrive, Operation, Run, Sample, Schedule
from kvreference.settings import Settings

TOKENS = 131_072
CHUNK = 8_192
DECODE_STEPS = 32
BASE = "vLLM alone"
"""What the other arms are set against."""

Perform = Callable[[Operation], object]


def timed(perform: Perform) -> tuple[float, float]:
    """Seconds of process time for the whole prefill, and for one decode step."""
    started = time.process_time()
    perform(Arrive(0, (Run(0, TOKENS),)))
    perform(Admit(0, CHUNK))
    for _ in range(TOKENS // CHUNK - 1):
        perform(Schedule(0, CHUNK))
    prefilled = time.process_time()
    for step in range(DECODE_STEPS):
        perform(Sample(0, 0, 900_000_000 + step, 0))
        perform(Schedule(0, 1))
    return prefilled - started, (time.process_time() - prefilled) / DECODE_STEPS


def _timed(build: Callable[[], Perform]) -> tuple[float, float]:
    return timed(build())


def in_lockstep(bench: Bench, settings: Settings) -> Perform:
    """Performs in lockstep, and insists on agreement."""
    lockstep = bench.glancing().set_up(settings)

    def perform(operation: Operation) -> None:
        divergence: Divergence | None = lockstep.perform(operation)
        if divergence is not None:
            raise SystemExit(f"diverged in a benchmark: {divergence}")

    return perform


def settings_of(model: str) -> Settings:
    """A pool that holds the request, and no more."""
    geometry = load(model).geometry
    tokens_max = TOKENS + 1024
    held = sum(
        min(group.blocks_occupied(tokens_max), group.blocks_held_at_most(CHUNK, tokens_max))
        for group in geometry.groups
    )
    return Settings(geometry, blocks=held + 1, tokens_max=tokens_max, chunk_tokens=CHUNK)


def measure(model: str, rounds: int) -> Iterator[Row]:
    """Milliseconds of vLLM alone for the prefill and for a decode step, and the ratio of every other arm to it."""
    settings = settings_of(model)
    stock = load_system("stock").factory
    reference = load_system("reference").factory
    arms: dict[str, Callable[[], Perform]] = {
        BASE: lambda: stock(settings).apply,
        "reference alone": lambda: reference(settings).apply,
        "lockstep": lambda: in_lockstep(Bench(stock, ("lockstep",)), settings),
        "lockstep and monitors": lambda: in_lockstep(Bench(stock), settings),
        "vLLM again": lambda: stock(settings).apply,
    }
    found = turns({name: partial(_timed, build) for name, build in arms.items()}, rounds)
    for place, what in enumerate(("prefill", "decode step")):
        yield from against_base(what, {arm: [each[place] for each in found[arm]] for arm in arms}, BASE, "ms", 1000)


def rows(quick: bool) -> Iterator[Row]:
    """The same, of one model."""
    return measure("gpt-oss-hybrid", 1 if quick else 7)


def main() -> None:
    """Measure and print."""
    parser = options_of("long_request", __doc__)
    parser.add_argument("--model", default="gpt-oss-hybrid")
    parser.add_argument("--rounds", type=at_least_one, default=7)
    arguments = parser.parse_args()
    print_rows(measure(arguments.model, arguments.rounds), f"{arguments.model}, {TOKENS} tokens")


if __name__ == "__main__":
    end_with("long_request", main)
