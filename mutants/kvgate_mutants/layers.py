"""Which layer kills each independent mutant of the reference: proofs, conform, a check of vLLM, tests.

The run needs a clone::

    python -m kvgate_mutants.layers --write difftest/mutants-layers.md [--keep] [MUTANT ...]

What the proofs kill, and what a check of vLLM and the tests make of those that the proofs leave, is read from
``mutants-independent.md`` next to the page (``kvgate_mutants.independent``). All else is run here with each mutant that
is named, or with all: ``kvgate conform`` on a few models with generated steps, the tests, and the check. Where a layer
fails itself, that is not a kill. The page is written after each cell, so a run that is stopped keeps what it found.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from kvgate.kernel.data_file import csv_text, data_name, read_csv, write_both
from kvgate.report.document import Section, columns
from kvgate.report.github import markdown_table
from kvgate_mutants.independent import TESTS, checked_with, report, tested_with
from kvgate_mutants.mutants.mutant import Mutant
from kvgate_mutants.mutants.registry import INDEPENDENT_MUTANTS
from kvgate_mutants.own_code_run import has_stopped, is_last, probed

PROVED = "mutants-independent.md"
MODELS = ("gemma-hybrid+eagle", "compressed+partial", "mamba-align", "gpt-oss-hybrid+retention+scratch+pinned=2")
"""What ``kvgate conform`` is run on; so many operations on each."""
STEPS = 1_500
LAYERS = ("proofs", "conform", "check of vLLM", TESTS)
KILLED, NO, NOT_RUN = "killed", "no", "not run"
_KILLS = {"yes": KILLED, "no": NO}


def independent(data: str) -> dict[str, list[str]]:
    """Per mutant, what proofs, a check of vLLM and tests make of it, as the data file of ``PROVED`` says."""
    found = {}
    for row in read_csv(data):
        check, tests = row["check of vLLM"] or NOT_RUN, row[TESTS] or NOT_RUN
        found[row["mutant"]] = [row["proofs"], _checked(check), _KILLS.get(tests, tests)]
    return found


def _checked(said: str) -> str:
    """What ``checked_with`` says of a mutant, as a verdict."""
    return _KILLS.get(said, said if said in (NOT_RUN, "stopped") else KILLED)


def stored(data: str) -> dict[str, list[str]]:
    """Per mutant, the verdicts of ``LAYERS``, as a data file of this page has them."""
    return {row["mutant"]: [row[layer] for layer in LAYERS] for row in read_csv(data)}


def conformed_with(mutant: Mutant) -> str:
    """What ``kvgate conform`` makes of a mutant."""
    verdicts = [_conformed(mutant, f"conform:{model}") for model in MODELS]
    return next((each for each in (KILLED, "stopped") if each in verdicts), NO)


def _conformed(mutant: Mutant, probe: str) -> str:
    kill = probed(mutant, probe, STEPS)
    if kill is None or not _is_quiet(probe):
        return NO
    return "stopped" if has_stopped(kill) else KILLED


@cache
def _is_quiet(probe: str) -> bool:
    """Whether a probe finds nothing without a mutant; else what it finds with one says nothing."""
    return probed(None, probe, STEPS) is None


def page(verdicts: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """The sums as a page, and the rows as its data file: per mutant, the verdicts of ``LAYERS``."""
    rows = [(name, *each) for name, each in verdicts.items()]
    return "\n".join((_HEAD, *_sums(verdicts), "")), csv_text(("mutant", *LAYERS), rows)


def _sums(verdicts: Mapping[str, Sequence[str]]) -> Iterator[str]:
    rows: list[tuple[object, ...]] = []
    for place, layer in enumerate(LAYERS):
        run = {name for name, each in verdicts.items() if each[place] != NOT_RUN}
        killed = {name for name, each in verdicts.items() if each[place] == KILLED}
        others = {name for name, each in verdicts.items() if KILLED in (*each[:place], *each[place + 1 :])}
        rows.append((layer, len(run), len(killed), len(killed - others)))
    found = sum(KILLED in each for each in verdicts.values())
    rows.append(("any of them", len(verdicts), found, ""))
    yield from _table(("layer", "mutants run", "killed", "killed by no other that was run"), rows)


def _table(names: Sequence[str], rows: Sequence[tuple[object, ...]]) -> Iterator[str]:
    section = Section("", columns(*names), tuple(rows))
    yield from markdown_table(section, map(section.texts, section.rows))


_HEAD = f"""\
# What each layer kills

The [independent mutants](mutants-independent.md) of the reference, and what each layer makes of them. Proofs: every
obligation that executes the mutated function. Conform: `kvgate conform` on {len(MODELS)} models, with {STEPS:,}
operations each. Check of vLLM: one short check on one model, the mutant's probe. `tests/reference`: until the first
test fails. "Stopped": the layer failed itself, which is not a kill. "Survived" and "no": nothing was found. A layer
counts only the mutants that it was run with: the others are "not run".

Each mutant has a row in [mutants-layers.csv](mutants-layers.csv). Written by
`python -m kvgate_mutants.layers --write mutants-layers.md`; not edited.
"""


def main() -> None:
    """Run each layer with the mutants, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m kvgate_mutants.layers")
    parser.add_argument("names", nargs="*", metavar="MUTANT", help="run only these; the others stay what they are")
    parser.add_argument(
        "--write", type=Path, required=True, metavar="FILE.md", help="the page; the other stands next to it"
    )
    parser.add_argument("--keep", action="store_true", help="keep what the page has, and run only what was not run")
    options = parser.parse_args()
    names = [mutant.name for mutant in INDEPENDENT_MUTANTS]
    if unknown := set(options.names) - set(names):
        parser.error(f"unknown mutants: {', '.join(sorted(unknown))}")
    folder = options.write.parent
    others = independent((folder / data_name(Path(PROVED))).read_text(encoding="utf-8"))
    kept = stored((folder / data_name(options.write)).read_text(encoding="utf-8"))
    chosen = {*(options.names or names)}
    verdicts = {}
    for name in names:
        proofs, check, tests = others[name]
        is_kept = name in kept and (options.keep or name not in chosen)
        before = kept[name][1:] if is_kept else [NOT_RUN] * 3
        # What the proofs leave was run before.
        found = [NOT_RUN, check, tests]
        verdicts[name] = [proofs, *(own if own != NOT_RUN else old for own, old in zip(found, before, strict=True))]
    # What takes least comes first.
    for place, run in ((3, tested_with), (2, _checked_alone), (1, conformed_with)):
        # The plug-in stays in a process that has loaded it.
        for mutant in sorted(INDEPENDENT_MUTANTS, key=lambda each: place == 2 and is_last(each.probes[0])):
            cells = verdicts[mutant.name]
            if mutant.name in chosen and cells[place] == NOT_RUN:
                verdict = run(mutant)
                cells[place] = _KILLS.get(verdict, verdict)
                report(f"{mutant.name}: {LAYERS[place]}: {cells[place]}")
                write_both(options.write, *page(verdicts))
    write_both(options.write, *page(verdicts))


def _checked_alone(mutant: Mutant) -> str:
    return _checked(checked_with([mutant])[mutant.name])


if __name__ == "__main__":
    main()
