"""Finding 061: What comes after a request's end counts in what another node reads."""

from collections.abc import Callable

from kvgate.findings.finding import Acts, Finding
from kvgate.monitors.slot_memory import ENDED, NO_BLOCK, Misread
from kvreference.manager import tokens_counted
from kvreference.rules import Delta
from kvreference.settings import Settings


def _acts(settings: Settings, _release: str) -> Acts:
    groups, early = settings.geometry.groups, set[tuple[int, int]]()

    def all_that_hold(rule: Callable[..., int], computed: int, beyond: int) -> int:
        """They stay counted, for the window too."""
        for index, group in enumerate(groups):
            left = range(group.blocks_dead(computed), group.blocks_dead(computed + beyond))
            early.update((index, place) for place in left)
        return rule(computed, beyond) + beyond

    def misreads(misread: Misread) -> bool:
        if misread.mark != ENDED:
            return False
        group = groups[misread.reader.group]
        if group.keeps_states:
            # The state after a later token of the same request.
            return len(misread.found) > len(misread.wanted) and misread.found[: len(misread.wanted)] == misread.wanted
        place = misread.reader.group, misread.token // group.block_size_tokens
        # Without the reference, nobody knows what was left too early.
        return misread.got == NO_BLOCK and (place in early if early else not group.keeps_all)

    return Acts([Delta(tokens_counted.__name__, all_that_hold)], misreads=misreads)


FINDING = Finding(
    id="061-sent-with-what-follows-the-end",
    rank=61,
    statement="KV-MEM-01",
    condition="a window or states, a connector, and drafts",
    where=lambda settings: settings.drafts_max > 0 and not all(group.keeps_all for group in settings.geometry.groups),
    on=lambda stage: stage.connector,
    acts=_acts,
    holds=lambda ideal, answered, _computed, beyond: ideal == 0 < answered <= beyond,
)
