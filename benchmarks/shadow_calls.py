"""What a shadow costs in the engine, in microseconds: for a step, a request in it, a prompt, and a checkpoint.

vLLM's own scheduler serves without a model, so that nothing else takes time: so many requests decode, a token each in
every step. Steps with a shadow and steps without take turns; the result is the difference of the medians of this
process's processor time. The sidecar has a core of its own; its time is not the engine's time.

    python -m benchmarks.shadow_calls [--model gemma-hybrid] [--mode record] [--quick]
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import Row, end_with, options_of, print_rows, row_of

from kvgate.kernel.models import load
from kvgate.kernel.shadow_switch import Mode, Switch
from kvgate.levels.scheduler.adapter.arrivals import new_request
from kvgate.levels.scheduler.adapter.names import number_in
from kvgate.levels.scheduler.adapter.stage import new_scheduler
from kvgate.levels.scheduler.adapter.worker import abort, answer
from kvgate.levels.scheduler.operations import Stage
from kvgate.shadow.adapter.attachment import attach
from kvgate.shadow.status import read_all
from kvreference.operations import Arrive, Run
from kvreference.scheduler.operations import Submit
from kvreference.settings import Settings

RUNNING = (8, 64, 256)
"""How many requests decode at once."""
BLOCKS = 100_000
PROMPT_TOKENS = 64
PROMPT_LONG_TOKENS = 65_536
STEPS_MAX = 4096
CALLS_MANY = 10**9
"""So that no checkpoint falls among the steps: it is measured by itself."""
CHECKPOINT_PAUSE_SECONDS = 1.0
"""How long the sidecar gets to process one, so that there is room for the next."""
WAIT_SECONDS = 60.0


class Engine:
    """An engine whose model answers at once."""

    def __init__(self, model: str, running: int) -> None:
        geometry = load(model).geometry
        tokens_max = PROMPT_LONG_TOKENS + STEPS_MAX
        self.settings = Settings(geometry, BLOCKS, tokens_max, chunk_tokens=2 * PROMPT_LONG_TOKENS)
        self.scheduler: Any = new_scheduler(self.settings, Stage(running_max=running))
        self._numbers = count()

    def arrive(self, tokens: int, answers: int) -> None:
        """A request that shares nothing."""
        number = next(self._numbers)
        arrival = Arrive(number, (Run(number * PROMPT_LONG_TOKENS, tokens),))
        self.scheduler.add_request(new_request(self.settings, Submit(arrival, answers)))

    def step(self) -> float:
        """One step; how much processor time the scheduler took for it, in microseconds."""
        begun = time.process_time_ns()
        output = self.scheduler.schedule()
        taken = time.process_time_ns() - begun
        names = list(output.num_scheduled_tokens)
        answered = answer(names, {number_in(name): [1] for name in names})
        begun = time.process_time_ns()
        self.scheduler.update_from_output(output, answered)
        return (taken + time.process_time_ns() - begun) / 1000

    def clear(self) -> None:
        """Finish all requests and empty the cache."""
        for name in list(self.scheduler.requests):
            abort(self.scheduler, [number_in(name)])
        self.step()
        assert self.scheduler.reset_prefix_cache()


class Shadow:
    """A shadow that is there for a while."""

    def __init__(self, engine: Engine, mode: Mode, folder: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        self.observer = attach(engine.scheduler, Switch(mode, self.folder, checkpoint_calls=CALLS_MANY))
        assert self.observer is not None, "the scheduler has no shadow"
        self._until(lambda: bool(list(read_all(self.folder))))

    def _until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_SECONDS
        while not done():
            assert time.monotonic() < end, "the sidecar does not answer"
            time.sleep(0.01)

    def end(self) -> None:
        """It is gone, and has lost nothing."""
        self.observer.end()
        self.observer.sink.close()
        self._until(lambda: all(status.state == "ended" for status in read_all(self.folder)))
        (status,) = read_all(self.folder)
        assert (status.differences, status.lost, status.unwritten) == (0, 0, 0), status


class Bench:
    """The measurements. Each is one figure for each round."""

    def __init__(self, model: str, mode: Mode, rounds: int, steps: int, folder: Path) -> None:
        self.model, self.mode, self.rounds, self.steps, self.folder = model, mode, rounds, steps, folder

    def decoding(self, running: int) -> tuple[list[float], list[float]]:
        """Microseconds of a step in which so many requests decode, without a shadow; and what one adds."""
        engine = Engine(self.model, running)
        for _ in range(running):
            engine.arrive(PROMPT_TOKENS, STEPS_MAX)
        engine.step()
        without, added = [], []
        for _ in range(self.rounds):
            without.append(median(engine.step() for _ in range(self.steps)))
            shadow = Shadow(engine, self.mode, self.folder)
            added.append(median(engine.step() for _ in range(self.steps)) - without[-1])
            shadow.end()
        return without, added

    def prompt(self) -> tuple[list[float], list[float]]:
        """Microseconds for a thousand tokens of a long prompt that arrives and is admitted: the same two."""
        engine = Engine(self.model, 1)
        self._prompt_us(engine)
        without, added = [], []
        for _ in range(self.rounds):
            without.append(self._prompt_us(engine))
            shadow = Shadow(engine, self.mode, self.folder)
            added.append(self._prompt_us(engine) - without[-1])
            shadow.end()
        return without, added

    def _prompt_us(self, engine: Engine) -> float:
        engine.clear()
        begun = time.process_time_ns()
        engine.arrive(PROMPT_LONG_TOKENS, 1)
        return ((time.process_time_ns() - begun) / 1000 + engine.step()) * 1000 / PROMPT_LONG_TOKENS

    def checkpoint(self) -> list[float]:
        """Milliseconds that the engine waits for a checkpoint of a hundred thousand blocks, most of them cached."""
        engine = Engine(self.model, 1)
        pool = engine.scheduler.kv_cache_manager.block_pool
        cached = -1
        while len(pool.cached_block_hash_to_block._cache) > cached:
            cached = len(pool.cached_block_hash_to_block._cache)
            engine.arrive(PROMPT_LONG_TOKENS, 1)
            engine.step()
        assert cached > 0.9 * BLOCKS, f"{cached} blocks are cached"
        shadow = Shadow(engine, self.mode, self.folder)
        taken = []
        for _ in range(self.rounds):
            begun = time.perf_counter()
            shadow.observer._emit_checkpoint()
            taken.append(1000 * (time.perf_counter() - begun))
            time.sleep(CHECKPOINT_PAUSE_SECONDS)
        shadow.end()
        return taken


def rows(quick: bool, model: str = "gemma-hybrid", mode: Mode = Mode.RECORD) -> Iterator[Row]:
    """Processor time of the engine, with how far the rounds lay apart."""
    rounds, steps = (1, 20) if quick else (7, 200)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(model, mode, rounds, steps, Path(folder))
        for running in RUNNING:
            without, added = bench.decoding(running)
            yield row_of(f"a step of {running} requests that decode, without a shadow", without, "us")
            yield row_of(f"what {mode.value} adds to it", added, "us")
        without, added = bench.prompt()
        yield row_of("1000 tokens of a prompt that arrives, without a shadow", without, "us")
        yield row_of(f"what {mode.value} adds to them", added, "us")
        yield row_of("a checkpoint of 100,000 blocks", bench.checkpoint(), "ms")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each figure: its median, and the rounds that lay farthest apart."""
    parser = options_of("shadow_calls", __doc__)
    parser.add_argument("--model", default="gemma-hybrid")
    parser.add_argument("--mode", choices=("record", "check"), default="record")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    print_rows(rows(options.quick, options.model, Mode(options.mode)), f"{options.model}, {options.mode}")


if __name__ == "__main__":
    end_with("shadow_calls", main)
