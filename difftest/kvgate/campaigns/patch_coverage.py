"""Did a run test what was changed? Which lines and branches of a patch ran, and which never did."""

from __future__ import annotations

from collections.abc import Iterable

from kvgate.adapters.working_tree import Changes
from kvgate.campaigns.branches import Branches
from kvgate.gate.case_runner import Arc
from kvgate.gate.verdict import NeverRan, PatchCoverage


def branches_of(changes: Changes) -> Branches:
    """What measures the files of a patch."""
    return Branches([str(path) for path in changes.lines])


def coverage_of(changes: Changes, ran: Iterable[Arc]) -> PatchCoverage:
    """How much of a patch ran, by what was seen in all processes."""
    branches = branches_of(changes)
    branches.add(ran)
    lines = reached = taken = ways = 0
    never = []
    for path, every, missing, left in branches.lines_of(sorted(changes.lines)):
        due = every & set(changes.lines[path])
        lines += len(due)
        reached += len(due - missing)
        text = path.read_text(encoding="utf-8", errors="replace").splitlines()
        never += [NeverRan(str(path), line, text[line - 1].strip()) for line in sorted(due & missing)]
        # A branch of a line that never ran adds nothing to the report.
        taken += sum(begin in due for begin, _ in left.taken)
        untaken = [way for way in left.untaken if way[0] in due - missing]
        ways += sum(begin in due for begin, _ in (*left.taken, *left.untaken))
        never += [NeverRan(str(path), begin, text[begin - 1].strip(), end) for begin, end in sorted(untaken)]
    return PatchCoverage(lines, reached, ways, taken, tuple(never))
