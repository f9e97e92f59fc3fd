"""Finding 028: A window gives up blocks by counting tokens that steps in flight compute."""

from collections.abc import Callable, Sequence

from kvgate.findings.finding import Acts, Finding
from kvgate.monitors.slot_memory import LEFT, NO_BLOCK, Misread
from kvreference.geometry import Group
from kvreference.holdings import tokens_passed
from kvreference.rules import Delta
from kvreference.settings import Settings


def _left(groups: Sequence[Group], computed: int, unsure: int) -> set[tuple[int, int]]:
    """What a window leaves too early: by group, places of its tables."""
    return {
        (index, place)
        for index, group in enumerate(groups)
        for place in range(group.blocks_dead(computed - unsure), group.blocks_dead(computed))
    }


def _acts(settings: Settings, _release: str) -> Acts:
    groups, early = settings.geometry.groups, set[tuple[int, int]]()

    def in_flight_counts(rule: Callable[..., int], groups: Sequence[Group], computed: int, unsure: int) -> int:
        """What is in flight counts as computed for good: that matters where a window leaves a block for it."""
        left = _left(groups, computed, unsure)
        early.update(left)
        return computed if left else rule(groups, computed, unsure)

    def misreads(misread: Misread) -> bool:
        group = groups[misread.reader.group]
        place = misread.reader.group, misread.token // group.block_size_tokens
        # Without the reference, nobody knows what was left too early.
        was_early = place in early if early else not group.keeps_all
        return was_early and (misread.got == NO_BLOCK or misread.mark == LEFT)

    return Acts([Delta(tokens_passed.__name__, in_flight_counts)], misreads=misreads)


FINDING = Finding(
    id="028-window-left-while-in-flight",
    rank=28,
    statement="KV-MEM-01",
    condition="a window, asynchronous steps, and drafts or a connector",
    where=lambda settings: (
        (settings.drafts_max > 0 or settings.loads_out_of_turn)
        and not all(group.keeps_all for group in settings.geometry.groups)
    ),
    on=lambda stage: stage.asynchronous,
    acts=_acts,
    holds=lambda ideal, answered, groups, computed, unsure: (
        answered == computed > ideal == computed - unsure
        and any(group.blocks_dead(computed) > group.blocks_dead(ideal) for group in groups)
    ),
)
