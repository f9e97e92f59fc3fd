"""Finding 028: A window gives up blocks by counting tokens that steps in flight compute."""

from collections.abc import Callable, Sequence

from kvgate.findings.finding import Acts, Finding
from kvgate.monitors.slot_memory import LEFT, LEFT_LATE, NO_BLOCK, Misread
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
    groups, early = settings.geometry.groups, set[tuple[int, int, int]]()

    def in_flight_counts(
        rule: Callable[..., int], request: int, groups: Sequence[Group], computed: int, unsure: int
    ) -> int:
        """What is in flight counts as computed for good: that matters where a window leaves a block for it."""
        left = _left(groups, computed, unsure)
        early.update((request, *place) for place in left)
        return computed if left else rule(request, groups, computed, unsure)

    def is_missing(misread: Misread) -> bool:
        left = misread.got == NO_BLOCK or misread.mark == LEFT
        return left and not groups[misread.reader.group].keeps_all

    def was_early(misread: Misread) -> bool:
        index, size = misread.reader.group, groups[misread.reader.group].block_size_tokens
        return is_missing(misread) and (misread.reader.request, index, misread.token // size) in early

    def is_overwritten(misread: Misread) -> bool:
        """The request that has the block now reads what the step wrote."""
        return misread.mark == LEFT_LATE

    return Acts(
        [Delta(tokens_passed.__name__, in_flight_counts)],
        misreads=lambda misread: was_early(misread) or is_overwritten(misread),
        unfollowed=lambda misread: is_missing(misread) or is_overwritten(misread),
    )


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
    holds=lambda ideal, answered, _request, groups, computed, unsure: (
        answered == computed > ideal == computed - unsure and bool(_left(groups, computed, unsure))
    ),
)
