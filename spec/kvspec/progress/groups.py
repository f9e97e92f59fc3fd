"""Groups whose sizes are not known, one of each attention kind: what a request holds, and what it is said to need."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs

from kvreference.geometry import Group
from kvreference.scheduler import room
from kvspec.progress.stand_ins import counted, least


class WholeBlocks(Group):
    """A group in which no hit ends inside a block: no source of a copy is held."""

    copies = False


KINDS = ("full", "sliding_window", "chunked_local", "mamba")


def group_of(u: Any) -> Group:
    """The group whose kind is ``u.kind``. States of drafts count only where states are kept."""
    kind = KINDS[u.kind]
    window = u.window if kind in ("sliding_window", "chunked_local") else None
    states = {"states": "all", "draft_states": u.drafts_max} if kind == "mamba" else {}
    with attrs.validators.disabled():
        return WholeBlocks(kind, u.block, window, **states)


def settings_over(u: Any, *groups: Group) -> Any:
    """Settings over ``groups``; whether a draft layer is among them is said by ``u.lookahead``."""
    return SimpleNamespace(
        geometry=SimpleNamespace(groups=groups),
        tokens_max=u.tokens_max,
        chunk_tokens=u.chunk,
        drafts_max=u.drafts_max,
        lookahead_tokens=u.drafts_max if u.lookahead else 0,
        blocks=u.blocks,
    )


def needed(u: Any, tokens: Any) -> Any:
    """The blocks that a request of up to ``tokens`` computed tokens is said to need."""
    with counted():
        blocks: Any = room.blocks_to_run(settings_over(u, group_of(u)), tokens)
        return blocks


def held(u: Any) -> Any:
    """The blocks that a request holds after an allocation: its table, without what no later token reads."""
    group = group_of(u)
    after = u.computed + u.tokens
    slots = least(after + (u.drafts_max if u.lookahead else 0), u.tokens_max)
    with counted():
        return group.entries(after, slots) - group.blocks_dead(u.computed)
