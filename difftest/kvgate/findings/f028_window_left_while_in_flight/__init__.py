"""Finding 028: A window frees blocks by counting tokens that steps in flight still compute."""

from collections.abc import Callable, Sequence

from kvgate.findings.finding import Acts, Finding
from kvgate.findings.left_early import LeftEarly, left_for
from kvgate.monitors.slot_memory import LEFT, LEFT_LATE, NO_BLOCK, Misread
from kvreference.geometry import Group
from kvreference.holdings import tokens_passed
from kvreference.rules import Delta
from kvreference.settings import Settings

OF_STATES_ALONE = ("ascend 0.23.0",)
"""Where windows wait for steps in flight, and states do not."""


def _acts(settings: Settings, release: str) -> Acts:
    if release in OF_STATES_ALONE and not settings.geometry.keeps_states:
        return Acts()
    early = LeftEarly(settings.geometry.groups)

    def in_flight_counts(
        rule: Callable[..., int], request: int, groups: Sequence[Group], computed: int, unsure: int
    ) -> int:
        """What is in flight counts as computed for good: that matters where a window leaves a block for it."""
        leaves_more = early.note(request, computed - unsure, computed)
        return computed if leaves_more else rule(request, groups, computed, unsure)

    def is_missing(misread: Misread) -> bool:
        left = misread.got == NO_BLOCK or misread.mark == LEFT
        return left and not early.groups[misread.reader.group].keeps_all

    def is_overwritten(misread: Misread) -> bool:
        """The request that has the block now reads what the step wrote."""
        return misread.mark == LEFT_LATE

    return Acts(
        [Delta(tokens_passed.__name__, in_flight_counts)],
        misreads=lambda misread: (is_missing(misread) and early.has(misread)) or is_overwritten(misread),
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
        answered == computed > ideal == computed - unsure and bool(left_for(groups, ideal, computed))
    ),
)
