"""Which layer kills each independent mutant of the reference: proofs, conform, a check of vLLM, tests.

The run needs a clone::

    python -m kvgate_mutants.layers --write difftest/mutants-layers.md [--keep]

What the proofs kill, and what a check of vLLM and the tests make of those that the proofs leave, is read from
``mutants-independent.md`` next to the page (``kvgate_mutants.independent``). ``kvgate conform`` is run here with each
mutant, on a few models with generated steps. Where it fails itself, that is not a kill.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from kvgate.kernel.data_file import csv_text, data_name, read_csv, write_both
from kvgate.report.document import Section, columns
from kvgate.report.github import markdown_table
from kvgate_mutants.independent import TESTS, report
from kvgate_mutants.mutants.mutant import Mutant
from kvgate_mutants.mutants.registry import INDEPENDENT_MUTANTS
from kvgate_mutants.own_code_run import has_stopped, probed

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
        found[row["mutant"]] = [
            row["proofs"],
            _KILLS.get(check, check if check in (NOT_RUN, "stopped") else KILLED),
            _KILLS.get(tests, tests),
        ]
    return found


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
operations each. Check of vLLM and `tests/reference`: run with the mutants that the proofs leave, as that page says, and
with no other. "Stopped": the layer failed itself, which is not a kill. "Survived" and "no": nothing was found.

Each mutant has a row in [mutants-layers.csv](mutants-layers.csv). Written by
`python -m kvgate_mutants.layers --write mutants-layers.md`; not edited.
"""


def main() -> None:
    """Run conform with all mutants, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m kvgate_mutants.layers")
    parser.add_argument(
        "--write", type=Path, required=True, metavar="FILE.md", help="the page; the other stands next to it"
    )
    parser.add_argument("--keep", action="store_true", help="keep what conform killed, and read the other layers anew")
    options = parser.parse_args()
    folder = options.write.parent
    others = independent((folder / data_name(Path(PROVED))).read_text(encoding="utf-8"))
    kept = stored((folder / data_name(options.write)).read_text(encoding="utf-8")) if options.keep else {}
    verdicts = {}
    for mutant in INDEPENDENT_MUTANTS:
        proofs, check, tests = others[mutant.name]
        conform = kept[mutant.name][1] if mutant.name in kept else conformed_with(mutant)
        verdicts[mutant.name] = (proofs, conform, check, tests)
        report(f"{mutant.name}: {', '.join(verdicts[mutant.name])}")
    write_both(options.write, *page(verdicts))


if __name__ == "__main__":
    main()
