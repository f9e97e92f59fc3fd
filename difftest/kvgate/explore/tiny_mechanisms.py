"""The tiny models of what goes beyond a plain hybrid cache: retention, partial hits, pins, states, transfers."""

from __future__ import annotations

from kvgate.explore.families import Prompt
from kvgate.explore.menu import Menu
from kvgate.explore.tiny import Tiny, scope, window
from kvreference.attention import Kind
from kvreference.geometry import Group
from kvreference.mamba import StateMode

_FULL_1, _FULL_2, _FULL_4 = (Group(Kind.FULL, size) for size in (1, 2, 4))
_COMPRESSED = Group(Kind.FULL, 4, compress_ratio=2)
_COPIED = Group(Kind.FULL, 4, compress_ratio=2, unit_tokens=2)
_LOCAL = Group(Kind.CHUNKED_LOCAL, 1, 2)


def _states(mode: StateMode, drafts: int = 0, block_size_tokens: int = 2) -> Group:
    return Group(Kind.MAMBA, block_size_tokens, states=mode, draft_states=drafts)


MECHANISMS = (
    Tiny(
        "tiny-masked",
        "masked caching with a draft layer: the tail before a boundary, and the look-ahead block behind it",
        scope(
            _FULL_4,
            window(2, 3, lookahead=True),
            menu=Menu((Prompt(7), Prompt(7, 4)), budgets_tokens=(4, 8), samples=False),
            blocks=9,
            tokens_max=8,
            retention_interval_tokens=4,
            scratch_first=True,
        ),
        scope(
            _FULL_4,
            window(2, 3, lookahead=True),
            menu=Menu((Prompt(7), Prompt(7, 4)), budgets_tokens=(2, 8), drafts=(0, 1)),
            blocks=9,
            tokens_max=9,
            drafts_max=1,
            retention_interval_tokens=4,
            scratch_first=True,
        ),
    ),
    Tiny(
        "tiny-retention",
        "retention with an interval of two alignments: a tail per interval, and the replay boundary",
        scope(
            _FULL_2,
            window(1, 2),
            menu=Menu((Prompt(5), Prompt(7), Prompt(7, 4)), budgets_tokens=(2, 8), samples=False),
            blocks=10,
            tokens_max=8,
            retention_interval_tokens=4,
            scratch_first=True,
        ),
        scope(
            _FULL_2,
            window(1, 2),
            menu=Menu((Prompt(5), Prompt(7), Prompt(7, 4)), budgets_tokens=(2, 8)),
            blocks=9,
            tokens_max=9,
            retention_interval_tokens=4,
            scratch_first=True,
        ),
    ),
    Tiny(
        "tiny-replay",
        "a retention interval of 0: the replay boundary alone",
        scope(
            window(1, 3),
            menu=Menu((Prompt(3), Prompt(4)), budgets_tokens=(1, 8)),
            blocks=6,
            tokens_max=5,
            retention_interval_tokens=0,
            scratch_first=True,
        ),
        scope(
            _FULL_1,
            window(1, 3),
            menu=Menu((Prompt(3), Prompt(4)), budgets_tokens=(1, 8)),
            blocks=9,
            tokens_max=5,
            retention_interval_tokens=0,
            scratch_first=True,
        ),
    ),
    Tiny(
        "tiny-compressed",
        "a compressed group, a window and a compressor state: three block sizes, one alignment",
        scope(
            _COMPRESSED,
            window(2, 3),
            window(1, 2),
            menu=Menu((Prompt(5), Prompt(7)), budgets_tokens=(2, 4), samples=False),
            blocks=13,
            tokens_max=8,
            chunk_tokens=4,
        ),
        scope(
            _COMPRESSED,
            window(2, 3),
            window(1, 2),
            menu=Menu((Prompt(5), Prompt(7), Prompt(7, 4)), budgets_tokens=(2, 4)),
            blocks=13,
            tokens_max=8,
            chunk_tokens=4,
        ),
    ),
    Tiny(
        "tiny-partial",
        "hits that end inside a compressed block: entries, copies, sources held until they were dispatched",
        scope(
            _COPIED,
            menu=Menu((Prompt(3), Prompt(5, 2)), budgets_tokens=(2, 8), samples=False, dispatches=True),
            blocks=5,
            tokens_max=6,
        ),
        scope(
            _COPIED,
            window(2, 3),
            menu=Menu((Prompt(3), Prompt(5), Prompt(5, 2)), budgets_tokens=(2, 8), dispatches=True, evicts=True),
            blocks=8,
            tokens_max=6,
        ),
    ),
    Tiny(
        "tiny-pinned",
        "a pinned tier: pins on drops and at ends, hits on pinned blocks, demotion under pressure",
        scope(
            window(2, 3),
            menu=Menu((Prompt(5), Prompt(6, 3)), budgets_tokens=(2, 8), samples=False),
            blocks=6,
            tokens_max=7,
            pin_drop_blocks_min=1,
        ),
        scope(
            _FULL_1,
            window(1, 2),
            menu=Menu((Prompt(3), Prompt(4, 2)), budgets_tokens=(1, 2), evicts=True, resets=True),
            blocks=8,
            tokens_max=5,
            pin_drop_blocks_min=1,
            scratch_first=True,
        ),
    ),
    Tiny(
        "tiny-loopholes",
        "a pinned tier that is as small as the loopholes of pins by reference count allow",
        scope(
            window(1, 2),
            menu=Menu((Prompt(3), Prompt(3, 1)), budgets_tokens=(1,), samples=False),
            blocks=5,
            tokens_max=4,
            pin_drop_blocks_min=2,
        ),
        scope(
            window(1, 2),
            menu=Menu((Prompt(3), Prompt(3, 1)), budgets_tokens=(1, 2)),
            blocks=5,
            tokens_max=5,
            pin_drop_blocks_min=2,
        ),
    ),
    Tiny(
        "tiny-local",
        "chunked local attention next to full attention: a chunk is read from its first token",
        scope(
            _FULL_1,
            _LOCAL,
            menu=Menu((Prompt(2), Prompt(3, 1)), budgets_tokens=(1, 8)),
            blocks=7,
            tokens_max=4,
        ),
        scope(
            _FULL_1,
            _LOCAL,
            menu=Menu((Prompt(2), Prompt(4), Prompt(4, 1)), budgets_tokens=(1, 8), evicts=True),
            blocks=9,
            tokens_max=5,
        ),
    ),
    Tiny(
        "tiny-mamba-all",
        "states kept behind every block, and one for each draft in flight",
        scope(
            _states(StateMode.ALL, drafts=1),
            menu=Menu((Prompt(3), Prompt(5)), budgets_tokens=(8,), drafts=(1,), dispatches=True),
            blocks=6,
            tokens_max=6,
            drafts_max=1,
        ),
        scope(
            _FULL_2,
            _states(StateMode.ALL, drafts=1),
            menu=Menu((Prompt(3), Prompt(5)), budgets_tokens=(2, 8), drafts=(0, 1), dispatches=True),
            blocks=10,
            tokens_max=6,
            drafts_max=1,
        ),
    ),
    Tiny(
        "tiny-mamba-align",
        "states kept where a chunk ends: the running one, the one it came from, and one for each draft",
        scope(
            _states(StateMode.ALIGN, drafts=1, block_size_tokens=4),
            menu=Menu((Prompt(5), Prompt(6)), budgets_tokens=(3, 8), drafts=(1,), dispatches=True),
            blocks=6,
            tokens_max=8,
            drafts_max=1,
        ),
        scope(
            _FULL_4,
            _states(StateMode.ALIGN, drafts=1, block_size_tokens=4),
            menu=Menu((Prompt(5), Prompt(6)), budgets_tokens=(3, 8), drafts=(0, 1), dispatches=True),
            blocks=9,
            tokens_max=8,
            drafts_max=1,
        ),
    ),
    Tiny(
        "tiny-transfers",
        "other nodes provide, load and read: blocks that are held for them, and cached when they arrive",
        scope(
            window(1, 2),
            menu=Menu(
                (Prompt(2), Prompt(2, 0)),
                budgets_tokens=(8,),
                samples=False,
                external_tokens=(0, 2),
                loads=True,
                sends=True,
                aborts=True,
            ),
            blocks=5,
            tokens_max=3,
        ),
        scope(
            _FULL_1,
            window(1, 2),
            menu=Menu(
                (Prompt(2), Prompt(4)),
                budgets_tokens=(1, 8),
                external_tokens=(0, 2, 4),
                loads=True,
                sends=True,
                aborts=True,
            ),
            blocks=8,
            tokens_max=5,
        ),
    ),
)
"""In the order of the mechanisms."""
