"""The survivors that are argued to be no gap of the tests: why nobody could tell them from the original.

An argument names the function and the change itself, and not mutmut's number, which moves when the function does. One
that fits no survivor any more is stale, and is told.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
from benchmarks.mutation.tree import ROOT

from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import read_bytes

FILE = ROOT / "reference" / "mutmut-survivors.toml"
FORMAT = "kvgate-survivors"
VERSION = 1
BYTES_MAX = 1_000_000
WHY_CHARACTERS_MIN = 40


class Argument(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Why one survivor is none."""

    function: str
    """Which function; a pattern where the same is argued of several."""
    why: str
    change: tuple[str, ...] = ()
    """The lines that went and came, as `report` prints them."""
    apart_from: str = ""
    """In place of the lines: whatever matches this is taken out of both, and nothing else may differ."""

    def fits(self, function: str, change: tuple[str, ...]) -> bool:
        """Whether it argues about this change."""
        if not fnmatchcase(function, self.function):
            return False
        if not self.apart_from:
            return change == self.change
        lost, gained = ([re.sub(self.apart_from, "", line[1:]) for line in change if line[0] == sign] for sign in "-+")
        return lost == gained


class Document(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The file."""

    format: str
    version: int
    survivor: tuple[Argument, ...] = ()


def read(path: Path = FILE) -> tuple[Argument, ...]:
    """All arguments.

    Raises:
        UsageError: the file is damaged, of another version, or has an argument that says nothing.
    """
    try:
        document = msgspec.toml.decode(read_bytes(path, BYTES_MAX), type=Document)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error
    if (document.format, document.version) != (FORMAT, VERSION):
        raise UsageError(f'{path}: not "{FORMAT}" of version {VERSION}')
    for argument in document.survivor:
        if len(argument.why) < WHY_CHARACTERS_MIN or bool(argument.change) == bool(argument.apart_from):
            raise UsageError(
                f"{path}: {argument.function}: needs either a change or what it is apart from, and why nobody can tell "
                "it, in a sentence"
            )
    return document.survivor
