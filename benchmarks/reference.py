"""How fast the reference is, mechanism by mechanism, and what a request of a million tokens costs it.

Usage: python -m benchmarks.reference [--operations 20000] [--tokens 1000000]

All models are measured in one process, in turn, and the first one again at the end: its second figure over its first
says how far the machine itself can be trusted. Nothing is asserted: read the ratios.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.harness import Row, at_least_one, end_with, options_of, print_rows, row_of

from kvgate.explore.mechanisms import MECHANISMS
from kvgate.gate.case_runner import Lane
from kvgate.gate.generator import PRESETS, Generator
from kvgate.kernel.models import load
from kvgate.levels.manager import draw_case
from kvreference.manager import Manager
from kvreference.operations import Admit, Arrive, Dispatch, Finish, LookUp, Operation, Run, Sample, Schedule
from kvreference.settings import Settings

CHUNK_TOKENS = 8192
DECODE_STEPS = 200
LONG_REQUESTS = (
    "full",
    "gpt-oss-hybrid",
    "gpt-oss-hybrid+retention+scratch",
    "dsv4-flash",
    "dsv4-flash+partial+masked",
)


def operations_per_second(name: str, operations: int) -> float:
    """Random operations of the preset `hostile` on the model called ``name``, nothing checked."""
    model = load(name)
    lane = Lane(model, "hostile")
    generator = Generator(PRESETS[lane.preset], model.geometry, model.features)
    performed, spent, index = 0, 0.0, 0
    while performed < operations:
        case = draw_case(generator, lane, str(index), 0)
        index += 1
        manager = Manager(case.settings)
        started = time.process_time()
        for drawn in case.operations:
            operation = manager.population.resolve(drawn)
            if operation is not None:
                manager.apply(operation)
                performed += 1
        spent += time.process_time() - started
    return performed / spent


def long_request(name: str, tokens: int) -> tuple[float, float, float, float, int]:
    """Seconds to prefill ``tokens`` tokens in chunks and to end, milliseconds per decode step, seconds to look up a
    replay, and the replay's hit in tokens.
    """
    model = load(name)
    settings = Settings(
        model.geometry,
        blocks=2 + 2 * sum(group.blocks_occupied(tokens + CHUNK_TOKENS) for group in model.geometry.groups),
        tokens_max=tokens + CHUNK_TOKENS,
        chunk_tokens=CHUNK_TOKENS,
        tells_events=False,
    )
    manager = Manager(model.features.applied_to(settings))

    def timed(*operations: Operation) -> float:
        started = time.process_time()
        for operation in operations:
            if (resolved := manager.population.resolve(operation)) is not None:
                manager.apply(resolved)
        return time.process_time() - started

    prompt = (Run(0, tokens),)
    chunks = [each for _ in range(0, tokens, CHUNK_TOKENS) for each in (Schedule(0, CHUNK_TOKENS), Dispatch())]
    prefill = timed(Arrive(0, prompt), Admit(0, CHUNK_TOKENS), Dispatch(), *chunks)
    steps = [each for i in range(DECODE_STEPS) for each in (Sample(0, 0, i, 0), Schedule(0, 1), Dispatch())]
    decode = timed(*steps)
    end = timed(Finish(0))
    replay = timed(Arrive(1, prompt), LookUp(1))
    hit = manager.apply(LookUp(1))
    return prefill, end, decode * 1000 / DECODE_STEPS, replay, getattr(hit, "tokens", 0)


def measure(operations: int, tokens: int, rounds: int) -> Iterator[Row]:
    """Operations a second by mechanism, the first one again at the end; then the pace of a long request."""
    names = mechanism_models()
    for name, what in [*((name, name) for name in names), (names[0], f"{names[0]}, again")]:
        paces = [operations_per_second(name, operations) for _ in range(rounds)]
        yield row_of(f"hostile operations: {what}", paces, "operations/s")
    for name in LONG_REQUESTS:
        prefill, end, decode, replay, hit = long_request(name, tokens)
        what = f"a request of {tokens:,} tokens: {name}"
        yield row_of(f"{what}, prefill", [tokens / prefill], "tokens/s")
        yield row_of(f"{what}, decode step", [decode], "ms")
        yield row_of(f"{what}, end", [end], "s")
        yield row_of(f"{what}, replay", [replay], "s")
        yield row_of(f"{what}, hit of the replay", [hit], "tokens")


def rows(quick: bool) -> Iterator[Row]:
    """The same; briefly with fewer operations and tokens."""
    return measure(1000, 65_536, 1) if quick else measure(20_000, 1_000_000, 3)


def mechanism_models() -> list[str]:
    """A model for each mechanism."""
    return list(dict.fromkeys(mechanism.models[0] for mechanism in MECHANISMS.values()))


def main() -> None:
    """Measure and print."""
    parser = options_of("reference", __doc__)
    parser.add_argument("--operations", type=at_least_one, default=20_000)
    parser.add_argument("--tokens", type=at_least_one, default=1_000_000)
    arguments = parser.parse_args()
    print_rows(measure(arguments.operations, arguments.tokens, 1), "the reference")


if __name__ == "__main__":
    end_with("reference", main)
