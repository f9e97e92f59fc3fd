"""The corpus as a page and a data file: ``kvgate corpus --draw-seconds 5 --write difftest/corpus/README.md``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvgate.kernel.data_file import csv_text
from kvgate_mutants.corpus.bug import Bug
from kvgate_mutants.corpus.probe import Result, State
from kvgate_mutants.corpus.tables import drawn, kinds, summary

INTRODUCTION = """# The corpus

Real defects of the KV-cache block managers of vLLM, vLLM-Ascend and programs with the same mechanism, as cases that the
gate must catch. [corpus.csv](corpus.csv) has a row for each case, and `kvgate corpus ID` runs the cases of one defect.

Where published code with the defect runs here, that code is run. Elsewhere a mutant re-introduces the reported wrong
rule (*elsewhere*: in another program than the reported one). An *analogue* is a fault of the same kind whose reported
cause is another or unknown; *by hand* means that published code is called as nothing published calls it. Neither counts
as caught in the first number below.

A case is caught if the guarantee that it should violate is violated first, and if its control shows nothing. The
control is the same code without the mutant, a repair of it, the reference in its place, or the same code under other
settings. *Drawn* says how soon cases that were generated from seeds, on the same groups, find the defect too. Seconds
are counted once the system is loaded."""
WRITTEN = "Written by `kvgate corpus --draw-seconds 5 --write difftest/corpus/README.md`."
COLUMNS = (
    *("#", "defect", "reported", "class", "affected", "what goes wrong", "code that was run", "version", "what it is"),
    *("control", "control showed", "found by", "guarantee", "finding", "operations", "seconds", "drawn", "the gate"),
    *("why a mutant", "remark"),
)


def page(bugs: Sequence[Bug], results: Sequence[Result]) -> str:
    """What the rows come to."""
    reported = "".join(f"- {part}\n" for part in summary(bugs, results).split("; "))
    return f"{INTRODUCTION}\n\n{reported}\n{WRITTEN}\n"


def data(bugs: Sequence[Bug], results: Sequence[Result]) -> str:
    """The data file: a row for each case that was run, and one for each defect without a case."""
    return csv_text(COLUMNS, (row for bug in bugs for row in _rows(bug, results)))


def _rows(bug: Bug, results: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    lead = str(bug.number), bug.id, f"[{bug.thread}]({bug.link})", bug.kind.value, bug.affected, bug.title
    for result in results:
        if result.bug != bug.id:
            continue
        trial, caught = bug.trials[result.trial], result.state is State.CAUGHT
        yield (
            *(*lead, result.code, result.version, *kinds(trial), result.control),
            *(result.detector if caught else result.state.value, result.statement, result.finding),
            *((str(result.operations), f"{result.seconds:.3f}") if caught else ("", "")),
            *(drawn(result), result.says, trial.why_mutant or "", trial.remark or ""),
        )
    if not bug.trials:
        yield (*lead, "none", *[""] * 4, "not caught", *[""] * 7, bug.not_caught)
