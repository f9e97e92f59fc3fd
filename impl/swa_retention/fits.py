"""What fits: how many prefixes a pool can keep, logged when the engine starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from swa_retention.reachable import Anchor

LENGTHS_TOKENS = (1024, 8192, 32768, 131072)
"""The prefix lengths in that log; the longest that the model can have is added."""


def blocks_kept(groups: Iterable[Anchor], tokens: int) -> int:
    """How many blocks of all ``groups`` a hit of up to ``tokens`` tokens reads: what must stay for it."""
    return sum(last - first for first, last in (group.at(tokens) for group in groups))


def told(groups: Sequence[Anchor], blocks: int, tokens_max: int) -> str:
    """How many prefixes of some lengths a pool of ``blocks`` usable blocks can keep."""
    lengths = [tokens for tokens in LENGTHS_TOKENS if tokens < tokens_max] + [tokens_max]
    kept = {tokens: blocks_kept(groups, tokens) for tokens in lengths}
    each = (
        f"{blocks // needed} of {tokens} tokens ({needed} blocks each)" if needed else f"none of {tokens} tokens"
        for tokens, needed in kept.items()
    )
    return f"of {blocks} blocks, at most this many prefixes can be kept while nothing runs: {', '.join(each)}"
