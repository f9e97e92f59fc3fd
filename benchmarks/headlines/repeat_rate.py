"""Rows 1 to 8: the prefix-cache benchmark on vLLM-Ascend, with 90 % of every prompt shared."""

from __future__ import annotations

from attrs import evolve
from benchmarks.headlines.figure import Accepts, Case, Figure

from kvgate.simulation.arm import Setting
from kvgate.simulation.generators import repeat_rate
from kvgate.simulation.policy import Serving, policy_of
from kvreference.compressed import dsv4_flash_ascend

BLOCKS = 4000
"""The pool at block size 128. It was not published: this is a middling one of those that a device has."""
REPORT = "vllm-ascend pull request 10193"
SIBLING = "vllm-ascend pull request 10354"
POOL = f"a pool of {BLOCKS:,} blocks at block size 128, and of as many bytes at others: it was not published"
PROMPTS = "four prompts per lane, the chat template's four tokens around each"
WARM = "the bare prefix was sent before"


def _server(block_size: int, blocks: int = BLOCKS, mtp: bool = False) -> Serving:
    """vLLM-Ascend's groups; a pool of ``blocks`` blocks of 128 has the bytes of twice as many of 64."""
    geometry = dsv4_flash_ascend(block_size, mtp=mtp)
    name = f"dsv4-flash-ascend-{block_size}" + ("+mtp" if mtp else "")
    return Serving(name, geometry, blocks * 128 // block_size, tokens_max=135_000, chunk_tokens=8192)


def _case(
    name: str,
    input_tokens: int,
    lanes: int,
    serving: Serving,
    expected: float | None = None,
    policy: str = "dense",
    warm: bool = True,
    prompts: int | None = None,
    arms: tuple[str, ...] = ("reference", "retention"),
) -> Case:
    """One simulation of the benchmark."""
    workload = repeat_rate(input_tokens, 1024, lanes, warm=warm, prompts=prompts)
    return Case(name, Setting(workload, serving, policy_of(policy)), expected, arms)


def _row_5() -> Figure:
    def at(blocks: int, warm: bool, mtp: bool, *arms: str) -> Case:
        name = f"P = {blocks:,}, {'warm' if warm else 'cold'}, {'MTP, 0.6 accepted' if mtp else 'no MTP'}"
        serving = _server(128, blocks, mtp)
        if mtp:
            serving = evolve(serving, drafts_max=1, acceptance=0.6)
        return _case(name, 32768, 32, serving, warm=warm, arms=arms)

    return Figure(
        "5",
        "32k x 32, block size 128",
        "44.53 %",
        REPORT,
        Accepts.BRACKET,
        (
            at(4340, False, True, "reference", "retention"),
            at(4600, False, True, "reference"),
            at(4340, True, False, "reference"),
        ),
        ("the pool, whether the cache was warm, and how many drafts held were not published", PROMPTS),
        44.53,
    )


def _row_6() -> Figure:
    return Figure(
        "6",
        "8k x 32, block size 32 only",
        "49.67 %",
        REPORT,
        Accepts.BRACKET,
        (
            _case("160 prompts, cold, large pool", 8192, 32, _server(32, 12_000), warm=False, prompts=160),
            *(
                _case(
                    f"{prompts} prompts, cold, large pool",
                    8192,
                    32,
                    _server(32, 12_000),
                    warm=False,
                    prompts=prompts,
                    arms=("ranges",),
                )
                for prompts in (128, 192)
            ),
        ),
        ("how many prompts were sent, and the pool, were not published: 160 was chosen because it is near",),
        49.67,
    )


def _partial(number: str, input_tokens: int, published: float, cases: tuple[tuple[int, int, bool], ...]) -> Figure:
    first = True
    made = []
    for block_size, blocks, warm in cases:
        name = f"block size {block_size}, P = {blocks:,}, {'warm' if warm else 'cold'}"
        arms = ("reference", "retention") if first else ("reference",)
        first = False
        made.append(_case(name, input_tokens, 32, _server(block_size, blocks), policy="partial", warm=warm, arms=arms))
    return Figure(
        number,
        f"{input_tokens // 1024}k x 32, with partial hits",
        f"{published:.2f} %",
        REPORT,
        Accepts.BRACKET,
        tuple(made),
        (
            "hits end at multiples of 128 tokens, and every block served holds what it should: none of the cases "
            "gives as little as was published",
            PROMPTS,
        ),
        published,
    )


def _exact(number: str, what: str, published: str, source: str, *cases: Case) -> Figure:
    return Figure(number, what, published, source, Accepts.EXACT, cases, (POOL, PROMPTS, WARM))


FIGURES = (
    _exact("1", "8k x 32, block size 128", "0.00 %", REPORT, _case("block size 128", 8192, 32, _server(128), 0.0)),
    _exact("2", "8k x 32, block size 32", "48.80 %", SIBLING, _case("block size 32", 8192, 32, _server(32), 48.80)),
    _exact(
        *("3", "32k x 8, block size 32 / 64", "87.49 / 74.99 %", SIBLING),
        _case("block size 32", 32768, 8, _server(32), 87.49),
        _case("block size 64", 32768, 8, _server(64), 74.99),
    ),
    _exact("4", "32k x 8, block size 128", "45.31 %", SIBLING, _case("block size 128", 32768, 8, _server(128), 45.31)),
    _row_5(),
    _row_6(),
    _partial("7", 8192, 81.54, ((128, BLOCKS, True), (32, BLOCKS, True))),
    _partial("8", 32768, 77.70, ((128, 4340, True), (32, 4600, True))),
)
