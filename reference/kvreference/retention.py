"""Retention: which blocks are worth caching.

A block that no hit can read only costs: it takes bookkeeping and events, and it pushes others out of the free queue too
soon. Hits end at boundaries, multiples of the alignment. So a block is cached if and only if a hit at an *admitted*
boundary reads it, and not before the first such boundary is reached.

Admitted are, for sliding windows and for states:

- without a retention interval, every block's end: the cache is *dense*, and nothing is ever left out;
- with an interval of N tokens, its multiples. The alignment itself as interval is *masked caching*: exactly the blocks
  that no hit could read are left out;
- with an interval of 0, none of those;

and with any interval the latest boundary that a replay of the same prompt can hit; with junctions kept, also the
request's *junction*, where its prompt parts from what is cached. All other groups are read from every multiple of the
alignment on, at any interval.

A hit reads a single state, that of exactly the tokens before it. So exactly the states that end at an admitted boundary
stay. Where states are kept only at chunk ends, there is one only if a chunk ends there.

The tail that a boundary needs follows from the hit's own formula, look-ahead included: what is written and what is read
cannot disagree.

Sources: vLLM's pull requests 42258, 43447 and 44082; junctions are its shared-prefix boundaries, since 0.27.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from attrs import evolve, frozen

from kvreference.geometry import Geometry, Group

AUTO_INTERVAL_TOKENS = 32768
"""The interval that ``auto`` stands for."""


def interval_of(text: str | None) -> int | None:
    """The retention interval that a user wrote: nothing, ``auto``, or a number of tokens.

    Raises:
        ValueError: something else.
    """
    if text is None or not text.strip():
        return None
    if text.strip().lower() == "auto":
        return AUTO_INTERVAL_TOKENS
    try:
        interval_tokens = int(text)
    except ValueError:
        raise ValueError(f"a retention interval is a number of tokens or auto, not {text!r}") from None
    if interval_tokens < 0:
        raise ValueError(f"a retention interval must not be negative, got {interval_tokens}")
    return interval_tokens


def last_boundary(geometry: Geometry, tokens: int) -> int:
    """The longest hit, in tokens, of which all that must match lies in the first ``tokens`` tokens; 0 if none does."""
    alignment = geometry.alignment_tokens
    return max(0, tokens - geometry.lookahead_tokens) // alignment * alignment


def replay_boundary(geometry: Geometry, prompt_tokens: int) -> int:
    """The longest hit, in tokens, that a replay of a prompt of ``prompt_tokens`` can have; 0 if there is none.

    It, and what must match after it, lie before the prompt's last token.
    """
    return last_boundary(geometry, prompt_tokens - 1)


def junction(geometry: Geometry, known_tokens: int, readable_tokens: int, hit_tokens: int) -> int:
    """Where a prompt parts from what is cached, in tokens; 0 if a hit reaches as far.

    Some group of full attention holds the first ``known_tokens`` tokens of the request, which may match
    ``readable_tokens`` tokens at most and hits ``hit_tokens``. So another request has computed them, and any request
    that shares them could hit up to the last boundary in them, if the windows were kept there.
    """
    boundary = last_boundary(geometry, min(known_tokens, readable_tokens))
    return boundary if boundary > hit_tokens else 0


def next_boundary(index: int, interval_tokens: int, block_size_tokens: int, lookahead_tokens: int) -> int:
    """The first multiple of the interval above 0 that lies after all but the look-ahead of the block at ``index``."""
    least_tokens = max((index + 1) * block_size_tokens - lookahead_tokens, 1)
    return -(-least_tokens // interval_tokens) * interval_tokens


class Retention(Protocol):
    """Which blocks of a request are cached, and which boundaries inside compressed blocks are entries."""

    def due_tokens(self, group: Group, index: int, prompt_tokens: int) -> int | None:
        """How many tokens must be computed for the block at ``index`` to be cached; None if it never is."""
        ...

    def boundaries(self, start_tokens: int, end_tokens: int, prompt_tokens: int) -> Iterator[int]:
        """The admitted boundaries after ``start_tokens`` and up to ``end_tokens``, ascending."""
        ...

    def at_junction(self, junction_tokens: int) -> Retention:
        """The same for a request with that junction; 0 if it has none."""
        ...


@frozen
class Dense:
    """Every block is cached when it is full."""

    geometry: Geometry

    def due_tokens(self, group: Group, index: int, prompt_tokens: int) -> int | None:
        return (index + 1) * group.block_size_tokens

    def boundaries(self, start_tokens: int, end_tokens: int, prompt_tokens: int) -> Iterator[int]:
        alignment = self.geometry.alignment_tokens
        return iter(range((start_tokens // alignment + 1) * alignment, end_tokens + 1, alignment))

    def at_junction(self, junction_tokens: int) -> Dense:
        return self


@frozen
class Sparse:
    """A block is cached when the first admitted boundary that needs it is reached."""

    geometry: Geometry
    interval_tokens: int
    junction_tokens: int = 0
    """Where the request's prompt parts from what is cached; 0: nowhere, or it is not kept."""

    def due_tokens(self, group: Group, index: int, prompt_tokens: int) -> int | None:
        interval = self.interval_tokens if group.is_sparse else self.geometry.alignment_tokens
        candidates = [replay_boundary(self.geometry, prompt_tokens), self.junction_tokens]
        if interval:
            candidates.append(next_boundary(index, interval, group.block_size_tokens, group.lookahead_tokens))
        serving = [boundary for boundary in candidates if _reads(group, boundary, index)]
        return max(min(serving), (index + 1) * group.block_size_tokens) if serving else None

    def boundaries(self, start_tokens: int, end_tokens: int, prompt_tokens: int) -> Iterator[int]:
        interval = self.interval_tokens
        single = (replay_boundary(self.geometry, prompt_tokens), self.junction_tokens)
        while True:
            multiple = ((start_tokens // interval + 1) * interval,) if interval else ()
            later = [each for each in (*single, *multiple) if start_tokens < each <= end_tokens]
            if not later:
                return
            start_tokens = min(later)
            yield start_tokens

    def at_junction(self, junction_tokens: int) -> Sparse:
        return evolve(self, junction_tokens=junction_tokens) if junction_tokens else self


def _reads(group: Group, boundary: int, index: int) -> bool:
    """Whether a hit at ``boundary`` reads the block at ``index``."""
    first, end = group.blocks_needed(boundary)
    return first <= index < end
