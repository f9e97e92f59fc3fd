"""What simulating costs: simulated tokens a second of every arm, on one workload.

A *simulated token* is a token of a prompt or of an answer, whether it is computed or hits. Arms are timed by process
time, building apart, one after the other and then in reverse, in one process; the median over all rounds is reported,
with the spread of an arm against itself beside it. Short prompts measure what a request and a decode step cost, prompts
of a million tokens what a block costs.

    python -m benchmarks.simulation [--workload WORKLOAD] [--model NAME] [--blocks N] [--rounds 7] [--json]
    python -m benchmarks.simulation --workload replays:tokens=1000000,others=13 --model dsv4-flash --blocks 71833 \
        --policy masked+scratch --max-model-len 1048576 --arm ranges --rounds 3
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Sequence
from statistics import median

from benchmarks.program import at_least_one, end_with, options_of
from benchmarks.row import Row, ratio_row, row_of

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


def measure(setting: Setting, arms: Sequence[str], rounds: int) -> dict[str, list[Result]]:
    """Every arm's results: A B, B A, A B and so on."""
    served: dict[str, list[Result]] = {name: [] for name in arms}
    for number in range(rounds):
        for name in arms if number % 2 == 0 else tuple(reversed(arms)):
            served[name].append(arm_of(name).run(setting))
    return served


def tokens_simulated(result: Result) -> int:
    """All tokens of all prompts and answers that were served."""
    return sum(each.prompt_tokens + each.answer_tokens for each in result.served)


def figures(served: dict[str, list[Result]]) -> list[dict[str, object]]:
    """Per arm, tokens and requests a second, and how far its own rounds differ."""
    rows: list[dict[str, object]] = []
    for name, results in served.items():
        seconds = [result.seconds for result in results]
        tokens, requests = tokens_simulated(results[0]), len(results[0].served)
        rows.append(
            {
                "arm": name,
                "tokens_per_second": tokens / median(seconds),
                "requests_per_second": requests / median(seconds),
                "seconds": median(seconds),
                "slowest_by_fastest": max(seconds) / min(seconds),
                "hit_rate": results[0].hit_rate,
                "sound": results[0].soundness.sound,
            }
        )
    return rows


def rows(quick: bool) -> Iterator[Row]:
    """Simulated tokens a second of each arm, and the reference's arm set against the quick one."""
    load_of = "repeat-rate:input_tokens=8192,lanes=2,answer_tokens=16" if quick else WORKLOAD
    serving = Serving(MODEL, load(MODEL).geometry, BLOCKS, TOKENS_MAX)
    setting = Setting(workload_of(load_of), serving, policy_of("dense"))
    setting.check()
    served = measure(setting, ARMS_DEFAULT, 1 if quick else 7)
    paces = {name: [tokens_simulated(each) / each.seconds for each in results] for name, results in served.items()}
    for name, found in paces.items():
        yield row_of(name, found, "tokens/s")
    yield ratio_row("ranges", paces["ranges"], paces["reference"], "of the reference's pace")


def main() -> None:
    """Measure and print."""
    parser = options_of("simulation", __doc__)
    parser.add_argument("--workload", default=WORKLOAD)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--policy", default="dense")
    parser.add_argument("--max-model-len", type=int, default=TOKENS_MAX, dest="tokens_max")
    parser.add_argument("--arm", action="append", choices=tuple(ARMS), help="default: reference, ranges, retention")
    parser.add_argument("--rounds", type=at_least_one, default=7)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    serving = Serving(arguments.model, load(arguments.model).geometry, arguments.blocks, arguments.tokens_max)
    setting = Setting(workload_of(arguments.workload), serving, policy_of(arguments.policy))
    setting.check()
    served = measure(setting, arguments.arm or ARMS_DEFAULT, arguments.rounds)
    found = figures(served)
    tokens = max(tokens_simulated(results[0]) for results in served.values())
    wrong = disagreements([results[0] for results in served.values()])
    if arguments.json:
        about = {"workload": setting.workload.about, "tokens": tokens, "rounds": arguments.rounds}
        print(json.dumps({**about, "python": platform.python_version(), "arms": found, "different": wrong}, indent=2))
        return
    print(f"{setting.workload.about}: {tokens:,} tokens, {arguments.policy}, {arguments.model}")
    for row in found:
        pace = f"{row['tokens_per_second']:>13,.0f} tokens/s {row['requests_per_second']:>8,.1f} requests/s"
        print(f"{row['arm']:10} {pace}   rounds within a factor of {row['slowest_by_fastest']:.2f}")
    print("\n".join(wrong) or "the arms agree on every request")


if __name__ == "__main__":
    end_with("simulation", main)
