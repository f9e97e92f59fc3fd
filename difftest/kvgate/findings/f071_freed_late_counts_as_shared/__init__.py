"""Finding 071: What waits to be freed counts as held, where the prefix is counted that all requests share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvgate.findings.finding import Acts, Finding
from kvreference.holdings import is_held_by_all
from kvreference.rules import Delta


def _by_references(
    _held: Callable[[int, Sequence[set[int]], int], bool], _block: int, others: Sequence[set[int]], references: int
) -> bool:
    """That all hold a block is taken from its references, and requests that gave it up keep theirs for a while."""
    return references == len(others)


FINDING = Finding(
    id="071-freed-late-counts-as-shared",
    rank=71,
    statement="KV-OP-14",
    condition="asynchronous steps, a connector, and blocks that are freed when the steps in flight are over",
    on=lambda stage: stage.asynchronous and stage.connector,
    acts=lambda *_run: Acts([Delta(is_held_by_all.__name__, _by_references)]),
    holds=lambda _ideal, _answered, block, others, references: references > sum(block in other for other in others),
)
