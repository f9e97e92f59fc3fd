"""What is said of recordings that were judged: claimed, tested, found, not tested."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from attrs import asdict

from kvgate.kernel.text import counted, printable
from kvgate.shadow.rejudging import Rejudged

FORMAT = "kvgate-shadow-report"
VERSION = 1
STORIES_MAX = 3
NOT_TESTED = (
    "The worker: what it reads and writes is not in a recording.",
    "The scheduler's choices, and the numbers it counts on: the reference takes them as they are.",
    "KV events; and between checkpoints of the free queue its length and its last blocks alone.",
)


def text(rejudged: Sequence[Rejudged]) -> str:
    """For people."""
    return "\n".join(_lines(rejudged))


def _lines(rejudged: Sequence[Rejudged]) -> Iterator[str]:
    differences = sum(each.differences for each in rejudged)
    judged = sum(each.judge.tally.judged for each in rejudged)
    if differences:
        yield f"{counted(differences, 'difference')} in {counted(judged, 'call')}"
    else:
        yield f"no difference in {counted(judged, 'call')}"
    yield "\nClaimed"
    yield "- every answer of the live block manager, and its whole state at every checkpoint, is the reference's"
    yield "\nTested"
    for each in rejudged:
        yield from _tested(each)
    yield "\nFound\n"
    if not differences:
        yield "nothing that is not declared"
    for each in rejudged:
        yield from each.stories[:STORIES_MAX]
        if len(each.stories) > STORIES_MAX:
            yield f"… and {each.differences - STORIES_MAX} more\n"
    declared = {finding: count for each in rejudged for finding, count in each.declared.items()}
    if declared:
        yield "\ndeclared:"
        for finding, count in declared.items():
            yield f"- {finding}: seen {counted(count, 'time')}"
    yield "\nNot tested"
    for sentence in (*_unjudged(rejudged), *NOT_TESTED):
        yield f"- {sentence}"


def _tested(each: Rejudged) -> Iterator[str]:
    header, tally = each.header, each.judge.tally
    yield printable(
        f"engine {header.engine}, {header.scheduler} of {header.system} {header.system_version}: "
        f"{counted(tally.steps, 'step')}, {counted(tally.calls, 'record')}, {counted(tally.judged, 'call')} judged, "
        f"{counted(tally.checkpoints, 'checkpoint')} compared, in {counted(len(each.files), 'file')}",
        2000,
    )
    for ending in each.endings:
        yield printable(f"  {ending}", 2000)


def _unjudged(rejudged: Sequence[Rejudged]) -> Iterator[str]:
    for each in rejudged:
        for why, count in each.judge.tally.unjudged.items():
            yield printable(f"{counted(count, 'call')}: {why}.", 500)
        if each.judge.tally.lost:
            yield f"{counted(each.judge.tally.lost, 'call')} that were not recorded."


def as_json(rejudged: Sequence[Rejudged]) -> str:
    """For programs."""
    engines = [
        {
            "engine": each.header.engine,
            "scheduler": each.header.scheduler,
            "system": each.header.system,
            "system_version": each.header.system_version,
            "files": [str(file) for file in each.files],
            "endings": each.endings,
            "tally": asdict(each.judge.tally),
            "differences": each.differences,
            "declared": each.declared,
            "found": [
                {"call": finding.call, "step": finding.step, **asdict(finding.difference), "story": story}
                for finding, story in zip(each.found, each.stories, strict=True)
            ],
        }
        for each in rejudged
    ]
    document = {
        "format": FORMAT,
        "version": VERSION,
        "differences": sum(each.differences for each in rejudged),
        "engines": engines,
        "not_tested": list(NOT_TESTED),
    }
    return json.dumps(document, indent=2)
