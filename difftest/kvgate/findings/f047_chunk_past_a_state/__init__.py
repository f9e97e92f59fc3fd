"""Finding 047: With a draft layer, a chunk passes a block's end, and the block is cached with an earlier state."""

from __future__ import annotations

from collections.abc import Callable

from kvgate.findings.finding import Acts, Finding
from kvgate.monitors.slot_memory import Misread
from kvreference.caching import holds_its_end
from kvreference.geometry import Group
from kvreference.rules import Delta
from kvreference.settings import Settings


def _acts(_settings: Settings, _release: str) -> Acts:
    passed: set[tuple[int, int]] = set()
    """After how many tokens a step began that passed a block's end, and at how many tokens that was."""

    def is_never_asked(holds: Callable[..., bool], group: Group, end: int, step: range) -> bool:
        if not holds(group, end, step):
            passed.add((step.start - 1, end))
        return True

    def earlier(misread: Misread) -> bool:
        """The state is one of the same tokens, where such a step began."""
        wanted, found = misread.wanted, misread.found
        return (len(found) - 1, len(wanted) - 1) in passed and wanted[: len(found)] == found

    return Acts([Delta(holds_its_end.__name__, is_never_asked)], misreads=earlier)


def _where(settings: Settings) -> bool:
    return settings.geometry.state_block_tokens is not None and settings.lookahead_tokens > 0


FINDING = Finding(
    id="047-chunk-past-a-state",
    rank=47,
    statement="KV-MEM-01",
    condition="states that are kept at block ends, look-ahead, and a step that passes a block's end",
    where=_where,
    acts=_acts,
    holds=lambda _ideal, _answered, group, end, step: group.keeps_states and end in step,
)
