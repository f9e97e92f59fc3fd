"""Finding 061: What comes after a request's end counts in what another node reads."""

from collections.abc import Callable

from kvgate.findings.finding import Acts, Finding
from kvgate.findings.left_early import LeftEarly
from kvgate.monitors.slot_memory import ENDED, NO_BLOCK, Misread
from kvreference.manager import tokens_counted
from kvreference.rules import Delta
from kvreference.settings import Settings


def _acts(settings: Settings, _release: str) -> Acts:
    groups = settings.geometry.groups
    early = LeftEarly(groups)

    def all_that_hold(rule: Callable[..., int], request: int, computed: int, beyond: int) -> int:
        """They stay counted, for the window too."""
        early.note(request, computed, computed + beyond)
        return rule(request, computed, beyond) + beyond

    def is_missing(misread: Misread) -> bool:
        if misread.mark != ENDED:
            return False
        if groups[misread.reader.group].keeps_states:
            # The state after a later token of the same request.
            return len(misread.found) > len(misread.wanted) and misread.found[: len(misread.wanted)] == misread.wanted
        return misread.got == NO_BLOCK and not groups[misread.reader.group].keeps_all

    def was_early(misread: Misread) -> bool:
        return is_missing(misread) and (groups[misread.reader.group].keeps_states or early.has(misread))

    return Acts([Delta(tokens_counted.__name__, all_that_hold)], misreads=was_early, unfollowed=is_missing)


FINDING = Finding(
    id="061-sent-with-what-follows-the-end",
    rank=61,
    statement="KV-MEM-01",
    condition="a window or states, a connector, and drafts",
    where=lambda settings: settings.drafts_max > 0 and not all(group.keeps_all for group in settings.geometry.groups),
    on=lambda stage: stage.connector,
    acts=_acts,
    holds=lambda ideal, answered, _request, _computed, beyond: ideal == 0 < answered <= beyond,
)
