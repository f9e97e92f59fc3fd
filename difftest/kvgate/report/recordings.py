"""The reports of recordings of live engines: checked by the reference, and compared with each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attrs import asdict

from kvgate.kernel.output import AGREEMENT, DIVERGENCE
from kvgate.kernel.text import counted, printable
from kvgate.report.document import Column, Report, Section, Story
from kvgate.shadow.recheck import Recheck
from kvgate.shadow.recording_diff import RecordingDiff

STORIES_MAX = 3
"""How many differences of one engine are shown."""
CLAIMED = ("every answer of the live block manager, and its whole state at every checkpoint, is the reference's",)
NOT_TESTED = (
    "The worker: of what it does, a recording has the block ids that it is sent.",
    "The scheduler's choices, and the numbers it bases them on: the reference takes them from the recording.",
    "The tokens and parents of KV events; and of the free queue, between checkpoints, all but its length and its end.",
)
ENGINES = (
    *(Column("engine"), Column("scheduler"), Column("system"), Column("version")),
    *(Column("steps", ","), Column("records", ","), Column("calls checked", ","), Column("checkpoints", ",")),
    *(Column("differences", ","), Column("files", shown=False), Column("endings", shown=False)),
    *(Column("tally", shown=False), Column("known findings", shown=False), Column("gaps", shown=False)),
)


def report_of(rejudged: Sequence[Recheck]) -> Report:
    """The report of recordings that the reference followed."""
    differences = sum(each.differences for each in rejudged)
    checked = sum(each.checker.stats.judged for each in rejudged)
    number = counted(differences, "difference") if differences else "no difference"
    missing = tuple(printable(each, 2000) for one in rejudged for each in (*one.gaps, *one.endings))
    found = tuple(story for each in rejudged for story in _stories(each))
    known = sum((Counter(each.declared) for each in rejudged), Counter[str]())
    return Report(
        command="replay",
        outcome=f"{number} in {counted(checked, 'call')}",
        exit_code=DIVERGENCE if differences else AGREEMENT,
        claimed=CLAIMED,
        tested=(Section("", ENGINES, tuple(map(_engine, rejudged)), notes=missing),),
        found=found,
        found_left_out=differences - len(found),
        known=tuple(
            Story("declared", severity="notice", times=times, finding=finding) for finding, times in known.items()
        ),
        not_tested=(*_unchecked(rejudged), *NOT_TESTED),
        found_noun="difference",
    )


def _engine(each: Recheck) -> tuple[Any, ...]:
    header, tally = each.header, each.checker.stats
    return (
        *(header.engine, header.scheduler, header.system, header.system_version),
        *(tally.steps, tally.calls, tally.judged, tally.checkpoints, each.differences),
        *(list(map(str, each.files)), list(each.endings), asdict(tally), dict(each.declared), list(each.gaps)),
    )


def _stories(each: Recheck) -> Iterator[Story]:
    for finding, story in zip(each.found[:STORIES_MAX], each.stories, strict=False):
        difference = finding.difference
        yield Story(
            headline=printable(f"{difference.statement} at step {finding.step}, call {finding.call}", 500),
            text=story,
            place=(each.header.engine,),
            statement=difference.statement,
            details={"call": finding.call, "step": finding.step, **asdict(difference)},
        )


def _unchecked(rejudged: Sequence[Recheck]) -> Iterator[str]:
    for each in rejudged:
        for why, count in each.checker.stats.unjudged.items():
            yield printable(f"{counted(count, 'call')}: {why}.", 500)
        if each.checker.stats.lost:
            yield f"{counted(each.checker.stats.lost, 'call')} that were not recorded."


def report_of_contrast(one: Path, other: Path, found: RecordingDiff) -> Report:
    """The report of two recordings that were compared call by call."""
    same = f"the same, in {counted(found.shared, 'call')}"
    differs = f"the same in {counted(found.shared, 'call')}; then they differ: {found.difference}"
    sides = ((str(one), found.one), (str(other), found.other))
    lines = [f"after {counted(found.shared, 'call')} in common: {found.difference}"]
    lines += [f"  {printable(path, 2000)}: {said}" for path, said in sides]
    story = Story(
        headline=lines[0],
        text="\n".join(lines),
        details={"difference": found.difference, "one": found.one, "other": found.other},
    )
    return Report(
        command="diff",
        outcome=same if found.difference is None else differs,
        exit_code=AGREEMENT if found.difference is None else DIVERGENCE,
        tested=(
            Section(
                "", (Column("recordings"), Column("calls in common", ",")), (([str(one), str(other)], found.shared),)
            ),
        ),
        found=() if found.difference is None else (story,),
        not_tested=tuple(printable(missing, 2000) for missing in found.missing),
        tested_title="Compared",
        found_noun="difference",
    )
