"""What exploring costs: states and edges a second, per tiny model, in one process.

Every search is cut off at the same number of states and timed by process time. A round is a fresh search of every
model, and the median of all rounds is reported.

    python -m benchmarks.explore [--states 3000] [--rounds 3] [--deep]
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from benchmarks.harness import Row, at_least_one, end_with, options_of, print_rows, row_of

from kvgate.explore.exploration import Limits
from kvgate.explore.search import Search
from kvgate.explore.tiny_models import MODELS


def search(name: str, deep: bool, states_max: int) -> tuple[float, float]:
    """Explore one model up to a limit; states and edges a second."""
    world = MODELS[name].world(deep)
    started = time.process_time()
    seen = Search(world, Limits(states_max, math.inf)).run()
    seconds = time.process_time() - started
    return seen.states / seconds, seen.edges / seconds


def measure(deep: bool, states_max: int, rounds: int) -> Iterator[Row]:
    """States and edges a second of every tiny model."""
    for name in MODELS:
        states, edges = zip(*(search(name, deep, states_max) for _ in range(rounds)), strict=True)
        yield row_of(name, states, "states/s")
        yield row_of(f"{name}, edges", edges, "edges/s")


def rows(quick: bool) -> Iterator[Row]:
    """States a second of every tiny model."""
    return (row for row in measure(False, 300 if quick else 3000, 1 if quick else 3) if row.unit == "states/s")


def main() -> None:
    """Measure and print."""
    parser = options_of("explore", __doc__)
    parser.add_argument("--states", type=at_least_one, default=3000, help="how many states each search visits at most")
    parser.add_argument("--rounds", type=at_least_one, default=3)
    parser.add_argument("--deep", action="store_true", help="the deeper variant of each model")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    found = measure(arguments.deep, arguments.states, arguments.rounds)
    print_rows(found, f"{arguments.states:,} states each", arguments.json)


if __name__ == "__main__":
    end_with("explore", main)
