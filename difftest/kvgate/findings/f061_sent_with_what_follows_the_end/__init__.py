"""Finding 061: What comes after a request's end counts in what another node reads."""

from collections.abc import Callable

from kvgate.findings.finding import Acts, Finding
from kvgate.findings.left_early import LeftEarly
from kvgate.monitors.slot_memory import ENDED, NO_BLOCK, Misread
from kvreference.manager import tokens_counted
from kvreference.rules import Delta
from kvreference.settings import Settings

OF_STATES_ALONE = ("0.33.0",)
"""Where what comes after the end does not count, and the state has it all the same."""


def _acts(settings: Settings, release: str) -> Acts:
    groups = settings.geometry.groups
    early = LeftEarly(groups)
    after_the_end = settings.drafts_max + (settings.steps_in_flight_max - 1) * (1 + settings.drafts_max)

    def all_that_hold(rule: Callable[..., int], request: int, computed: int, beyond: int) -> int:
        """They stay counted, for the window too."""
        early.note(request, computed, computed + beyond)
        return rule(request, computed, beyond) + beyond

    def is_passed(misread: Misread) -> bool:
        """The state after a later token of the same request: a draft, or what a step in flight computes."""
        is_later = 0 < len(misread.found) - len(misread.wanted) <= after_the_end
        of_request = misread.found[: len(misread.wanted)] == misread.wanted
        return misread.mark == ENDED and groups[misread.reader.group].keeps_states and is_later and of_request

    def is_missing(misread: Misread) -> bool:
        group = groups[misread.reader.group]
        return misread.mark == ENDED and misread.got == NO_BLOCK and not group.keeps_all

    if release in OF_STATES_ALONE:
        return Acts(on_its_own=is_passed)
    return Acts(
        [Delta(tokens_counted.__name__, all_that_hold)],
        misreads=lambda misread: is_missing(misread) and early.has(misread),
        on_its_own=is_passed,
        unfollowed=is_missing,
    )


FINDING = Finding(
    id="061-sent-with-what-follows-the-end",
    rank=61,
    statement="KV-MEM-01",
    condition="a window or states, a connector, and drafts that hold, or a step in flight, when a request ends",
    where=lambda settings: not all(group.keeps_all for group in settings.geometry.groups),
    on=lambda stage: stage.connector,
    acts=_acts,
    holds=lambda ideal, answered, _request, _computed, beyond: ideal == 0 < answered <= beyond,
)
