"""The prompts for the engines: some share beginnings, and some nearly do.

Everything that goes wrong with a cache has a prompt here that would show it: whole and broken blocks shared, several
together, a turn after an answer, tokens that differ in the last place of a block, a block in another place.
"""

from __future__ import annotations

import random

from kvgate.adapters.cpu_engine.job import Ask

LONG_TOKENS = 700
"""The longest prompt: it crosses a window of 32 tokens more than twenty times."""
CROWD = 16
"""How many prompts are asked together, at most."""
_FIRST_TOKEN, _VOCABULARY = 4, 512
_BLOCK_TOKENS = 16


def rounds() -> tuple[tuple[Ask, ...], ...]:
    """The asks of each round; those of one are computed together."""
    chance = random.Random(0)

    def random_tokens(count: int) -> tuple[int, ...]:
        return tuple(chance.randrange(_FIRST_TOKEN, _VOCABULARY) for _ in range(count))

    first, long = random_tokens(200), random_tokens(LONG_TOKENS)
    return (
        (Ask(first), Ask(long)),
        (
            Ask((*first[:85], *random_tokens(60))),
            Ask((*first[:170], *random_tokens(3))),
            Ask((*first[:40], *random_tokens(30))),
            Ask((*long[:600], *random_tokens(20))),
            Ask(first),
        ),
        # The next turns of three conversations.
        (Ask(random_tokens(21), after=0), Ask(random_tokens(5), after=1), Ask(random_tokens(33), after=4)),
        (
            # In the last tokens of blocks that are cached, another one.
            Ask(_changed(first, 6 * _BLOCK_TOKENS - 1)),
            Ask(_changed(long, 16 * _BLOCK_TOKENS - 1)),
            # Blocks that are cached, after another beginning.
            Ask((*first[_BLOCK_TOKENS : 8 * _BLOCK_TOKENS], *random_tokens(9))),
            Ask((*long[4 * _BLOCK_TOKENS : 20 * _BLOCK_TOKENS], *random_tokens(9))),
        ),
        (Ask(long), Ask(random_tokens(17), after=7)),
        # Short prompts whose answers are several blocks: where blocks are few, not all that are admitted continue.
        tuple(Ask(random_tokens(_BLOCK_TOKENS - 1)) for _ in range(CROWD)),
    )


def _changed(tokens: tuple[int, ...], place: int) -> tuple[int, ...]:
    """The same with another token in one place."""
    changed = list(tokens)
    changed[place] = _FIRST_TOKEN + (changed[place] - _FIRST_TOKEN + 1) % (_VOCABULARY - _FIRST_TOKEN)
    return tuple(changed)
