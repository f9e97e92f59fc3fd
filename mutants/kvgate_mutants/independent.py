"""Which independent mutants of the reference the proofs alone kill, and which layer kills the others.

The mutants of independent_mutants.txt were written without looking at an obligation or a test. The run needs a clone::

    python -m kvgate_mutants.independent [--write FILE.md [--keep]] [MUTANT ...]

Each obligation whose stored trace has the mutated function is proved with the mutant, the most specific first: the one
that executes the fewest functions. Only its proof is tried, none of its own mutants. The mutant is

- *killed* by the first obligation that is refuted, or whose assumptions can no longer be met;
- *unproved* if none of that happens, but the solver no longer decides one;
- *stopped* if none of that happens, but a proof ends with an error that is not a guard of the reference: then the
  mutant may merely ask for what the obligation's model of a pool does not have.

Only what is killed counts, and an obligation kills only if it is proved without the mutant. With ``--keep``, the kills
that the page has are not run again: each of these obligations is then proved only without a mutant. For all others
``tests/reference`` is run, and one short check of vLLM: the mutant's probe, as ``kvgate_mutants.own_code_run`` runs it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from attrs import frozen

from kvgate.kernel.data_file import csv_text, data_name, read_csv, write_both
from kvgate.report.document import Section, columns
from kvgate.report.github import markdown_table
from kvgate_mutants.mutants.mutant import Mutant
from kvgate_mutants.mutants.registry import INDEPENDENT_MUTANTS
from kvspec import executed
from kvspec.proof_result import Options, Outcome, Task, check_obligation, in_processes
from kvspec.registry import obligations

TESTS = "tests/reference"
OPERATIONS = 3_000
"""How many operations a check of vLLM runs at most."""
_BY_NAME = {mutant.name: mutant for mutant in INDEPENDENT_MUTANTS}
_GUARDS = ("ValueError", "LookupError")
"""What the reference raises where an operation is not legal: a block that is queued twice, or an empty queue."""
_KILLS = (Outcome.REFUTED.value, Outcome.VACUOUS.value)


@frozen
class Proofs:
    """What the proofs make of one mutant."""

    mutant: Mutant
    asked: int
    """How many obligations execute the function."""
    seconds: float
    killed_by: str | None = None
    unproved: str | None = None
    stopped: str | None = None

    @property
    def verdict(self) -> str:
        """In a word."""
        if self.killed_by:
            return "killed"
        return "unproved" if self.unproved else "stopped" if self.stopped else "survived"

    @property
    def by(self) -> str:
        """Which obligation says so."""
        return self.killed_by or self.unproved or self.stopped or ""


def function_of(mutant: Mutant) -> str:
    """The mutated function, as traces name it."""
    return mutant.targets[0].removeprefix("kvreference.")


def traces() -> Mapping[str, Sequence[str]]:
    """What each obligation executes: as stored, and traced now where it is not."""
    known, stored = obligations(), executed.stored()
    missing = [name for name in known if name not in stored]
    return {**{name: stored[name] for name in known if name in stored}, **dict(executed.trace(missing, 1))}


def asked_about(function: str, executes: Mapping[str, Sequence[str]]) -> list[str]:
    """The obligations that execute ``function``, the most specific first."""
    return sorted((name for name in executes if function in executes[name]), key=lambda name: len(executes[name]))


def killed_before(data: str, executes: Mapping[str, Sequence[str]]) -> Mapping[str, Proofs]:
    """What a data file of the page says was killed, by obligations that are there and execute the mutated function."""
    return {
        name: Proofs(
            mutant, int(row["obligations that execute it"]), float(row["seconds"]), killed_by=row["obligation"]
        )
        for row in read_csv(data)
        if (mutant := _BY_NAME.get(name := row["mutant"])) is not None
        and row["proofs"] == "killed"
        and row["function"] == (function := function_of(mutant))
        and function in executes.get(row["obligation"], ())
    }


def _proved_with(work: tuple[str | None, str]) -> str:
    """What an obligation comes to with a mutant, or without one; what it raises, if it does."""
    mutant, name = work
    with nullcontext() if mutant is None else _BY_NAME[mutant].applied():
        try:
            result = check_obligation(obligations()[name], Task(name), Options(proof_only=True))
        except Exception as error:
            return f"raised {type(error).__name__}"
    raised = result.proof.detail.partition("(")[0] if result.outcome is Outcome.REFUTED else ""
    return f"raised {raised}" if raised and raised not in _GUARDS else result.outcome.value


def prove_with(mutant: Mutant, names: Sequence[str]) -> Proofs:
    """Prove the obligations ``names`` with ``mutant``, until one is refuted or says nothing any more."""
    started = time.monotonic()
    unproved = stopped = None
    outcomes = in_processes(_proved_with, [(mutant.name, name) for name in names], 1)
    for name, outcome in zip(names, outcomes, strict=False):
        if outcome in _KILLS:
            return Proofs(mutant, len(names), time.monotonic() - started, killed_by=name)
        if outcome == Outcome.UNKNOWN.value:
            unproved = unproved or name
        elif outcome != Outcome.PROVED.value:
            stopped = stopped or f"{name} ({outcome})"
    return Proofs(mutant, len(names), time.monotonic() - started, None, unproved, stopped)


def without_a_mutant(proofs: Sequence[Proofs]) -> list[Proofs]:
    """The same, if every obligation that kills is proved without a mutant.

    Raises:
        RuntimeError: one is not, so it says nothing of a mutant.
    """
    kill = sorted({each.killed_by for each in proofs if each.killed_by})
    for name, outcome in zip(kill, in_processes(_proved_with, [(None, name) for name in kill], 1), strict=True):
        if outcome != Outcome.PROVED.value:
            raise RuntimeError(f"{name} is {outcome} without a mutant")
    return list(proofs)


def tested_with(mutant: Mutant) -> str:
    """Whether a test of the reference fails with ``mutant``; those of the mutated file are run first."""
    file = mutant.targets[0].partition(":")[0].rpartition(".")[2]
    tests = sorted(Path(TESTS).rglob("test_*.py"), key=lambda path: (file not in path.stem, path))
    run = (
        "import sys, pytest; from kvgate_mutants.independent import _BY_NAME; "
        f"mutant = _BY_NAME[{mutant.name!r}].applied(); mutant.__enter__(); "
        "sys.exit(pytest.main(['-n0', '-x', '-q', '-p', 'no:cacheprovider', *sys.argv[1:]]))"
    )
    done = subprocess.run([sys.executable, "-c", run, *map(str, tests)], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{TESTS} did not run with {mutant.name}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return "yes" if done.returncode else "no"


def checked_with(mutants: Sequence[Mutant]) -> Mapping[str, str]:
    """Per mutant, what its probe finds that it does not find without one."""
    from kvgate_mutants.own_code_run import has_stopped, is_last, probed

    found = {}
    # The plug-in stays in a process that has loaded it.
    for mutant in sorted(mutants, key=lambda each: is_last(each.probes[0])):
        (probe,) = mutant.probes
        kill = probed(mutant, probe, OPERATIONS)
        if kill is None or probed(None, probe, kill.operations or OPERATIONS) is not None:
            found[mutant.name] = "no"
        else:
            found[mutant.name] = "stopped" if has_stopped(kill) else kill.statement or "yes"
        report(f"{mutant.name}: {probe}: {found[mutant.name]}")
    return found


def report(text: str) -> None:
    """What the run does now."""
    print(text, file=sys.stderr, flush=True)


def page(
    proofs: Sequence[Proofs], tested: Mapping[str, str], checked: Mapping[str, str], command: str, data: str
) -> tuple[str, str]:
    """The sums as a page, and the rows as its data file ``data``; what the proofs leave has its argument."""
    lines = ["# Independent mutants of the reference", "", _HEAD, "", _at_first(proofs), ""]
    lines += [f"Each mutant has a row in [{data}]({data}). Written by `{command}`; not edited.", ""]
    lines += [*_layers(proofs, tested, checked), ""]
    names = ("mutant", "function", "proofs", "obligation", "obligations that execute it", "seconds")
    rows = []
    for each in proofs:
        name, killed = each.mutant.name, each.verdict == "killed"
        survives = "" if killed else each.mutant.survives or "not argued"
        proved = name, function_of(each.mutant), each.verdict, each.by, str(each.asked), f"{each.seconds:.1f}"
        rows.append((*proved, tested.get(name, ""), checked.get(name, ""), survives, each.mutant.sentence))
    return "\n".join(lines), csv_text((*names, TESTS, "check of vLLM", "survives", "what is broken"), rows)


def _at_first(proofs: Sequence[Proofs]) -> str:
    """What the proofs made of the mutants of which that is known from when they were written."""
    first = Counter(each.mutant.before for each in proofs if each.mutant.before)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(first.items()))
    return f"Of the {first.total()} that were written later, when they were first run: {counts}."


def _layers(proofs: Sequence[Proofs], tested: Mapping[str, str], checked: Mapping[str, str]) -> Iterator[str]:
    verdicts = Counter(each.verdict for each in proofs)
    left = [each.mutant.name for each in proofs if each.verdict != "killed"]
    by_tests = [name for name in left if tested[name] == "yes"]
    by_check = [name for name in left if checked[name] not in ("no", "stopped")]
    others = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()) if verdict != "killed")
    rows = [
        ("proofs alone", len(proofs), verdicts["killed"], others),
        (TESTS, len(left), len(by_tests), "of what the proofs leave"),
        ("check of vLLM", len(left), len(by_check), "of what the proofs leave"),
        ("no layer", len(left), len(left) - len({*by_tests, *by_check}), "found by none of the three"),
    ]
    yield from _table(columns("layer", "mutants", "killed", "note"), rows)


def _table(shown: Sequence[object], rows: Sequence[tuple[object, ...]]) -> Sequence[str]:
    section = Section("", tuple(shown), tuple(rows))  # type: ignore[arg-type]  # cells of any kind
    return list(markdown_table(section, map(section.texts, section.rows)))


_HEAD = """\
These mutants of `kvreference` were written before any obligation or test was read. For each, every obligation that
executes the mutated function is proved until one is refuted or says nothing any more. "Unproved": the solver no longer
decides one. "Stopped": a proof ends with an error that the reference does not raise by itself. Neither is a kill. For
those that the proofs leave, the tests of the reference and one short check of vLLM are run.

Obligations were then written for what survivors break. So the figure of all says what is proved now, and not what the
proofs find in unseen mutants: that is what they made of the mutants when these were first run. Of the first 60 they
killed 39. Of the later ones none is a mutant that an obligation has of its own."""


def main() -> None:
    """Run the mutants that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m kvgate_mutants.independent")
    parser.add_argument("names", nargs="*", metavar="MUTANT", help="only these mutants")
    parser.add_argument("--write", type=Path, metavar="FILE.md", help="also write the page, and its rows as FILE.csv")
    parser.add_argument("--keep", action="store_true", help="run only what the page does not say is killed")
    options = parser.parse_args()
    if options.keep and not options.write:
        parser.error("--keep needs --write")
    unknown = [name for name in options.names if name not in _BY_NAME]
    if unknown:
        parser.error(f"unknown mutants: {', '.join(unknown)}")
    executes = traces()
    data = data_name(options.write or Path("mutants-independent.md"))
    before = options.write.with_name(data).read_text(encoding="utf-8") if options.keep else ""
    kept = killed_before(before, executes) if options.keep else {}
    proofs = []
    for mutant in INDEPENDENT_MUTANTS:
        if mutant.name in kept:
            proofs.append(kept[mutant.name])
        elif not options.names or mutant.name in options.names:
            proofs.append(prove_with(mutant, asked_about(function_of(mutant), executes)))
            report(f"{mutant.name}: {proofs[-1].verdict} {proofs[-1].by} {proofs[-1].seconds:.1f} s")
    proofs = without_a_mutant(proofs)
    left = [each.mutant for each in proofs if each.verdict != "killed"]
    tested = {}
    for mutant in left:
        tested[mutant.name] = tested_with(mutant)
        report(f"{mutant.name}: {TESTS}: {tested[mutant.name]}")
    command = "python -m kvgate_mutants.independent"
    written = f"{command} --write {options.write.name}" if options.write else command
    text, rows = page(proofs, tested, checked_with(left), written, data)
    print(text)
    if options.write:
        write_both(options.write, text, rows)


if __name__ == "__main__":
    main()
