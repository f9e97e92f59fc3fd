"""Hit rates of prompts that share a system prompt, by what the plug-in retains: vLLM 0.20.2's scheduler, in simulation.

Each prompt is a system prompt of 2,048 tokens that all share, and 200 tokens of the user's own; the chat template adds
4. The cache is empty at first. A hit rate is tokens that hit, of all tokens of all prompts. It depends on how many
prompts there are: the first one hits nothing, and where junctions are kept the second does not either.

    python -m benchmarks.shared_prompt [--model gpt-oss-hybrid] [--users 400] [--lanes 4] [--json]
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.harness import Row, at_least_one, end_with, options_of, print_rows, row_of

from kvgate.kernel.models import load
from kvgate.simulation.arm import Setting, arm_of
from kvgate.simulation.catalogue import workload_of
from kvgate.simulation.policy import Serving, policy_of

POLICIES = {
    "stock": "dense",
    "retention 0, no junctions": "retention=0+scratch",
    "retention 0": "retention=0+junctions+scratch",
    "retention auto, no junctions": "retention=auto+scratch",
    "retention auto": "retention=auto+junctions+scratch",
    "retention 1024": "retention=1024+junctions+scratch",
    "pins": "pinned",
    "retention 0 and pins": "retention=0+junctions+scratch+pinned",
    "retention 0 and pins, no junctions": "retention=0+scratch+pinned",
}
"""By what is switched on; with an interval, the plug-in keeps junctions unless that is switched off."""
MODEL, USERS, LANES, BLOCKS = "gpt-oss-hybrid", 400, 4, 20_000
SYSTEM_TOKENS, OWN_TOKENS, ANSWER_TOKENS = 2048, 200, 32


def measure(model: str, users: int, lanes: int) -> Iterator[Row]:
    """The hit rate of each policy, in percent."""
    # Half a token more: a rate is rounded down to whole tokens.
    rate = (SYSTEM_TOKENS + 0.5) / (SYSTEM_TOKENS + OWN_TOKENS)
    workload = workload_of(
        f"repeat-rate:input_tokens={SYSTEM_TOKENS + OWN_TOKENS},rate={rate:.6f},lanes={lanes},prompts={users},"
        f"answer_tokens={ANSWER_TOKENS},warm=no"
    )
    for name, words in POLICIES.items():
        setting = Setting(workload, Serving(model, load(model).geometry, BLOCKS), policy_of(words))
        setting.check()
        yield row_of(f"{name}, {users} users", [100 * arm_of("retention").run(setting).hit_rate], "% hit")


def rows(quick: bool) -> Iterator[Row]:
    """Many users; and as few as make the second request count."""
    yield from measure(MODEL, 20, 1)
    if not quick:
        yield from measure(MODEL, USERS, LANES)


def main() -> None:
    """Measure and print."""
    parser = options_of("shared_prompt", __doc__)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--users", type=at_least_one, default=USERS)
    parser.add_argument("--lanes", type=at_least_one, default=LANES)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    found = list(measure(arguments.model, arguments.users, arguments.lanes))
    print_rows(found, f"a shared system prompt of {SYSTEM_TOKENS} tokens, {arguments.model}", arguments.json)


if __name__ == "__main__":
    end_with("shared_prompt", main)
