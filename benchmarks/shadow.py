"""What a shadow costs a live engine: the time of its steps and its requests a second, off, recording and checking.

One real engine on this machine's CPU serves the same requests again and again, with the shadow put in place and taken
away between rounds. The arms take turns (off, record, record, off; off, check, check, off), each round is set against
the one beside it that was off, and the median of the ratios is told: of the wall clock, and of the engine's own
processor time, which other work on the machine disturbs less. "off again" sets rounds that were off against each other:
it says how noisy the machine is, as do the quartiles. "within" is what noise disturbs least: how much of a step passes
in the shadow's own code in the engine, by a clock, in rounds of their own. The process beside the engine runs on
another core.

What a shadow takes does not depend on how long the model computes. So two models are measured, each in a process of its
own: a tiny one, whose step is far shorter than any that somebody would watch, and the same with more layers.

    python benchmarks/shadow.py [--model gemma-3] [--layers-times 1 7] [--rounds 10] [--requests 24]
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from unittest.mock import patch

from attrs import evolve, frozen

from kvgate.adapters.cpu_engine.checkpoint import write_model
from kvgate.adapters.cpu_engine.engine import prepare_environment, scheduler_of, start
from kvgate.adapters.cpu_engine.hybrids import HYBRIDS
from kvgate.kernel.shadow_switch import Mode, Switch
from kvgate.shadow.adapter.attachment import attach
from kvgate.shadow.adapter.observer import Observer
from kvgate.shadow.status import read_all

ARMS = ("off again", "record", "check")
LAYERS_TIMES = (1, 7)
ANSWERS = 24
CHECKPOINT_CALLS = 500
"""A fortieth of what it is unless somebody sets it: so few that a round has two or three checkpoints besides its first,
whatever share of the time they take."""
LOOKS = (
    "_added",
    "_begin_step",
    "_ended",
    "_registers",
    "after_allocate_slots",
    "after_cache_blocks",
    "after_can_fit_full_sequence",
    "after_evict_blocks",
    "after_free",
    "after_get_computed_blocks",
    "after_get_num_common_prefix_blocks",
    "after_make_prefix_cache_stats",
    "after_remove_skipped_blocks",
    "after_reset_prefix_cache",
)
"""What an observer does when the engine calls; none calls another."""
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


def deeper(model: str, times: int, folder: Path) -> Path:
    """A tiny model with so many times the layers."""
    tiny = HYBRIDS[model]
    layers = tiny.config["layer_types"] * times
    config = {**tiny.config, "num_hidden_layers": len(layers), "layer_types": layers}
    return write_model(evolve(tiny, config=config), folder / model)


def until(done: Callable[[], bool]) -> None:
    """Wait for the process beside the engine; not for ever."""
    end = time.monotonic() + WAIT_SECONDS
    while not done():
        if time.monotonic() > end:
            raise TimeoutError("the process beside the engine does not answer")
        time.sleep(0.01)


class Bench:
    """An engine, and how long its steps take."""

    def __init__(self, model: Path, count: int, folder: Path) -> None:
        from vllm import SamplingParams

        self.engine = start(model)
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
            shadow.share_of_time = 0
            until(lambda: bool(list(read_all(folder))))
        gc.collect()
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


def paired(bench: Bench, arm: str, rounds: int) -> list[tuple[Round, Round]]:
    """An arm's rounds, each with the one beside it that was off."""
    pairs: list[tuple[Round, Round]] = []
    for _ in range(rounds):
        first, second, third, fourth = (bench.measure(each) for each in ("off", arm, arm, "off"))
        pairs += [(second, first), (third, fourth)]
    return pairs


def within_us(bench: Bench, arm: str, rounds: int) -> float:
    """How many microseconds of a step pass in the shadow's own code in the engine; the median of some rounds."""
    spent = [0.0]

    def timed(look: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **others: Any) -> Any:
            begun = time.perf_counter()
            try:
                return look(*args, **others)
            finally:
                spent[0] += time.perf_counter() - begun

        return call

    found = []
    with ExitStack() as patches:
        for name in LOOKS:
            patches.enter_context(patch.object(Observer, name, timed(getattr(Observer, name))))
        for _ in range(rounds):
            spent[0], steps = 0.0, bench.steps
            bench.measure(arm)
            found.append(1e6 * spent[0] / (bench.steps - steps))
    return median(found)


def ratios(pairs: Sequence[tuple[Round, Round]]) -> dict[str, object]:
    """The medians of an arm's rounds, each set against the one beside it that was off."""
    steps = [one.step_seconds / off.step_seconds for one, off in pairs]
    lower, _, upper = quantiles(steps, n=4)
    return {
        "step time": round(median(steps), 4),
        "quartiles": [round(lower, 4), round(upper, 4)],
        "step processor time": round(median(one.step_cpu_seconds / off.step_cpu_seconds for one, off in pairs), 4),
        "requests a second": round(median(one.requests_per_second / off.requests_per_second for one, off in pairs), 4),
        "step off, ms": round(1000 * median(off.step_seconds for _, off in pairs), 3),
        "added, us": round(1e6 * median(one.step_seconds - off.step_seconds for one, off in pairs)),
        "added processor time, us": round(
            1e6 * median(one.step_cpu_seconds - off.step_cpu_seconds for one, off in pairs)
        ),
    }


def one_row(options: argparse.Namespace, times: int) -> dict[str, object]:
    """One model's ratios."""
    prepare_environment()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(deeper(options.model, times, Path(folder)), options.requests, Path(folder))
        bench.measure("off")
        found = {arm: ratios(paired(bench, arm, options.rounds)) for arm in ARMS}
        for arm in ARMS[1:]:
            found[arm]["within, us"] = round(within_us(bench, arm, options.rounds))
    about = {"model": options.model, "layers times": times, "requests": options.requests, "rounds": options.rounds}
    return {**about, "machine": platform.machine(), "to off": found}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the ratios as JSON, a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gemma-3", choices=tuple(HYBRIDS))
    parser.add_argument("--layers-times", type=int, nargs="+", default=list(LAYERS_TIMES))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--requests", type=int, default=24)
    options = parser.parse_args(arguments)
    if len(options.layers_times) == 1:
        print(json.dumps(one_row(options, options.layers_times[0])), flush=True)
        return
    for times in options.layers_times:
        same = ["--model", options.model, "--rounds", str(options.rounds), "--requests", str(options.requests)]
        subprocess.run([sys.executable, __file__, *same, "--layers-times", str(times)], check=True)


if __name__ == "__main__":
    main()
