"""A parser of untrusted input, as the fuzz tests see it."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import FrameType

from attrs import field, frozen

from kvgate.kernel.errors import UsageError

SECONDS_MAX = 5.0
"""The processor time that one input may take: most take less than a thousandth of it."""
MEMORY_BYTES_MAX = 2**29
"""The address space that one input may take in addition to what the process has."""


class Form(Enum):
    """The structure of an input: what can be changed in it besides its bytes."""

    BYTES = "bytes"
    JSON = "json"
    LINES = "JSON lines"
    FRAMES = "frames"
    WORDS = "words"


@frozen
class Parser:
    """One parser, with everything that a command does with the parsed value before it continues."""

    name: str
    what: str
    """Its input."""
    form: Form
    seeds: Callable[[Path], Sequence[bytes]] = field(repr=False)
    """Valid inputs; a function that must write files to make them uses the folder."""
    parse: Callable[[bytes, Path], object] = field(repr=False)
    """Parses an input; the folder is for files."""
    rejections: tuple[type[Exception], ...] = (UsageError,)
    """How it rejects an input; any other exception is a defect."""
    one_in: int = 1
    """It gets this many times fewer inputs than the others, because it is slow."""

    def accepts(self, data: bytes, folder: Path) -> bool:
        """Whether it accepts an input; False if it rejects it with a message. Anything else is raised.

        Raises:
            AssertionError: it took too long, or rejected the input without a message.
        """
        try:
            with _limited():
                self.parse(data, folder)
        except self.rejections as error:
            if not str(error).strip():
                raise AssertionError(f"{type(error).__name__} without a message") from error
            return False
        except _TooLongError:
            raise AssertionError(f"{self.name}: more than {SECONDS_MAX:g} s") from None
        return True


class _TooLongError(BaseException):
    """An input took more than its time. An ``except Exception`` of a parser does not catch it."""


@contextmanager
def _limited() -> Iterator[None]:
    """Limit processor time and memory of what is done within."""

    def too_long(_number: int, _frame: FrameType | None) -> None:
        raise _TooLongError

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGPROF, too_long)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY_BYTES_MAX, hard))
    signal.setitimer(signal.ITIMER_PROF, SECONDS_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, handler)


def from_file(read: Callable[[Path], object], name: str = "input") -> Callable[[bytes, Path], object]:
    """Turn a function that reads a file into one that takes bytes."""

    def parse(data: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(data)
        return read(path)

    return parse
