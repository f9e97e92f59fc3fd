"""What a shadow costs a live engine: the time of its steps and its requests a second, off, recording and checking.

One real engine on this machine's CPU serves the same requests again and again, with the shadow put in place and taken
away between rounds. The arms take turns (off, record, record, off; off, check, check, off), each round is set against
the one beside it that was off, and the median of the ratios is told: of the wall clock, and of the engine's own
processor time, which other work on the machine disturbs less. "off again" sets rounds that were off against each other:
it says how noisy the machine is. The process beside the engine runs on another core.

    python benchmarks/shadow.py [--model gemma-3] [--rounds 5] [--requests 24]
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from attrs import frozen

from kvgate.adapters.cpu_engine.checkpoint import model_in
from kvgate.adapters.cpu_engine.engine import prepare_environment, scheduler_of, start
from kvgate.adapters.shadow.attaching import attach
from kvgate.shadow.status import read_all
from kvgate.shadow.switch import Mode, Switch

ARMS = ("off again", "record", "check")
ANSWERS = 24
CHECKPOINT_CALLS = 200
"""So few that a round has a checkpoint besides the one that it begins with."""
WAIT_SECONDS = 120.0


@frozen
class Round:
    """One batch of requests."""

    step_seconds: float
    step_cpu_seconds: float
    requests_per_second: float


def prompts(count: int) -> list[dict[str, list[int]]]:
    """Prompts of which many share a beginning."""
    draw = random.Random(0)
    shared = [[draw.randrange(3, 512) for _ in range(192)] for _ in range(4)]
    return [
        {"prompt_token_ids": [*draw.choice(shared), *(draw.randrange(3, 512) for _ in range(draw.randrange(16, 96)))]}
        for _ in range(count)
    ]


def until(done: Callable[[], bool]) -> None:
    """Wait for the process beside the engine; not for ever."""
    end = time.monotonic() + WAIT_SECONDS
    while not done():
        if time.monotonic() > end:
            raise TimeoutError("the process beside the engine does not answer")
        time.sleep(0.01)


class Bench:
    """An engine, and how long its steps take."""

    def __init__(self, model: str, count: int, folder: Path) -> None:
        from vllm import SamplingParams

        self.engine = start(model_in(folder, model))
        self.folder = folder
        self.prompts: Any = prompts(count)
        self.sampling = SamplingParams(temperature=0, max_tokens=ANSWERS, ignore_eos=True, detokenize=False)
        self.steps = 0
        scheduler = scheduler_of(self.engine)
        schedule = scheduler.schedule

        def counted() -> Any:
            self.steps += 1
            return schedule()

        scheduler.schedule = counted

    def measure(self, arm: str) -> Round:
        """Serve all prompts, with or without a shadow."""
        scheduler = scheduler_of(self.engine)
        scheduler.reset_prefix_cache()
        shadow: Any = None
        if arm in ("record", "check"):
            folder = Path(tempfile.mkdtemp(dir=self.folder))
            shadow = attach(scheduler, Switch(Mode(arm), folder, checkpoint_calls=CHECKPOINT_CALLS))
            assert shadow is not None, "the engine has no shadow"
            until(lambda: bool(list(read_all(folder))))
        steps, wall, cpu = self.steps, time.perf_counter(), time.process_time()
        self.engine.generate(self.prompts, self.sampling, use_tqdm=False)
        wall, cpu, steps = time.perf_counter() - wall, time.process_time() - cpu, self.steps - steps
        if shadow is not None:
            shadow.end()
            shadow.sink.close()
            until(lambda: all(status.state == "ended" for status in read_all(folder)))
            (status,) = read_all(folder)
            assert (status.differences, status.lost, status.unwritten) == (0, 0, 0), status
            assert status.checkpoints or arm == "record", "no checkpoint fell into the round"
        return Round(wall / steps, cpu / steps, len(self.prompts) / wall)


def ratios(bench: Bench, arm: str, rounds: int) -> dict[str, float]:
    """The medians of an arm's rounds, each set against the one beside it that was off."""
    pairs: list[tuple[Round, Round]] = []
    for _ in range(rounds):
        first, second, third, fourth = (bench.measure(each) for each in ("off", arm, arm, "off"))
        pairs += [(second, first), (third, fourth)]
    return {
        "step time": median(one.step_seconds / off.step_seconds for one, off in pairs),
        "step processor time": median(one.step_cpu_seconds / off.step_cpu_seconds for one, off in pairs),
        "requests a second": median(one.requests_per_second / off.requests_per_second for one, off in pairs),
        "step, ms": 1000 * median(one.step_seconds for one, _ in pairs),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the ratios as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gemma-3")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=24)
    options = parser.parse_args(arguments)
    prepare_environment()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options.model, options.requests, Path(folder))
        bench.measure("off")
        found = {arm: ratios(bench, arm, options.rounds) for arm in ARMS}
    told = {arm: {name: round(value, 4) for name, value in each.items()} for arm, each in found.items()}
    about = {"model": options.model, "requests": options.requests, "rounds": options.rounds}
    print(json.dumps({**about, "machine": platform.machine(), "ratios to off": told}, indent=2))


if __name__ == "__main__":
    main()
