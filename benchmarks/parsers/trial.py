"""One input, tried: accepted, refused in words, or something else, which is a defect."""

from __future__ import annotations

import resource
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType

from attrs import frozen
from benchmarks.parsers.change import changed
from benchmarks.parsers.entrance import Entrance

SECONDS_MAX = 5.0
"""How much processor time one input may take: most take less than a thousandth of it."""
SMALLER_SECONDS = 10.0
"""How much processor time it may take to make an input smaller."""
MEMORY_BYTES_MAX = 2**29
"""How much address space a worker may take, beyond what it has once all parsers are loaded."""


class TooLongError(BaseException):
    """An input took more than its time. No ``except Exception`` of a parser catches it."""


@frozen
class Defect:
    """What an input did that it must not."""

    kind: str
    """What was raised, and where: the same defect has the same kind."""
    told: str


def input_of(entrance: Entrance, seeds: Sequence[bytes], seed: int, number: int) -> bytes:
    """The input with a number: always the same, whoever asks."""
    return changed(Random(f"{seed}/{entrance.name}/{number}"), seeds, entrance.form)


def attempt(entrance: Entrance, data: bytes, folder: Path) -> Defect | bool:
    """Whether an input is accepted; or the defect that it shows."""
    try:
        with _within(SECONDS_MAX):
            entrance.take(data, folder)
    except entrance.refusals as error:
        if str(error).strip():
            return False
        return Defect(f"{type(error).__name__} without a word", traceback.format_exc())
    except TooLongError:
        return Defect(f"more than {SECONDS_MAX:g} s in {_place(traceback.extract_stack())}", "")
    except Exception as error:
        place = _place(traceback.extract_tb(error.__traceback__))
        return Defect(f"{type(error).__name__} in {place}", traceback.format_exc(limit=-12)[-8000:])
    return True


def _place(frames: traceback.StackSummary) -> str:
    """The innermost function of a package that is ours."""
    ours = [frame for frame in frames if "/kvgate/" in frame.filename or "/kvreference/" in frame.filename]
    frame = (ours or list(frames))[-1]
    return f"{Path(frame.filename).name}:{frame.name}"


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    def too_long(_number: int, _frame: FrameType | None) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def bound_memory() -> None:
    """From here on this process takes so much memory more, and no more: what wants more gets a MemoryError."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + MEMORY_BYTES_MAX
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def smaller(entrance: Entrance, data: bytes, defect: Defect, folder: Path) -> bytes:
    """The input with whatever is not needed for the same defect left out, as far as its time gets."""
    piece, until = len(data) // 2, time.process_time() + SMALLER_SECONDS
    while piece and time.process_time() < until:
        begin = 0
        while begin < len(data) and time.process_time() < until:
            shorter = data[:begin] + data[begin + piece :]
            found = attempt(entrance, shorter, folder)
            if isinstance(found, Defect) and found.kind == defect.kind:
                data = shorter
            else:
                begin += piece
        piece //= 2
    return data
