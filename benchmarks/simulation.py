"""What simulating costs: simulated tokens a second of every arm, on one workload.

A *simulated token* is a token of a prompt or of an answer, whether it is computed or hits. Arms are timed by process
time, without building, one after the other and then in reverse, in one process. The median over all rounds is reported,
next to the spread of an arm against itself. Short prompts measure what a request and a decode step cost, prompts of a
million tokens what a block costs.

    python -m benchmarks.simulation [--workload WORKLOAD] [--model NAME] [--blocks N] [--rounds 4] [--json]
    python -m benchmarks.simulation --workload replays:tokens=1000000,others=13 --model dsv4-flash --blocks 71833 \
        --policy masked+scratch --max-model-len 1048576 --arm ranges --rounds 3
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.harness import Row, at_least_one, end_with, options_of, print_rows, ratio_row, row_of, turns

from kvgate.kernel.models import load
from kvgate.simulation.arm import ARMS, Setting, arm_of
from kvgate.simulation.catalogue import workload_of
from kvgate.simulation.comparison import disagreements
from kvgate.simulation.policy import Serving, policy_of
from kvgate.simulation.result import Result

WORKLOAD = "repeat-rate:input_tokens=8192,lanes=8,answer_tokens=64"
MODEL = "dsv4-flash-ascend-32"
BLOCKS = 16_000
TOKENS_MAX = 135_000
ARMS_DEFAULT = ("reference", "ranges", "retention")


def tokens_simulated(result: Result) -> int:
    """All tokens of all prompts and answers that were served."""
    return sum(each.prompt_tokens + each.answer_tokens for each in result.served)


def measure(setting: Setting, arms: Sequence[str], rounds: int) -> tuple[list[Row], list[str]]:
    """Simulated tokens and requests a second of each arm, `ranges` against `reference`, and where the arms differ."""
    served = turns({name: partial(arm_of(name).run, setting) for name in arms}, rounds)
    paces = {name: [tokens_simulated(each) / each.seconds for each in found] for name, found in served.items()}
    found = [row_of(name, pace, "tokens/s") for name, pace in paces.items()]
    if {"ranges", "reference"} <= {*arms}:
        found.append(ratio_row("ranges", paces["ranges"], paces["reference"], "of the reference's pace"))
    for name, results in served.items():
        requests = len(results[0].served)
        found.append(row_of(f"{name}, requests", [requests / each.seconds for each in results], "requests/s"))
    return found, disagreements([results[0] for results in served.values()])


def setting_of(workload: str, model: str, blocks: int, tokens_max: int, policy: str) -> Setting:
    """What is simulated.

    Raises:
        UsageError: it cannot be.
    """
    setting = Setting(
        workload_of(workload), Serving(model, load(model).geometry, blocks, tokens_max), policy_of(policy)
    )
    setting.check()
    return setting


def rows(quick: bool) -> Iterator[Row]:
    """Simulated tokens a second of each arm, and the reference's arm set against the quick one."""
    workload = "repeat-rate:input_tokens=8192,lanes=2,answer_tokens=16" if quick else WORKLOAD
    found, _different = measure(
        setting_of(workload, MODEL, BLOCKS, TOKENS_MAX, "dense"), ARMS_DEFAULT, 1 if quick else 4
    )
    yield from (row for row in found if row.unit != "requests/s")


def main() -> None:
    """Measure and print."""
    parser = options_of("simulation", __doc__)
    parser.add_argument("--workload", default=WORKLOAD)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--policy", default="dense")
    parser.add_argument("--max-model-len", type=int, default=TOKENS_MAX, dest="tokens_max")
    parser.add_argument("--arm", action="append", choices=tuple(ARMS), help="default: reference, ranges, retention")
    parser.add_argument("--rounds", type=at_least_one, default=4)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    setting = setting_of(arguments.workload, arguments.model, arguments.blocks, arguments.tokens_max, arguments.policy)
    found, different = measure(setting, arguments.arm or ARMS_DEFAULT, arguments.rounds)
    print_rows(found, f"{setting.workload.about}, {arguments.policy}, {arguments.model}", arguments.json)
    print("\n".join(different) or "the arms agree on every request", file=sys.stderr if arguments.json else sys.stdout)


if __name__ == "__main__":
    end_with("simulation", main)
