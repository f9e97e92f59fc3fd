"""A shadow of real engines: requests that it checks, and injected faults that it must report in time.

The fault's first wrong step is known without the reference. The same requests are served with it and without it, both
recorded, and the first call that the two do not share is in that step.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from attrs import evolve, field, frozen

from kvgate.adapters.cpu_engine.engines import Engines
from kvgate.adapters.cpu_engine.job import Ask, Job, JobResult
from kvgate.kernel.errors import SystemUnavailableError
from kvgate.shadow.calls import Checkpoint, End, Restart, Step
from kvgate.shadow.recording import SUFFIX, open_recording
from kvgate.shadow.recording_diff import diff_recordings
from kvgate.shadow.status import Status, read_all

FAULTS = ("last-token-ignored", "table-released-front-first", "window-hit-one-block-short")
"""Mutants that are injected into the engine: a foreign block is served, a table is freed front first, a hit is long."""
CAUGHT_UP_SECONDS_MAX = 300.0
_AT_THE_START = {"the first statistics after a restart": 1}
"""What no shadow can check of an engine that it finds running: what was counted before it came."""
_TOGETHER = 12
_ANSWER_TOKENS = 8
_FIRST_TOKEN, _VOCABULARY, _BLOCK_TOKENS = 4, 512, 16
_PLUG_INS = "swa_retention,kvgate_shadow"


@frozen
class Watched:
    """What a shadow reported of an engine that served."""

    model: str
    requests: int
    result: JobResult
    status: Status

    @property
    def is_silent(self) -> bool:
        """Whether every request was answered, and every call was checked and agreed."""
        status = self.status
        is_followed = status.judged > 0 and not status.lost and status.unjudged.items() <= _AT_THE_START.items()
        return is_followed and not status.differences and len(self.result.answers) == self.requests


@frozen
class Reported:
    """An injected fault."""

    name: str
    model: str
    first_wrong_step: int | None
    """By the recordings; None if the fault did nothing wrong."""
    reported_step: int | None
    """By the shadow; None if it reported nothing."""
    headline: str
    answered: int
    """Requests that were answered, of ``requests``."""
    requests: int

    @property
    def is_in_time(self) -> bool:
        """Whether it was reported within its first wrong step, and the server went on."""
        found = self.first_wrong_step is not None and self.reported_step == self.first_wrong_step
        return found and self.answered == self.requests


def requests(count: int, seed: int = 0) -> tuple[tuple[Ask, ...], ...]:
    """Prompts that share beginnings, in rounds; a few differ from another in one place alone."""
    chance = random.Random(seed)

    def random_prompt(length: int) -> tuple[int, ...]:
        return tuple(chance.randrange(_FIRST_TOKEN, _VOCABULARY) for _ in range(length))

    families = [random_prompt(chance.choice((48, 120, 200, 330))) for _ in range(12)]
    prompts = []
    for _ in range(count):
        family = chance.choice(families)
        shared = family[: chance.randrange(1, len(family) + 1)]
        if chance.random() < 0.1 and len(family) > 2 * _BLOCK_TOKENS:
            # Another token in the last place of a block.
            place = _BLOCK_TOKENS * chance.randrange(1, len(family) // _BLOCK_TOKENS) - 1
            shared = (*family[:place], _FIRST_TOKEN + chance.randrange(100), *family[place + 1 :])
        prompts.append(Ask((*shared, *random_prompt(chance.randrange(1, 20)))))
    return tuple(tuple(prompts[begin : begin + _TOGETHER]) for begin in range(0, count, _TOGETHER))


def shadowed_job(model: str, count: int, mode: str, folder: Path) -> Job:
    """An engine with a shadow in ``mode``, which writes to ``folder``."""
    return Job(
        name=f"shadow in {mode}",
        model=model,
        rounds=requests(count),
        answer_tokens=_ANSWER_TOKENS,
        options={"enable_prefix_caching": True, "num_gpu_blocks_override": 160, "max_model_len": 512},
        environment={"KVGATE_SHADOW": mode, "KVGATE_SHADOW_DIR": str(folder)},
        plug_ins=_PLUG_INS,
    )


def watched(engines: Engines, model: str, count: int, folder: Path) -> Watched:
    """Serve ``count`` requests with a shadow in check."""
    result = _served(engines, shadowed_job(model, count, "check", folder))
    return Watched(model, count, result, ended_status(folder))


def reported(engines: Engines, model: str, name: str, count: int, folder: Path) -> Reported:
    """Serve ``count`` requests without a fault and with it, recorded; and with it once more, with a shadow in check."""
    for mode, mutants, where in (("record", (), "sound"), ("record", (name,), "broken"), ("check", (name,), "check")):
        job = shadowed_job(model, count, mode, folder / where)
        result = _served(engines, evolve(job, mutants=mutants))
        status = ended_status(folder / where)
    return Reported(
        name=name,
        model=model,
        first_wrong_step=first_unlike_step(_recording(folder / "sound"), _recording(folder / "broken")),
        reported_step=_step_in(status.first),
        headline=status.first,
        answered=len(result.answers),
        requests=count,
    )


def first_unlike_step(one: Path, other: Path) -> int | None:
    """In which step of the engine two recordings part; None if they do not."""
    parting = diff_recordings(one, other)
    if parting.difference is None:
        return None
    step, calls = 0, 0
    for record in open_recording(other).records():
        if isinstance(record, (Checkpoint, Restart, End)):
            continue
        if calls > parting.shared:
            break
        step = record.number if isinstance(record, Step) else step
        calls += 1
    return step


def ended_status(folder: Path) -> Status:
    """The last status of the shadow of an engine that has ended, once it has checked everything.

    Raises:
        SystemUnavailableError: there was none, or it did not end.
    """
    until = time.monotonic() + CAUGHT_UP_SECONDS_MAX
    while True:
        there = list(read_all(folder))
        if there and there[-1].state == "ended":
            return there[-1]
        if time.monotonic() >= until:
            raise SystemUnavailableError(f"no shadow ended in {folder} within {CAUGHT_UP_SECONDS_MAX:g} s: {there}")
        time.sleep(0.2)


def _served(engines: Engines, job: Job) -> JobResult:
    result = engines.run(job)
    if result.error is not None:
        raise SystemUnavailableError(f"{job.model}, {job.name}: {result.error}")
    return result


def _recording(folder: Path) -> Path:
    found = sorted(folder.glob(f"*{SUFFIX}"))
    if len(found) != 1:
        raise SystemUnavailableError(f"{folder}: {len(found)} recordings, and one was expected")
    return found[0]


def _step_in(headline: str) -> int | None:
    """The step that a shadow's first line names: ``ID at step N: …``."""
    words = headline.split()
    return int(words[3].rstrip(":")) if words[1:3] == ["at", "step"] else None


@frozen
class Outcome:
    """What came of the requests without a fault, and of those with each."""

    watched: tuple[Watched, ...] = field(factory=tuple)
    reported: tuple[Reported, ...] = field(factory=tuple)

    @property
    def is_as_it_should_be(self) -> bool:
        """No difference without a fault, and each fault in time."""
        return all(each.is_silent for each in self.watched) and all(each.is_in_time for each in self.reported)


def run(
    engines: Engines,
    models: tuple[str, ...],
    count: int,
    folder: Path,
    report: Callable[[str], None] = lambda _text: None,
) -> Outcome:
    """``count`` requests over ``models``; then each fault, on one model after the other."""
    seen, found = [], []
    for model in models:
        report(f"{model}: a shadow in check")
        seen.append(watched(engines, model, -(-count // len(models)), folder / model))
    for index, name in enumerate(FAULTS):
        model = models[index % len(models)]
        report(f"{model}: injected {name}")
        found.append(reported(engines, model, name, max(24, count // 10), folder / name))
    return Outcome(tuple(seen), tuple(found))
