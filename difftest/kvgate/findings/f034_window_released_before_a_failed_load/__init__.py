"""Finding 034: Blocks of a window are released for a load that then fails, and are read when it is computed again."""

from kvgate.findings.finding import Acts, Finding
from kvgate.monitors.slot_memory import Misread
from kvreference.block_pool import NULL
from kvreference.settings import Settings


def _acts(settings: Settings, _release: str) -> Acts:
    def released_for_the_load(misread: Misread) -> bool:
        """The block has left a window, and would not be read if the load of the request had not failed."""
        has_window = settings.geometry.groups[misread.reader.group].window_tokens is not None
        return has_window and misread.block == NULL and misread.token < misread.reader.unread_after_load

    return Acts(misreads=released_for_the_load)


FINDING = Finding(
    id="034-window-released-before-a-failed-load",
    rank=34,
    statement="KV-MEM-01",
    condition="a window, a connector, and a load that fails",
    where=lambda settings: any(group.window_tokens is not None for group in settings.geometry.groups),
    on=lambda stage: stage.connector and not stage.failed_loads_end,
    acts=_acts,
)
