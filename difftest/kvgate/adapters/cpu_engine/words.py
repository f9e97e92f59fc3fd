"""Words that prompts are made of: short, separated by spaces, and known to no model in particular."""

from __future__ import annotations

from functools import cache
from itertools import islice, product

_SYLLABLES = tuple(consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou")

WORDS_MAX = len(_SYLLABLES) ** 2


@cache
def words(count: int) -> tuple[str, ...]:
    """The first ``count`` words, each of two syllables: the same in every process."""
    if not 0 <= count <= WORDS_MAX:
        raise ValueError(f"there are {WORDS_MAX} words, and {count} were asked for")
    return tuple("".join(pair) for pair in islice(product(_SYLLABLES, repeat=2), count))
