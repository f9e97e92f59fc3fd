"""What lockstep costs: the reference alone, vLLM alone, both in lockstep, and lockstep with all monitors.

Every arm performs the same operations in the same process. The arms take turns (A B C D D C B A), are timed by process
time, and the median of all rounds is reported as operations a second, with the ratio to vLLM alone. The arm "vLLM
again" is vLLM alone once more: its ratio says how noisy the machine is.

    python -m benchmarks.lockstep [--model gemma-hybrid] [--rounds 7]
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from attrs import evolve
from benchmarks.program import at_least_one, end_with, options_of
from benchmarks.row import Row, ratio_row, row_of

from kvgate.adapters.registry import load_system
from kvgate.gate.case_runner import Bench
from kvgate.gate.generator import PRESETS, Generator
from kvgate.kernel.models import load
from kvgate.kernel.protocol import System
from kvgate.kernel.random_source import Seeded
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Finish, Operation, Run, Sample, Schedule
from kvreference.settings import Settings

Arm = Callable[[Settings, Sequence[Operation]], int]
PROMPTS_TOKENS = (200, 450)
ANSWERS = 16
BASE = "vLLM alone"
"""What the other arms are set against."""


def conversation(model: str, seed: int) -> tuple[Settings, list[Operation]]:
    """Requests of a few hundred tokens that share prefixes, prefilled in chunks, with some decode steps each."""
    geometry = load(model).geometry
    settings = Settings(geometry, blocks=384, tokens_max=1024, chunk_tokens=128, requests_max=4)
    draw = Seeded(f"benchmark/{model}/{seed}")
    operations: list[Operation] = []
    for number in range(20):
        shared = draw.integer(*PROMPTS_TOKENS) // 2
        own = draw.integer(*PROMPTS_TOKENS) // 2
        first = draw.integer(0, 2) * 1_000_000
        operations.append(Arrive(number, (Run(first, shared), Run(10_000_000 + number * 10_000, own))))
        operations.append(Admit(number, 128))
        operations += [Schedule(number, 128)] * 4
        for _ in range(ANSWERS):
            operations += [Sample(number, 0, 900_000_000 + number, 0), Schedule(number, 1)]
        if number >= 3:
            operations.append(Finish(number - 3))
    return settings, legal(settings, operations)


def hostile(model: str, seed: int) -> tuple[Settings, list[Operation]]:
    """What the gate itself draws with the preset ``hostile``, less what would meet a declared difference."""
    generator = Generator(evolve(PRESETS["hostile"], keys_percent=0), load(model).geometry)
    draw = Seeded(f"benchmark/{model}/{seed}")
    settings = evolve(generator.settings(draw), full_sequence_must_fit=False)
    return settings, legal(settings, [generator.operation(draw) for _ in range(600)])


def legal(settings: Settings, operations: Sequence[Operation]) -> list[Operation]:
    """The operations as they are resolved, so that every arm does the same and none resolves."""
    manager = Manager(settings)
    found = []
    for operation in operations:
        resolved = manager.population.resolve(operation)
        if resolved is not None:
            manager.apply(resolved)
            found.append(resolved)
    return found


def alone(build: Callable[[Settings], System]) -> Arm:
    """An arm that performs the operations on one system and looks at nothing."""

    def arm(settings: Settings, operations: Sequence[Operation]) -> int:
        system = build(settings)
        for operation in operations:
            system.apply(operation)
        return len(operations)

    return arm


def in_lockstep(bench: Bench) -> Arm:
    """An arm that performs the operations in lockstep and judges each."""

    def arm(settings: Settings, operations: Sequence[Operation]) -> int:
        lockstep = bench.set_up(settings)
        for operation in operations:
            divergence = lockstep.perform(operation)
            if divergence is not None:
                raise SystemExit(f"diverged in a benchmark: {divergence}")
        return len(operations)

    return arm


def measure(
    arms: dict[str, Arm], cases: Sequence[tuple[Settings, list[Operation]]], rounds: int
) -> dict[str, list[float]]:
    """Operations a second per arm and round, the arms taking turns forth and back."""
    rates: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name in (*arms, *reversed(arms)):
            started = time.process_time()
            operations = sum(arms[name](settings, operations) for settings, operations in cases)
            rates[name].append(operations / (time.process_time() - started))
    return rates


def results(model: str, rounds: int) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """Per load, what each arm reached."""
    stock = load_system("stock").factory
    arms: dict[str, Arm] = {
        BASE: alone(stock),
        "reference alone": alone(load_system("reference").factory),
        "lockstep": in_lockstep(Bench(stock, ("lockstep",))),
        "lockstep and monitors": in_lockstep(Bench(stock)),
        "vLLM again": alone(stock),
    }
    for name, draw_load, count in (("conversation", conversation, 4), ("hostile", hostile, 8)):
        yield name, measure(arms, [draw_load(model, seed) for seed in range(count)], rounds)


def rows(quick: bool) -> Iterator[Row]:
    """Operations a second of vLLM alone, and the ratio of every other arm to it."""
    for load_name, rates in results("gemma-hybrid", 1 if quick else 7):
        for arm, found in rates.items():
            what = f"{load_name}: {arm}"
            if arm == BASE:
                yield row_of(what, found, "operations/s")
            else:
                yield ratio_row(what, found, rates[BASE], "of vLLM alone")


def lines(name: str, rates: dict[str, list[float]]) -> Iterator[str]:
    """The table's lines for one load."""
    base = median(rates[BASE])
    for arm, found in rates.items():
        yield f"{name:<14} {arm:<24} {median(found):>12,.0f} {median(found) / base:>8.3f}"


def main() -> None:
    """Measure and print."""
    parser = options_of("lockstep", __doc__)
    parser.add_argument("--model", default="gemma-hybrid")
    parser.add_argument("--rounds", type=at_least_one, default=7)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    found = dict(results(arguments.model, arguments.rounds))
    if arguments.json:
        medians = {load_name: {arm: median(rates[arm]) for arm in rates} for load_name, rates in found.items()}
        print(json.dumps({"model": arguments.model, "operations_per_second": medians}, indent=1))
        return
    print(f"{arguments.model}, {platform.machine()}, Python {platform.python_version()}, {arguments.rounds} rounds")
    print(f"{'load':<14} {'arm':<24} {'operations/s':>12} {'ratio':>8}")
    for name, rates in found.items():
        print("\n".join(lines(name, rates)))


if __name__ == "__main__":
    end_with("lockstep", main)
