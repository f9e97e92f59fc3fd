"""What all shards say together: one verdict, in which each defect stands once, and a corpus of traces.

What a defect can be made smallest by depends on the case that showed it. So the first few shards that find it make it
small, each its own case, and the smallest is kept; shards that begin later receive it, and only count it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import evolve

from kvgate.campaigns.plan import FuzzPlan
from kvgate.campaigns.results import Record, ShardResult
from kvgate.campaigns.shard import Known
from kvgate.gate.verdict import Found, Tally, Verdict
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.errors import UsageError
from kvgate.kernel.text import counted
from kvgate.levels.registry import read

MADE_SMALL_BY = 3
"""How many shards make the same defect small, that is, how often it costs time."""


class Merged:
    """Results of shards, taken in one by one, each once."""

    def __init__(self) -> None:
        self.shards: set[int] = set()
        self.seconds = 0.0
        self.twice = 0
        self._versions: set[str] = set()
        self._detectors: tuple[str, ...] = ()
        self._tallies: dict[tuple[str, str], Tally] = {}
        self._first: dict[tuple[str, str], tuple[int, int]] = {}
        """Where a tally stands in the first shard, by number, that has it: shards end in any order."""
        self._found: dict[tuple[str, ...], Record] = {}
        self._declared: dict[str, Record] = {}
        self._traces: Counter[tuple[str, ...] | str] = Counter()
        """Of how many shards there is a trace of a defect, or of a finding."""

    def add(self, result: ShardResult) -> None:
        """Take in a result; one of a shard that is in already is passed over."""
        if result.shard in self.shards:
            return
        self.shards.add(result.shard)
        self.seconds += result.seconds
        self.twice += result.twice
        self._versions.add(result.system_version)
        self._detectors = tuple(dict.fromkeys((*self._detectors, *result.detectors)))
        for line, tally in enumerate(result.tallies):
            place = tally.model, tally.preset
            self._first[place] = min((result.shard, line), self._first.get(place, (result.shard, line)))
            had = self._tallies.get(place, evolve(tally, cases=0, operations=0, cut=0, alone=0, digest=""))
            self._tallies[place] = evolve(
                had,
                cases=had.cases + tally.cases,
                operations=had.operations + tally.operations,
                cut=had.cut + tally.cut,
                alone=had.alone + tally.alone,
            )
        for record in result.records:
            self._traces[record.finding or record.kind] += record.trace is not None
            if record.finding is None:
                self._found[record.kind] = _of_both(self._found.get(record.kind), record)
            else:
                self._declared[record.finding] = _of_both(self._declared.get(record.finding), record)

    @property
    def operations(self) -> int:
        """How many operations were performed."""
        return sum(tally.operations for tally in self._tallies.values())

    @property
    def kinds(self) -> int:
        """How many different defects were found."""
        return len(self._found)

    def known(self) -> Known:
        """What enough shards have shown, with a trace."""
        return Known(
            frozenset(kind for kind in self._found if self._traces[kind] >= MADE_SMALL_BY),
            frozenset(finding for finding in self._declared if self._traces[finding] >= MADE_SMALL_BY),
        )

    def verdict(self, plan: FuzzPlan, corpus: Path, ended: str) -> Verdict:
        """The verdict; the traces of what was found are written to ``corpus``, and read from there."""
        return Verdict(
            system=plan.sut,
            # More than one, where the system was replaced between two sessions.
            version=" and ".join(sorted(self._versions)) or "unknown",
            profile=f"fuzz, {counted(len(self.shards), 'shard')}, {counted(self.twice, 'case')} twice",
            seed=plan.seed,
            detectors=self._detectors,
            tallies=tuple(self._tallies[place] for place in sorted(self._tallies, key=self._first.__getitem__)),
            found=tuple(_found(record, corpus) for _, record in sorted(self._found.items())),
            declared=tuple(_found(record, corpus) for _, record in sorted(self._declared.items())),
            seconds=self.seconds,
            preloads=plan.preloads,
            ended=ended,
        )


def merge(results: Iterable[ShardResult]) -> Merged:
    """All results together."""
    merged = Merged()
    for result in results:
        merged.add(result)
    return merged


def _of_both(one: Record | None, other: Record) -> Record:
    """What two records of the same defect say together: the shorter way there that has a trace, and how often."""
    if one is None:
        return other
    # Of two traces of one length always the same one, independent of which shard ended first.
    first = min((one, other), key=lambda record: (record.trace is None, record.operations, record.trace or ""))
    return evolve(first, times=one.times + other.times)


def trace_name(statement: str, kind: Iterable[str]) -> str:
    """The name of the trace of a defect: the guarantee, and what distinguishes it from others that violate the same."""
    return f"{statement}-{blake2b(chr(10).join(kind).encode(), digest_size=4).hexdigest()}.jsonl"


def _found(record: Record, corpus: Path) -> Found:
    if record.trace is None:
        raise UsageError(
            f"{corpus.parent}: the shard that stored the trace of {record.statement} ({record.subject}) is gone: "
            "put it back, or begin a new run"
        )
    path = corpus / trace_name(record.statement, record.kind if record.finding is None else [record.finding])
    corpus.mkdir(exist_ok=True)
    path.write_text(record.trace, encoding="utf-8")
    case, driver = read(path).case, None
    if record.asked is not None:
        driver = case
        with TemporaryDirectory() as folder:
            asked = Path(folder) / "asked.jsonl"
            asked.write_text(record.asked, encoding="utf-8")
            case = read(asked).case
    operation = None if record.at_rest or not case.operations else case.operations[-1]
    difference = Difference(record.statement, record.subject, record.expected, record.got)
    divergence = Divergence(record.step, operation, record.detector, difference)
    return Found(divergence, case, record.times, record.finding, driver=driver)
