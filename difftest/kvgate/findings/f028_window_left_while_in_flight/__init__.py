"""Finding 028: A window gives up blocks by counting drafts that are then rejected."""

from collections.abc import Callable, Sequence

from kvgate.findings.finding import Acts, Finding
from kvgate.monitors.slot_memory import NO_BLOCK
from kvreference.geometry import Group
from kvreference.holdings import tokens_passed
from kvreference.rules import Delta


def _leaves_more(groups: Sequence[Group], computed: int, drafts: int) -> bool:
    return any(group.blocks_dead(computed) > group.blocks_dead(computed - drafts) for group in groups)


def _drafts_count(rule: Callable[..., int], groups: Sequence[Group], computed: int, drafts: int) -> int:
    """Drafts in flight count as computed for good: that matters where a window leaves a block for them."""
    return computed if _leaves_more(groups, computed, drafts) else rule(groups, computed, drafts)


FINDING = Finding(
    id="028-window-left-while-in-flight",
    rank=28,
    statement="KV-MEM-01",
    condition="a window, drafts and asynchronous steps",
    where=lambda settings: settings.drafts_max > 0 and not all(group.keeps_all for group in settings.geometry.groups),
    on=lambda stage: stage.asynchronous,
    acts=lambda *_run: Acts(
        [Delta(tokens_passed.__name__, _drafts_count)], misreads=lambda misread: misread.got == NO_BLOCK
    ),
    holds=lambda ideal, answered, groups, computed, drafts: (
        ideal == computed - drafts < answered == computed and _leaves_more(groups, computed, drafts)
    ),
)
