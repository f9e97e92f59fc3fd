"""Hit rates of chats of several turns, by what the plug-in keeps: vLLM 0.20.2's own engine on CPU, a tiny hybrid model.

Each chat begins with a system prompt that all share and tokens of its own; each later turn is all that came before, the
answer, and new tokens. All chats take their turns one after the other, and the pool has blocks for what full attention
keeps of all of them, but not for all windows as well. A hit rate is tokens that hit, of all tokens of the prompts after
the first turns. Every answer is compared with that of an engine without a cache, which has blocks for all.

    python -m benchmarks.chats [--model gpt-oss] [--json]
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from attrs import evolve
from benchmarks.harness import Row, end_with, options_of, print_rows, row_of

from kvgate.adapters.cpu_engine.engines import engines
from kvgate.adapters.cpu_engine.hybrids import BLOCK_SIZE_TOKENS, HYBRIDS, SPECIAL, VOCABULARY
from kvgate.adapters.cpu_engine.job import Ask, Job, JobResult
from kvgate.equality.table import compare

CHATS, TURNS = 16, 4
SYSTEM_TOKENS, OWN_TOKENS, TURN_TOKENS, ANSWER_TOKENS = 96, 416, 16, 16
LAST_TOKENS = SYSTEM_TOKENS + OWN_TOKENS + (TURNS - 1) * (TURN_TOKENS + ANSWER_TOKENS) + ANSWER_TOKENS
"""The length of a chat in the end."""
RUNNING = 1
"""How many requests are computed together."""

_RETENTION, _PINS = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL", {"VLLM_PIN_SWA_TOKENS": "1", "VLLM_PIN_MIN_DROP_SIZE": "1"}
ARMS: Mapping[str, Mapping[str, str]] = {
    "stock": {},
    "retention 0": {_RETENTION: "0"},
    "retention auto": {_RETENTION: "auto"},
    "retention 64": {_RETENTION: "64"},
    "pins": _PINS,
    "retention 0 and pins": {_RETENTION: "0", **_PINS},
}
"""By what is switched on, its variables. Prompts are shorter than 1,024 tokens, and so is the interval."""


def chats() -> tuple[tuple[Ask, ...], ...]:
    """The turns of all chats, a round for each turn."""
    chance = random.Random(0)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(chance.randrange(len(SPECIAL), VOCABULARY) for _ in range(count))

    system = tokens(SYSTEM_TOKENS)
    first = tuple(Ask((*system, *tokens(OWN_TOKENS))) for _ in range(CHATS))
    later = (
        tuple(Ask(tokens(TURN_TOKENS), after=(turn - 1) * CHATS + chat) for chat in range(CHATS))
        for turn in range(1, TURNS)
    )
    return first, *later


def pool_blocks(groups: int) -> int:
    """Blocks for what full attention keeps of all chats, and for all groups of the requests that run."""
    chat = -(-LAST_TOKENS // BLOCK_SIZE_TOKENS)
    return CHATS * chat + RUNNING * groups * chat


def hit_rate(result: JobResult) -> float:
    """Of the prompts after the first turns, in percent."""
    prompt = SYSTEM_TOKENS + OWN_TOKENS
    asked = sum(CHATS * (prompt + turn * (TURN_TOKENS + ANSWER_TOKENS)) for turn in range(1, TURNS))
    return 100 * sum(answer.cached_tokens for answer in result.answers[CHATS:]) / asked


def measure(model: str, arms: Mapping[str, Mapping[str, str]]) -> Iterator[Row]:
    """The hit rate of each arm, in percent, and how many answers are those without a cache."""
    options = {"enable_prefix_caching": False, "max_model_len": LAST_TOKENS, "max_num_seqs": RUNNING}
    plain = Job("without caching", model, chats(), ANSWER_TOKENS, options)
    blocks = pool_blocks(len(HYBRIDS[model].block_sizes_tokens))
    with engines() as started:
        expected = started.run(plain)
        for name, environment in arms.items():
            cached = {**options, "enable_prefix_caching": True, "num_gpu_blocks_override": blocks}
            result = started.run(evolve(plain, name=name, options=cached, environment=dict(environment)))
            cell = compare(model, name, expected, result)
            if result.error is not None:
                raise RuntimeError(f"{model}, {name}: the engine did not answer: {result.error}")
            yield row_of(f"{model}: {name}", [hit_rate(result)], "% hit")
            yield row_of(f"{model}: {name}, equal answers", [100 * (1 - cell.differ / cell.answers)], "%")


def rows(quick: bool) -> Iterator[Row]:
    """Two models; and two arms of one."""
    if quick:
        yield from measure("gpt-oss", {name: ARMS[name] for name in ("stock", "retention 0")})
        return
    for model in ("gpt-oss", "gemma-3"):
        yield from measure(model, ARMS)


def main() -> None:
    """Measure and print."""
    parser = options_of("chats", __doc__)
    parser.add_argument("--model", default="gpt-oss", choices=HYBRIDS)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    found = list(measure(arguments.model, ARMS))
    print_rows(found, f"{CHATS} chats of {TURNS} turns, {arguments.model}", arguments.json)


if __name__ == "__main__":
    end_with("chats", main)
