"""Where the chunks of a prompt end, as vLLM's scheduler cuts them where states are kept at block ends only.

There a state exists where a chunk ended, and nowhere else; so where chunks end decides what can be hit.
"""

from __future__ import annotations

from kvreference.geometry import Geometry
from kvreference.settings import Settings


def chunk_ends(settings: Settings, prompt_tokens: int, split_tokens: int | None = None) -> list[int]:
    """After how many tokens each chunk of a prompt that is computed from its first token on ends.

    vLLM cuts at multiples of ``split_tokens``, the block of the states by default, and lets a chunk end at the last of
    them in the prompt. With a draft layer it is the one before, since a hit is dropped by a block.
    """
    block = settings.geometry.state_block_tokens
    if block is None:
        return [*range(settings.chunk_tokens, prompt_tokens, settings.chunk_tokens), prompt_tokens]
    block = split_tokens or block
    last = _last_kept(settings.geometry, prompt_tokens, block)
    ends = [0]
    while ends[-1] < prompt_tokens:
        ends.append(_next_end(ends[-1], min(settings.chunk_tokens, prompt_tokens - ends[-1]), last, block))
        if ends[-1] == ends[-2]:
            break
    return ends[1:]


def _last_kept(geometry: Geometry, prompt_tokens: int, block: int) -> int:
    last = prompt_tokens // block * block
    return max(0, last - block) if geometry.lookahead_tokens else last


def _next_end(computed: int, tokens: int, last: int, block: int) -> int:
    end = computed + tokens
    if end < last:
        return computed + tokens // block * block
    return last if computed < last < end else end


def stands_still(settings: Settings, prompt_tokens: int) -> bool:
    """Whether a chunk is cut to nothing, in this step and in every later one."""
    ends = chunk_ends(settings, prompt_tokens)
    return not ends or ends[-1] < prompt_tokens
