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

from kvgate.report.document import Section, columns
from kvgate.report.github import markdown_table
from kvgate_mutants.independent import report
from kvgate_mutants.mutants.mutant import Mutant
from kvgate_mutants.mutants.registry import INDEPENDENT_MUTANTS
from kvgate_mutants.own_code_run import has_stopped, probed

PROVED = "mutants-independent.md"
MODELS = ("gemma-hybrid+eagle", "compressed+partial", "mamba-align", "gpt-oss-hybrid+retention+scratch+pinned=2")
"""What ``kvgate conform`` is run on; so many operations on each."""
STEPS = 1_500
LAYERS = ("proofs", "conform", "check of vLLM", "tests/reference")
KILLED, NO, NOT_RUN = "killed", "no", "not run"
_KILLS = {"yes": KILLED, "no": NO}


def independent(text: str) -> dict[str, list[str]]:
    """Per mutant, what proofs, a check of vLLM and tests make of it, as ``PROVED`` says."""
    all_of_them, _, left = text.partition("\nNot killed by the proofs:\n")
    others = {name: (check, tests) for name, (tests, check) in stored(left).items()}
    found = {}
    for name, cells in stored(all_of_them).items():
        check, tests = others.get(name, (NOT_RUN, NOT_RUN))
        found[name] = [
            cells[1],
            _KILLS.get(check, check if check in (NOT_RUN, "stopped") else KILLED),
            _KILLS.get(tests, tests),
        ]
    return found


def stored(text: str) -> dict[str, list[str]]:
    """Per mutant, the cells of its row on a page."""
    names = {each.name for each in INDEPENDENT_MUTANTS}
    rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|"))
    return {name: cells for name, *cells in rows if name in names}


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


def page(verdicts: Mapping[str, Sequence[str]]) -> str:
    """The tables, as a Markdown file: per mutant, the verdicts of ``LAYERS``."""
    return "\n".join((_HEAD, *_sums(verdicts), "", *_rows(verdicts), ""))


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


def _rows(verdicts: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield from _table(("mutant", *LAYERS), [(name, *each) for name, each in verdicts.items()])


def _table(names: Sequence[str], rows: Sequence[tuple[object, ...]]) -> Iterator[str]:
    section = Section("", columns(*names), tuple(rows))
    yield from markdown_table(section, map(section.texts, section.rows))


_HEAD = f"""\
# What each layer kills

The [independent mutants](mutants-independent.md) of the reference, and what each layer makes of them. Proofs: every
obligation that executes the mutated function. Conform: `kvgate conform` on {len(MODELS)} models, with {STEPS:,}
operations each. Check of vLLM and `tests/reference`: run with the mutants that the proofs leave, as that page says, and
with no other. "Stopped": the layer failed itself, which is not a kill. "Survived" and "no": nothing was found.

Written by `python -m kvgate_mutants.layers --write mutants-layers.md`; not edited.
"""


def main() -> None:
    """Run conform with all mutants, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m kvgate_mutants.layers")
    parser.add_argument(
        "--write", type=Path, required=True, metavar="FILE.md", help="the page; the other stands next to it"
    )
    parser.add_argument("--keep", action="store_true", help="keep what conform killed, and read the other layers anew")
    options = parser.parse_args()
    others = independent((options.write.parent / PROVED).read_text(encoding="utf-8"))
    kept = stored(options.write.read_text(encoding="utf-8")) if options.keep else {}
    verdicts = {}
    for mutant in INDEPENDENT_MUTANTS:
        proofs, check, tests = others[mutant.name]
        conform = kept[mutant.name][1] if mutant.name in kept else conformed_with(mutant)
        verdicts[mutant.name] = (proofs, conform, check, tests)
        report(f"{mutant.name}: {', '.join(verdicts[mutant.name])}")
    options.write.write_text(page(verdicts), encoding="utf-8")


if __name__ == "__main__":
    main()
