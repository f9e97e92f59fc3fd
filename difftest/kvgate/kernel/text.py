"""How names, counts and runs of numbers are written in the gate's output.

Names and messages come from outside: from preset files, from requests, from the exceptions of a system under test.
None of them may break a line, steer a terminal or grow without bound.
"""

from __future__ import annotations

from collections.abc import Iterable

CHARACTERS_MAX = 400
"""How much of one text from outside is shown."""
BEFORE_CHARACTERS = 24
"""How much two long texts show before their first difference."""
AFTER_CHARACTERS = 56
SPANS_MAX = 12
"""How many runs of one list of numbers are shown."""


def printable(text: str, characters_max: int = CHARACTERS_MAX) -> str:
    """``text`` on one line: what cannot be printed is written as its escape, and what is too long is cut."""
    if len(text) <= characters_max and text.isprintable():
        return text
    shown = ""
    for index, character in enumerate(text):
        piece = character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        if len(shown) + len(piece) > characters_max:
            return f"{shown}... ({counted(len(text) - index, 'more character')})"
        shown += piece
    return shown


def quoted(name: str) -> str:
    """A name from outside, in quotation marks."""
    return f"'{printable(name, 80)}'"


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number of things: ``1 token``, ``2 tokens``."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or f'{noun}s'}"


def spans(ranges: Iterable[range]) -> str:
    """Consecutive numbers as ``first..last``; the ranges beyond a limit are counted."""
    listed = list(ranges)
    words = [str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in listed[:SPANS_MAX]]
    left_out = sum(map(len, listed[SPANS_MAX:]))
    return ", ".join([*words, f"and {left_out} more"] if left_out else words)


def consecutive(numbers: Iterable[int]) -> list[range]:
    """The longest ascending runs of consecutive numbers, in order."""
    runs: list[range] = []
    for number in numbers:
        if runs and number == runs[-1].stop:
            runs[-1] = range(runs[-1].start, number + 1)
        else:
            runs.append(range(number, number + 1))
    return runs


def contrast(expected: str, got: str) -> tuple[str, str]:
    """Both texts from shortly before their first difference; both whole if they are short."""
    if max(len(expected), len(got)) <= BEFORE_CHARACTERS + AFTER_CHARACTERS:
        return _shown(expected), _shown(got)
    pairs = enumerate(zip(expected, got, strict=False))
    first = next((index for index, (ours, theirs) in pairs if ours != theirs), min(len(expected), len(got)))
    start = max(0, first - BEFORE_CHARACTERS)
    # A number or a word is shown from its beginning, if that is near: half of one would name something else.
    while max(0, first - 2 * BEFORE_CHARACTERS) < start and expected[start - 1].isalnum():
        start -= 1
    return _excerpt(expected, start), _excerpt(got, start)


def _excerpt(text: str, start: int) -> str:
    end = start + BEFORE_CHARACTERS + AFTER_CHARACTERS
    return f"{'...' if start else ''}{_shown(text[start:end])}{'...' if end < len(text) else ''}"


def _shown(text: str) -> str:
    return printable(text) if text else "nothing"
