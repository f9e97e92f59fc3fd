"""An entrance: a place where bytes from outside become values, with valid inputs to begin from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import field, frozen
from benchmarks.parsers.change import Form

from kvgate.kernel.errors import UsageError


@frozen
class Entrance:
    """One parser, with all that it does before a command goes on."""

    name: str
    what: str
    """What comes in here."""
    form: Form
    seeds: Callable[[Path], Sequence[bytes]] = field(repr=False)
    """Valid inputs; the folder is for what must be written to know them."""
    take: Callable[[bytes, Path], object] = field(repr=False)
    """Reads an input, and does with it what is done at once; the folder is for files."""
    refusals: tuple[type[Exception], ...] = (UsageError,)
    """How it refuses; whatever else is raised is a defect."""
    one_in: int = 1
    """How many times fewer inputs it gets than the others: what is slow is not to take all the time."""

    def share(self, inputs: int) -> int:
        """How many inputs it gets where each of the others gets ``inputs``."""
        return -(-inputs // self.one_in)


def from_file(read: Callable[[Path], object], name: str = "input") -> Callable[[bytes, Path], object]:
    """What reads a file, as something that takes bytes."""

    def take(data: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(data)
        return read(path)

    return take
