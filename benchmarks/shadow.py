"""What a shadow costs a live engine: the processor time of its thread for a step, off, recording and checking.

A real engine on this machine's CPU serves the same requests again and again, 8, 64 or 256 at once. A round has a shadow
or not, in turns (off, record, record, off; off, check, check, off), and is set against the one next to it that was off.
"off again" sets rounds that were off against each other: it says how noisy the machine is. What is measured is the time
of the thread that schedules, computes and reads answers, as in an engine's own process; a tiny model computes, so a
real one has longer steps. The sidecar has a core of its own; where two cores share their units, as those of a virtual
machine may, its work makes the engine's slower all the same. So in one more arm it is stopped while the engine serves:
then only what the engine does itself is measured.

    python -m benchmarks --only shadow
"""

from __future__ import annotations

import gc
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, ratio_row, row_of

from kvgate.adapters.cpu_engine.checkpoint import write_model
from kvgate.adapters.cpu_engine.engine import prepare_environment, scheduler_of, start
from kvgate.adapters.cpu_engine.hybrids import HYBRIDS
from kvgate.kernel.shadow_switch import Mode, Switch
from kvgate.shadow.adapter.attachment import attach
from kvgate.shadow.status import read_all

ARMS = ("off again", "record", "check", "record, the sidecar stopped")
RUNNING = (8, 64, 256)
"""How many requests decode at once."""
ANSWER_TOKENS = 96
WAIT_SECONDS = 120.0
OFF = "of the engine without a shadow"


def prompts(count: int) -> list[dict[str, list[int]]]:
    """Prompts of which many share a beginning."""
    draw = random.Random(0)
    shared = [[draw.randrange(3, 512) for _ in range(64)] for _ in range(4)]
    return [
        {"prompt_token_ids": [*draw.choice(shared), *(draw.randrange(3, 512) for _ in range(draw.randrange(8, 64)))]}
        for _ in range(count)
    ]


def until(done: Callable[[], bool]) -> None:
    """Wait for the sidecar, within a limit."""
    end = time.monotonic() + WAIT_SECONDS
    while not done():
        if time.monotonic() > end:
            raise TimeoutError("the sidecar does not answer")
        time.sleep(0.01)


class Bench:
    """An engine that serves ``running`` requests at once, and how long its thread takes for a step."""

    def __init__(self, running: int, folder: Path) -> None:
        from vllm import SamplingParams

        self.folder = folder
        self.prompts: Any = prompts(running)
        self.sampling = SamplingParams(temperature=0, max_tokens=ANSWER_TOKENS, ignore_eos=True, detokenize=False)
        self.engine = start(
            write_model(HYBRIDS["gemma-3"], folder / "model"),
            max_num_seqs=running,
            max_num_batched_tokens=max(256, 2 * running),
            num_gpu_blocks_override=400 + 48 * running,
        )
        self._seconds: list[float] = []
        core: Any = self.engine.llm_engine.engine_core
        step = core.engine_core.step_fn

        def timed() -> Any:
            begun = time.thread_time()
            try:
                return step()
            finally:
                self._seconds.append(time.thread_time() - begun)

        core.engine_core.step_fn = timed

    def measure(self, arm: str) -> float:
        """Serve all prompts, with or without a shadow: seconds of the engine's thread for a step."""
        scheduler = scheduler_of(self.engine)
        scheduler.reset_prefix_cache()
        shadow: Any = None
        mode, _, is_stopped = arm.partition(", ")
        if mode in ("record", "check"):
            folder = Path(tempfile.mkdtemp(dir=self.folder))
            shadow = attach(scheduler, Switch(Mode(mode), folder))
            assert shadow is not None, "the engine has no shadow"
            until(lambda: bool(list(read_all(folder))))
            (before,) = read_all(folder)
            if is_stopped:
                os.kill(before.pid, signal.SIGSTOP)
        gc.collect()
        self._seconds.clear()
        self.engine.generate(self.prompts, self.sampling, use_tqdm=False)
        taken = sum(self._seconds) / len(self._seconds)
        if shadow is not None:
            os.kill(before.pid, signal.SIGCONT)
            shadow.end()
            shadow.sink.close()
            until(lambda: all(status.state == "ended" for status in read_all(folder)))
            (status,) = read_all(folder)
            assert (status.differences, status.lost, status.unwritten) == (0, 0, 0), status
        return taken

    def pairs(self, arm: str, rounds: int) -> tuple[list[float], list[float]]:
        """An arm's rounds, and those next to them that were off."""
        ours, off = [], []
        for _ in range(rounds):
            first, second, third, fourth = (self.measure(each) for each in ("off", arm, arm, "off"))
            ours += [second, third]
            off += [first, fourth]
        return ours, off


def rows(quick: bool) -> Iterator[Row]:
    """Each arm's rounds, each set against the one next to it that had no shadow."""
    rounds = 1 if quick else 7
    prepare_environment()
    for running in RUNNING[:1] if quick else RUNNING:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(running, Path(folder))
            bench.measure("off")
            for arm in ARMS:
                ours, off = bench.pairs(arm, rounds)
                yield ratio_row(f"{running} requests, {arm}: the engine's thread, a step", ours, off, OFF)
                added = [1e6 * (mine - base) for mine, base in zip(ours, off, strict=True)]
                yield row_of(f"{running} requests, {arm}: what is added to a step", added, "us")
            del bench
