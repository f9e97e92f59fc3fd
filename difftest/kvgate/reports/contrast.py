"""Two long texts next to each other, cut down to where they first differ.

A block table of a long request has thousands of entries, and two of them differ in one. What a reader needs is that
one, with a little of what stands before it.
"""

from __future__ import annotations

from kvgate.reports.wording import printable

BEFORE_CHARACTERS = 24
AFTER_CHARACTERS = 56


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
