"""Finding 041: A session keeps the hash of a block whose last token the next part replaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvgate.findings.finding import Acts, Finding
from kvgate.findings.read_in_prefix import is_in
from kvgate.monitors.slot_memory import Misread
from kvreference.content import Prefix
from kvreference.manager import prefixes_kept
from kvreference.rules import Delta
from kvreference.settings import Settings


def _acts(_settings: Settings, _release: str) -> Acts:
    stale: set[Prefix] = set()
    """The prefixes that end with the last answer of a part of some session, which was replaced."""

    def keeps_all(kept: Callable[..., int], prefixes: Sequence[Prefix], computed: int) -> int:
        stale.update(prefixes[kept(prefixes, computed) :])
        return len(prefixes)

    def of_another_answer(misread: Misread) -> bool:
        """The state is that of a stale prefix's tokens, but for those that were replaced."""
        wanted, found = misread.wanted, misread.found
        if not found or len(wanted) != len(found):
            return False
        # Salt and adapter come before the first token.
        differs = [at for at, (one, other) in enumerate(zip(wanted, found, strict=True)) if one[1:] != other[1:]]
        return bool(differs) and all(
            any(prefix.tokens == at and is_in(prefix, wanted[: at + 1]) for prefix in stale) for at in differs
        )

    return Acts([Delta(prefixes_kept.__name__, keeps_all)], misreads=of_another_answer)


FINDING = Finding(
    id="041-session-keeps-a-stale-hash",
    rank=41,
    statement="KV-MEM-01",
    condition="a session of which a part's last answer ends a piece that is hashed",
    where=lambda settings: settings.caches,
    on=lambda _stage: True,
    acts=_acts,
    holds=lambda ideal, answered, _prefixes, _computed: answered == ideal + 1,
)
