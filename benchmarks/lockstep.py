"""What lockstep costs: the reference alone, vLLM alone, both in lockstep, and lockstep with all monitors.

Every arm performs the same operations in the same process. The arms take turns (A B C D D C B A), are timed by process
time, and the median of all rounds is reported as operations a second, with the ratio to vLLM alone. The arm "vLLM
again" is vLLM alone once more: its ratio says how noisy the machine is.

    python -m benchmarks.lockstep [--model gemma-hybrid] [--rounds 7]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from attrs import evolve
from benchmarks.harness import Row, against_base, at_least_one, end_with, options_of, print_rows, turns

from kvgate.adapters.registry import load_system
from kvgate.gate.generator import PRESETS, Generator
from kvgate.kernel.models import load
from kvgate.kernel.protocol import System
from kvgate.kernel.random_source import Seeded
from kvgate.levels.manager import MANAGER, Bench
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
    bias = evolve(PRESETS["hostile"], operations=600, keys_percent=0, swarm_percent=0)
    case = MANAGER.draw_with(Generator(bias, load(model).geometry), model, "hostile", f"benchmark/{seed}")
    settings = evolve(case.settings, full_sequence_must_fit=False)
    return settings, legal(settings, case.operations)


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
    """An arm that performs the operations in lockstep and checks each."""

    def arm(settings: Settings, operations: Sequence[Operation]) -> int:
        lockstep = bench.glancing().set_up(settings)
        for operation in operations:
            divergence = lockstep.perform(operation)
            if divergence is not None:
                raise SystemExit(f"diverged in a benchmark: {divergence}")
        return len(operations)

    return arm


def measure(model: str, rounds: int) -> Iterator[Row]:
    """Operations a second of vLLM alone, and the ratio of every other arm to it, for each load."""
    load(model)
    stock = load_system("stock").factory
    arms: dict[str, Arm] = {
        BASE: alone(stock),
        "reference alone": alone(load_system("reference").factory),
        "lockstep": in_lockstep(Bench(stock, ("lockstep",))),
        "lockstep and monitors": in_lockstep(Bench(stock)),
        "vLLM again": alone(stock),
    }
    for name, draw_load, count in (("conversation", conversation, 4), ("hostile", hostile, 8)):
        cases = [draw_load(model, seed) for seed in range(count)]

        def rate(arm: Arm, cases: list[tuple[Settings, list[Operation]]] = cases) -> float:
            started = time.process_time()
            operations = sum(arm(settings, operations) for settings, operations in cases)
            return operations / (time.process_time() - started)

        yield from against_base(
            name, turns({each: partial(rate, arm) for each, arm in arms.items()}, rounds), BASE, "operations/s"
        )


def rows(quick: bool) -> Iterator[Row]:
    """The same, of one model."""
    return measure("gemma-hybrid", 1 if quick else 7)


def main() -> None:
    """Measure and print."""
    parser = options_of("lockstep", __doc__)
    parser.add_argument("--model", default="gemma-hybrid")
    parser.add_argument("--rounds", type=at_least_one, default=7)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    print_rows(measure(arguments.model, arguments.rounds), arguments.model, arguments.json)


if __name__ == "__main__":
    end_with("lockstep", main)
