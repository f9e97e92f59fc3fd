"""The score of the tests: how many mutants they notice, and which they do not."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen
from benchmarks.mutation.argued import Argument
from benchmarks.mutation.tree import Tree
from benchmarks.mutation.verdicts import Mutant, Verdict, changes, mutants

APART = (Verdict.WAITING, Verdict.TIMEOUT)
"""They count neither way: on a busy machine the clock ends what the tests would have noticed, or would not."""
OPEN = (Verdict.SURVIVED, Verdict.UNREACHED, Verdict.ODD)

COLUMNS = (
    *(Verdict.KILLED, Verdict.SURVIVED, Verdict.UNREACHED, Verdict.ODD),
    *(Verdict.TIMEOUT, Verdict.WAITING),
)


@frozen
class Survivor:
    """A mutant that the tests did not notice."""

    mutant: Mutant
    change: tuple[str, ...]
    argument: Argument | None
    """Why nobody could."""


@frozen
class Score:
    """What there is to tell."""

    counts: dict[str, Counter[Verdict]]
    """Per module."""
    survivors: tuple[Survivor, ...]
    stale: tuple[Argument, ...]
    """Arguments for which there is no survivor, where all mutants of their function were tried."""

    @property
    def total(self) -> Counter[Verdict]:
        """Over all modules."""
        return sum(self.counts.values(), Counter[Verdict]())

    @property
    def judged(self) -> int:
        """How many mutants the tests said something about."""
        return sum(count for verdict, count in self.total.items() if verdict not in APART)

    @property
    def unexplained(self) -> list[Survivor]:
        """The gaps: neither noticed nor argued."""
        return [survivor for survivor in self.survivors if survivor.argument is None]

    def percent(self, argued: bool) -> float:
        """Of the mutants that the tests judged, how many they killed; with ``argued``, those that are argued to be
        equivalent are left out.
        """
        left_out = len(self.survivors) - len(self.unexplained) if argued else 0
        counted = self.judged - left_out
        return 100 * self.total[Verdict.KILLED] / counted if counted else 0.0


def score(tree: Tree, arguments: Sequence[Argument]) -> Score:
    """The score as it is now, of whatever was tried."""
    found = list(mutants(tree))
    counts: dict[str, Counter[Verdict]] = {}
    for mutant in found:
        counts.setdefault(mutant.module, Counter())[mutant.verdict] += 1
    survivors = tuple(_survivors(tree, found, arguments))
    used = {survivor.argument for survivor in survivors}
    waiting = {mutant.function for mutant in found if mutant.verdict is Verdict.WAITING}
    stale = tuple(each for each in arguments if each not in used and not fnmatch.filter(waiting, each.function))
    return Score(counts, survivors, stale)


def _survivors(tree: Tree, found: Iterable[Mutant], arguments: Sequence[Argument]) -> Iterator[Survivor]:
    by_module: dict[str, list[Mutant]] = {}
    for mutant in found:
        if mutant.verdict in OPEN:
            by_module.setdefault(mutant.module, []).append(mutant)
    for module, missed in by_module.items():
        changed = changes(tree, module, [mutant.name for mutant in missed])
        for mutant in missed:
            change = changed[mutant.name]
            fitting = (each for each in arguments if each.fits(mutant.function, change))
            yield Survivor(mutant, change, next(fitting, None))


def lines(found: Score) -> Iterator[str]:
    """What `report` prints."""
    columns = ("killed", "survived", "unreached", "odd", "by the clock", "waiting")
    yield f"{'module':<32} {'mutants':>8} " + " ".join(f"{column:>12}" for column in columns)
    for module, counts in [*found.counts.items(), ("all", found.total)]:
        yield f"{module:<32} {counts.total():>8,} " + " ".join(f"{counts[verdict]:>12,}" for verdict in COLUMNS)
    argued = len(found.survivors) - len(found.unexplained)
    yield ""
    yield (
        f"{found.percent(argued=False):.1f} % of {found.judged:,} mutants killed; {found.percent(argued=True):.1f} % "
        f"without the {argued} that are argued to be equivalent; {found.total[Verdict.WAITING]:,} of "
        f"{found.total.total():,} not tried yet"
    )
    if found.total[Verdict.TIMEOUT]:
        yield f"{found.total[Verdict.TIMEOUT]} ended by the clock, which says nothing on a busy machine: run them again"
    for survivor in found.unexplained:
        yield ""
        yield f"{survivor.mutant.verdict.value}: {survivor.mutant.name}"
        yield from (f"  {line}" for line in survivor.change)
    for argument in found.stale:
        yield ""
        yield f"an argument without a survivor: {argument.function}"
        yield from (f"  {line}" for line in argument.change or (f"apart from {argument.apart_from}",))
