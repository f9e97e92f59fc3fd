"""What a request of 131,072 tokens costs: its prefill in chunks of 8,192, and each decode step behind it.

The arms take turns forth and back in one process and are timed by process time; reported are medians, in milliseconds
a step, with the ratio to vLLM alone.

    python -m benchmarks.long_request [--model gpt-oss-hybrid] [--rounds 7]
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from statistics import median

from benchmarks.program import at_least_one, end_with, options_of
from benchmarks.row import Row, ratio_row, row_of

from kvgate.adapters.registry import load_system
from kvgate.gate.case_runner import Bench
from kvgate.kernel.difference import Divergence
from kvgate.kernel.models import load
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


def in_lockstep(bench: Bench, settings: Settings) -> Perform:
    """Performs in lockstep, and insists on agreement."""
    lockstep = bench.set_up(settings)

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


def measure(settings: Settings, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds for the prefill and for a decode step, per arm and round."""
    stock = load_system("stock").factory
    reference = load_system("reference").factory
    arms: dict[str, Callable[[], Perform]] = {
        BASE: lambda: stock(settings).apply,
        "reference alone": lambda: reference(settings).apply,
        "lockstep": lambda: in_lockstep(Bench(stock, ("lockstep",)), settings),
        "lockstep and monitors": lambda: in_lockstep(Bench(stock), settings),
        "vLLM again": lambda: stock(settings).apply,
    }
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name in (*arms, *reversed(arms)):
            seen[name].append(timed(arms[name]()))
    return seen


def rows(quick: bool) -> Iterator[Row]:
    """Milliseconds of vLLM alone, and the ratio of every other arm to it."""
    seen = measure(settings_of("gpt-oss-hybrid"), 1 if quick else 7)
    for place, what in enumerate(("prefill", "decode step")):
        base = [each[place] for each in seen[BASE]]
        for arm, found in seen.items():
            spent = [each[place] for each in found]
            if arm == BASE:
                yield row_of(f"{what}: {arm}", [seconds * 1000 for seconds in spent], "ms")
            else:
                yield ratio_row(f"{what}: {arm}", spent, base, "of vLLM alone")


def main() -> None:
    """Measure and print."""
    parser = options_of("long_request", __doc__)
    parser.add_argument("--model", default="gpt-oss-hybrid")
    parser.add_argument("--rounds", type=at_least_one, default=7)
    arguments = parser.parse_args()
    settings = settings_of(arguments.model)
    seen = measure(settings, arguments.rounds)
    print(
        f"{arguments.model}, {TOKENS} tokens in a pool of {settings.blocks} blocks, {platform.machine()}, "
        f"Python {platform.python_version()}, {arguments.rounds} rounds"
    )
    print(f"{'arm':<24} {'prefill, ms':>12} {'ratio':>8} {'decode step, ms':>16} {'ratio':>8}")
    base: tuple[float, float] | None = None
    for name, values in seen.items():
        prefill, decode = (median(column) * 1000 for column in zip(*values, strict=True))
        base = base or (prefill, decode)
        print(f"{name:<24} {prefill:>12.1f} {prefill / base[0]:>8.2f} {decode:>16.3f} {decode / base[1]:>8.2f}")


if __name__ == "__main__":
    end_with("long_request", main)
