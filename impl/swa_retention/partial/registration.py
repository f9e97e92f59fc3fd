"""Registration: every boundary that a request computes becomes an entry, once per admission.

What is due next is known in advance. So a step that reaches no boundary and fills no block costs one comparison,
however long the request is. Offering all boundaries again in every step once made decoding several times as slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import define, frozen

from swa_retention.partial.groups import Group


@frozen
class Admitted:
    """At which boundaries hits are kept."""

    unit_tokens: int
    interval_tokens: int | None = None
    """The retention interval; 0 keeps none of its multiples, None every multiple of the unit."""

    def behind(self, start_tokens: int, single_tokens: Iterable[int]) -> int | None:
        """The first admitted boundary after ``start_tokens``; None if there is none.

        With an interval, ``single_tokens`` are admitted besides its multiples.
        """
        step = self.unit_tokens if self.interval_tokens is None else self.interval_tokens
        following = [(start_tokens // step + 1) * step] if step else []
        if self.interval_tokens is not None:
            following += (boundary for boundary in single_tokens if boundary > start_tokens)
        return min(following, default=None)


@define
class Cursor:
    """How far one request has come since it was admitted."""

    tokens: int
    """How many tokens were computed when it was last asked; at first, those of the hit."""
    offered_tokens: list[int]
    """Per group, the last boundary that was offered."""
    single_tokens: tuple[int, ...] = ()
    """The last boundary from which its prompt can be replayed, and its junction."""
    wake_tokens: int = 0
    """With fewer tokens than this there is nothing to do."""


def reached(groups: Sequence[Group], admitted: Admitted, cursor: Cursor, tokens: int) -> Iterator[tuple[Group, int]]:
    """What ``tokens`` computed tokens have reached since ``cursor`` was last asked; the cursor moves to there.

    Ends of full blocks, and boundaries together with what a hit there must match, each once: a group, and up to how
    many tokens of the request.
    """
    wake: list[int] = []
    for place, group in enumerate(groups):
        size = group.block_tokens
        first = (cursor.tokens // size + 1) * size
        for end in range(first, tokens + 1, size):
            yield group, end
        wake.append((tokens // size + 1) * size)
        boundary = admitted.behind(cursor.offered_tokens[place], cursor.single_tokens)
        while boundary is not None and group.tokens_matched(boundary) <= tokens:
            cursor.offered_tokens[place] = boundary
            end = group.tokens_matched(boundary)
            if end % size:
                yield group, end
            boundary = admitted.behind(boundary, cursor.single_tokens)
        if boundary is not None:
            wake.append(group.tokens_matched(boundary))
    cursor.tokens, cursor.wake_tokens = max(cursor.tokens, tokens), min(wake)
