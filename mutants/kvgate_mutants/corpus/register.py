"""All defects of the corpus, by number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kvgate.kernel.errors import UsageError
from kvgate_mutants.corpus.bug import Bug
from kvgate_mutants.corpus.bugs import blocks, hangs, hits, tiers

_BUGS = (
    *(*hits.ZERO_HITS, *hits.WRONG_HITS),
    *(*hangs.BLOCK_MANAGER_HANGS, *hangs.SCHEDULER_HANGS, *hangs.LATE_FREES, *hangs.PAIR_HANGS),
    *tiers.CONNECTORS,
    *(*blocks.DOUBLE_FREES, *blocks.MISCOUNTS, *blocks.WRONG_EVENTS),
)

BUGS: Mapping[str, Bug] = {bug.id: bug for bug in sorted(_BUGS, key=lambda bug: bug.number)}
"""Every defect, by id."""


def chosen(names: Iterable[str]) -> Sequence[Bug]:
    """The defects with these ids or numbers; all, if none is given.

    Raises:
        UsageError: the defect is unknown.
    """
    by_name = {**BUGS, **{str(bug.number): bug for bug in BUGS.values()}}
    wanted = list(dict.fromkeys(names))
    unknown = [name for name in wanted if name not in by_name]
    if unknown:
        raise UsageError(f"no defect {unknown[0]!r} in the corpus: kvgate corpus --list says what there is")
    return [by_name[name] for name in wanted] or list(BUGS.values())
