"""The dispatch: a step goes to the worker, and with it the copies that it begins with."""

from __future__ import annotations

from typing import Any

from swa_retention.partial.copies import BlockCopy


def take_copies(kv_cache_manager: Any) -> tuple[BlockCopy, ...]:
    """The copies that the worker does before it computes this step, in order; they are pending no longer.

    To be called once for every step, when all of it is scheduled. The sources are released, although the worker has yet
    to read them. It runs the steps in order, so the next owner of such a block writes into it in a later step. For the
    same reason, what this step computes may be copied from then on.
    """
    partial = getattr(kv_cache_manager.coordinator, "partial", None)
    if partial is None:
        return ()
    copies: tuple[BlockCopy, ...] = partial.dispatch()
    return copies
