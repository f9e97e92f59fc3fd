"""What exploring costs: states and edges a second, per tiny model, in one process.

Every search is cut off at the same number of states and timed by process time. A round is a fresh search of every
model, and the median of all rounds is reported.

    python -m benchmarks.explore [--states 3000] [--rounds 3] [--deep]
"""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Iterator, Sequence
from statistics import median

from attrs import frozen
from benchmarks.program import at_least_one, end_with, options_of
from benchmarks.row import Row, row_of

from kvgate.explore.exploration import Limits
from kvgate.explore.search import Search
from kvgate.explore.tiny_models import MODELS


@frozen
class Pace:
    """How fast one search was."""

    states_per_second: float
    edges_per_second: float


def search(name: str, deep: bool, states_max: int) -> Pace:
    """Explore one model up to a limit."""
    world = MODELS[name].world(deep)
    started = time.process_time()
    seen = Search(world, Limits(states_max, math.inf)).run()
    seconds = time.process_time() - started
    return Pace(seen.states / seconds, seen.edges / seconds)


def typical(paces: Sequence[Pace]) -> Pace:
    """The medians."""
    return Pace(median(pace.states_per_second for pace in paces), median(pace.edges_per_second for pace in paces))


def rows(quick: bool) -> Iterator[Row]:
    """States a second of every tiny model."""
    for name in MODELS:
        paces = [search(name, False, 300 if quick else 3000) for _ in range(1 if quick else 3)]
        yield row_of(name, [pace.states_per_second for pace in paces], "states/s")


def main() -> None:
    """Measure and print."""
    parser = options_of("explore", __doc__)
    parser.add_argument("--states", type=at_least_one, default=3000, help="how many states each search visits at most")
    parser.add_argument("--rounds", type=at_least_one, default=3)
    parser.add_argument("--deep", action="store_true", help="the deeper variant of each model")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    rounds = [
        {name: search(name, arguments.deep, arguments.states) for name in MODELS} for _ in range(arguments.rounds)
    ]
    paces = {name: typical([paces[name] for paces in rounds]) for name in MODELS}
    if arguments.json:
        figures = {name: [pace.states_per_second, pace.edges_per_second] for name, pace in paces.items()}
        print(json.dumps({"states_and_edges_per_second": figures}, indent=1))
        return
    print(f"{platform.machine()}, Python {platform.python_version()}, {arguments.rounds} rounds")
    print(f"{'model':<16} {'states/s':>10} {'edges/s':>10}")
    for name, pace in paces.items():
        print(f"{name:<16} {pace.states_per_second:>10,.0f} {pace.edges_per_second:>10,.0f}")


if __name__ == "__main__":
    end_with("explore", main)
