"""How many branches of vLLM's block manager and scheduler a run of the gate reaches, and why it reaches no more.

    python -m benchmarks.vllm_coverage [--profile ci] [--level scheduler] [--seconds 300]

runs what `kvgate check` runs at each level, in one process, and prints a table by file, then every branch that was not
reached, by function. ``unreached.txt`` next to this file has the reasons: of a statement of a function, for its
branches and for those within it that are in lines which never ran; of a function alone, for all of its branches. A
reason that begins with "Not driven" says that the gate could come there: its branches count as reachable. What has no
reason is marked, and so are reasons for what was reached. Exit 1 if there are such reasons; a profile that is shorter
than the one for which the reasons are written (ci) leaves more unreached, which is not an error.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from attrs import frozen
from benchmarks.harness import Row

from kvgate.adapters.registry import load_system
from kvgate.campaigns.branches import FILES, Branches, File
from kvgate.gate.campaign import Campaign
from kvgate.gate.level import LevelChoice
from kvgate.gate.profiles import PROFILES
from kvgate.kernel.errors import UsageError
from kvgate.levels.registry import default_models, prepare

REASONS = Path(__file__).with_name("unreached.txt")
LEVELS = (LevelChoice.BLOCKS, LevelChoice.SCHEDULER, LevelChoice.PAIR)


@frozen
class Reason:
    """Why branches of a function are not reached: those of a statement that begins with a passage, or all."""

    file: str
    function: str
    passage: str
    why: str

    @property
    def excuses(self) -> bool:
        """Whether the branches cannot be reached, and not only that nothing drives them."""
        return not self.why.startswith("Not driven")


@frozen
class Unreached:
    """A branch that was not reached."""

    function: str
    line: int
    to: int
    text: str
    """The line, as it is written."""
    reason: Reason | None


def read_reasons(text: str) -> tuple[Reason, ...]:
    """The reasons in a file: each is a line ``file:function: passage``, and lines that are indented say why.

    Raises:
        UsageError: a reason that is said of nothing, or a line of code without a reason.
    """
    reasons: list[Reason] = []
    for line in text.splitlines():
        if line.startswith(" ") and reasons:
            reasons[-1] = Reason(
                reasons[-1].file, reasons[-1].function, reasons[-1].passage, f"{reasons[-1].why} {line.strip()}".strip()
            )
        elif line.strip() and not line.startswith("#"):
            file, _, rest = line.partition(":")
            function, _, passage = rest.partition(":")
            reasons.append(Reason(file, function.strip(), passage.strip(), ""))
    for reason in reasons:
        if not (reason.function and reason.why):
            raise UsageError(f"{REASONS.name}: {reason.file}:{reason.function}: no function, or no reason")
    return tuple(reasons)


@lru_cache
def _statements(source: str) -> tuple[tuple[range, str], ...]:
    """The lines of each statement, and its text up to the statements inside, on one line."""
    lines = source.splitlines()
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt):
            span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            inside = getattr(node, "body", None)
            last = max(span.start, inside[0].lineno - 1) if inside else span[-1]
            found.append((span, " ".join(line.strip() for line in lines[span.start - 1 : last])))
    return tuple(found)


def unreached(file: File, reasons: Sequence[Reason]) -> Iterator[Unreached]:
    """The branches of a file that were not reached, each with its reason if there is one."""
    source = file.path.read_text(encoding="utf-8")
    lines = source.splitlines()
    for function in file.functions:
        own = [each for each in reasons if (each.file, each.function) == (file.path.stem, function.name)]
        # The statements that each reason is for.
        spans = {
            each: [span for span, text in _statements(source) if each.passage and text.startswith(each.passage)]
            for each in own
        }
        for line, to in function.unreached:
            never_ran = line in file.lines_unreached
            reason = next(
                (
                    each
                    for each in own
                    if not each.passage
                    or any(line == span.start or (never_ran and line in span) for span in spans[each])
                ),
                None,
            )
            yield Unreached(function.name, line, to, lines[line - 1].strip(), reason)


def measure(
    profile: str, levels: Sequence[LevelChoice], seconds: float | None = None, seed: int = 0
) -> tuple[File, ...]:
    """The branches that the levels reach together; ``seconds`` end each of them."""
    branches = Branches()
    with branches.measured():
        system = load_system("stock")
        models = default_models(system, profile)
        for level in levels:
            for each in prepare(level, system, models, profile, seed=seed, seconds=seconds):
                outcome = Campaign(each.trials, each.plan).run()
                ran = f"level {level.value}: {sum(tally.operations for tally in outcome.tallies):,} operations"
                print(f"{ran}, {outcome.ended}, {len(outcome.found)} divergences", file=sys.stderr)
    files = branches.files()
    if len(files) != len(FILES):
        print(f"{len(files)} of {len(FILES)} files were imported at these levels", file=sys.stderr)
    return files


def rows(quick: bool) -> Iterator[Row]:
    """The share of branches reached, by file."""
    for file in measure("precommit" if quick else "quick", LEVELS):
        percent = 100 * file.reached / file.branches
        yield Row(f"{file.path.stem}: branches reached", percent, "%", percent, percent)


def render(files: Sequence[File], reasons: Sequence[Reason]) -> tuple[str, tuple[Reason, ...]]:
    """The table and the list; and the reasons for what was reached, or is not there."""
    found = {file: tuple(unreached(file, reasons)) for file in files}
    out = [f"{'file':<32} reached   of     %  without those that cannot be reached"]
    for name, chosen in [*((file.path.stem, [file]) for file in files), ("all", files)]:
        reached, branches = sum(file.reached for file in chosen), sum(file.branches for file in chosen)
        excused = sum(each.reason is not None and each.reason.excuses for file in chosen for each in found[file])
        reachable = branches - excused
        out.append(
            f"{name:<32} {reached:>7} {branches:>4} {_percent(reached, branches)}  {_percent(reached, reachable)}"
        )
    for file in files:
        function = None
        for each in found[file]:
            if each.function != function:
                function = each.function
                out.append(f"\n{file.path.stem}:{function}")
            why = each.reason.why if each.reason else "NO REASON GIVEN"
            out.append(f"  {each.line} to {each.to}: {each.text}\n      {why}")
    used = {each.reason for file in files for each in found[file]}
    return "\n".join(out), tuple(each for each in reasons if each not in used)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole if whole else 100:5.1f}"


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", choices=list(PROFILES), default="quick")
    parser.add_argument("--level", action="append", choices=[level.value for level in LEVELS])
    parser.add_argument("--seconds", type=float, help="of each level")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    levels = [level for level in LEVELS if not options.level or level.value in options.level]
    reasons = read_reasons(REASONS.read_text(encoding="utf-8"))
    text, needless = render(measure(options.profile, levels, options.seconds, options.seed), reasons)
    print(text)
    for reason in needless:
        print(f"\nreached, or not there any more: {reason.file}:{reason.function}: {reason.passage}")
    return int(bool(needless))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UsageError as error:
        print(f"vllm_coverage: {error}", file=sys.stderr)
        sys.exit(2)
