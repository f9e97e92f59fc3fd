"""Traceability: one table that leads from every guarantee to its proofs, its checks, its mutants and its findings.

``python -m kvgate_mutants.traceability`` prints the table that is kept as ``spec/traceability.csv``, and exits with 1
if a guarantee lacks something or a reference leads nowhere. Everything is read from where it is: the chapters, the
registry of proofs, the checks of the explorer, the detectors of the gate, the tests, the mutants, the refuted designs,
the findings. Only the exemptions are listed by hand.

A reference says that something names a guarantee, and not that it covers all of it: the chapters say how far the proofs
reach.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType

from attrs import field, frozen
from attrs.validators import in_, min_len

from kvgate.campaigns import twice
from kvgate.explore import ahead_world, invariants, scheduler_world, search, steps_in_flight, tier_world
from kvgate.explore.ahead_world import AheadWorld
from kvgate.explore.designs import DESIGNS
from kvgate.explore.manager_world import ManagerWorld
from kvgate.explore.scheduler_world import SchedulerWorld
from kvgate.explore.tier_world import TierWorld
from kvgate.explore.tiny_models import MODELS
from kvgate.findings.register import folder_of
from kvgate.kernel import comparison, lockstep
from kvgate.kernel.data_file import csv_text, read_csv
from kvgate.kernel.text import counted
from kvgate.levels.scheduler import (
    batch,
    chunks,
    clients,
    connector_check,
    encoder,
    engine,
    finish_check,
    progress,
    queue_order_monitor,
    statistics_check,
)
from kvgate.levels.tiers import engine as tier_engine
from kvgate.levels.tiers import memory as tier_memory
from kvgate.levels.worker import slot_check
from kvgate.monitors import leak, slot_memory, work
from kvgate_mutants.corpus.bug import Bug, Sort
from kvgate_mutants.corpus.register import BUGS as CORPUS
from kvgate_mutants.mutants.registry import BLOCK_MANAGER_MUTANTS, RELEASE_MUTANTS, SCHEDULER_MUTANTS, WORKER_MUTANTS
from kvreference import snapshot
from kvreference.settings import Settings
from kvreference.statements import STATEMENTS
from kvspec.chapters import BUGS, HOME, Chapter, items, links, read_all
from kvspec.evidence import LEMMAS, WITHOUT, chapter_name
from kvspec.implemented_by import IMPLEMENTED_BY
from kvspec.obligation import Tier
from kvspec.refuted.designs import DESIGNS as REFUTED
from kvspec.registry import obligations

STATEMENT = re.compile(r"KV-[A-Z]+-\d\d")
PARTS = ("chapter", "proof", "monitor", "test", "mutant", "finding")
"""What every guarantee must have, or be exempt from."""
ABOUT_WORDS = (
    "tests/spec/pages/",
    "tests/difftest/test_traceability.py",
    "tests/difftest/command/",
    "tests/difftest/test_campaign.py",
    "tests/difftest/test_difference.py",
    "tests/difftest/test_mutation_run.py",
    "tests/difftest/test_regression_test.py",
    "tests/difftest/test_reports_",
    "tests/difftest/test_story.py",
    "tests/difftest/test_trace",
)
"""Tests of pages, reports and files: they use ids as examples, and check nothing that those promise."""
CAUGHT = Sort.PUBLISHED, Sort.REINTRODUCED
"""What is run for a reported defect that counts as caught; an analogue does not."""
MUTANTS_NAMED = 2
"""How many mutants of a guarantee the table names; ``kvgate mutants --list`` names all."""


@frozen
class Reference:
    """Something that names guarantees."""

    kind: str
    """What it is."""
    name: str
    statements: tuple[str, ...]
    part: str = ""
    """Which of ``PARTS`` it is for those guarantees; empty if it counts as none."""
    shown: str = ""
    """How the table shows it."""


@frozen
class Exemption:
    """Guarantees that lack one part, and why."""

    part: str = field(validator=in_(PARTS))
    statements: tuple[str, ...] = field(validator=min_len(1))
    reason: str = field(validator=min_len(20))


EXEMPTIONS: tuple[Exemption, ...] = (
    *(Exemption("proof", (statement,), reason) for statement, reason in WITHOUT.items()),
    Exemption(
        "monitor", ("KV-MEM-04",), "ghost memory and lockstep report its effect: a misread, or another free queue"
    ),
    Exemption(
        "monitor",
        ("KV-OP-16", "KV-OP-20", "KV-OP-26", "KV-OP-27"),
        "lockstep reports its effect: another hit or table",
    ),
    Exemption("mutant", ("KV-SYS-04",), "no mutant looks at chance; the tests inject systems that do"),
    Exemption(
        "finding",
        (
            *("KV-INV-09", "KV-OP-11", "KV-OP-13", "KV-OP-19", "KV-OP-21"),
            *("KV-MEM-02", "KV-MEM-03", "KV-SYS-03", "KV-SYS-04"),
        ),
        "no public report is known to us",
    ),
)
"""An exemption from something that is there is stale, and fails as a missing part does."""

# What is read


def read(root: Path = HOME.parent) -> list[Reference]:
    """Everything that names guarantees, in a clone at ``root``."""
    chapters = read_all(root / "spec")
    register = (root / "difftest" / "kvgate" / "findings" / "findings.csv").read_text(encoding="utf-8")
    return [
        *of_chapters(chapters),
        *of_proofs(chapters),
        *(Reference("tiny model", name, tuple(sorted(found)), "", "explorer") for name, found in explored().items()),
        *(
            Reference("detector", name, tuple(sorted(found)), "monitor", f"`{name}`")
            for name, found in watched().items()
        ),
        *of_tests(root),
        *of_mutants(),
        *of_findings(register),
        *(each for bug in CORPUS.values() for each in of_bug(bug)),
    ]


def of_chapters(chapters: Iterable[Chapter]) -> Iterator[Reference]:
    """The chapters, and the publicly known bugs that they list."""
    for chapter in chapters:
        yield Reference("chapter", chapter.file, tuple(row.statement for row in chapter.rows), "chapter")
        for item in items(chapter.sections.get(BUGS, "")):
            named = tuple(STATEMENT.findall(item)) or ("nothing",)
            shown = f"[reported]({chapter.file}#known-bugs)"
            yield Reference("known bug", f"{chapter.file}, {links(item)[0].text}", named, "finding", shown)


def of_proofs(chapters: Iterable[Chapter]) -> Iterator[Reference]:
    """The proofs that belong to a chapter, the lemmas, and the designs that z3 refutes."""
    files = {chapter.name: chapter.file for chapter in chapters}
    for proof in obligations().values():
        home = chapter_name(proof)
        if home in LEMMAS:
            yield Reference("lemma", proof.id, proof.statements)
        else:
            shown = f"[{home}]({files[home]}#proofs), {proof.tier.value}" if home in files else ""
            yield Reference("proof", proof.id, proof.statements if shown else ("a chapter",), "proof", shown)
    for name, refuted in REFUTED.items():
        yield Reference("design that z3 refutes", name, (refuted.statement,), "mutant", f"`{name}`")


def of_mutants() -> Iterator[Reference]:
    """Mutants of vLLM, and designs that the explorer refutes. One that is equivalent to vLLM violates nothing."""
    tiers = RELEASE_MUTANTS["native@0.33.0"]["tiers"]
    for mutant in (*BLOCK_MANAGER_MUTANTS, *SCHEDULER_MUTANTS, *WORKER_MUTANTS, *tiers):
        named = (mutant.statement,) if mutant.statement else ()
        yield Reference("mutant", mutant.name, named, "" if mutant.equivalent else "mutant", f"`{mutant.name}`")
    for name, design in DESIGNS.items():
        named = (design.statement, *((design.breaks,) if design.breaks else ()))
        yield Reference("design", name, named, "mutant", f"`{name}`")


def of_findings(register: str) -> Iterator[Reference]:
    """The findings in their register, a data file: it says of each which guarantees it violates."""
    for row in read_csv(register):
        shown = f"[{row['id'][:3]}](../difftest/kvgate/findings/{folder_of(row['id'])}/README.md)"
        yield Reference("finding", row["id"], tuple(STATEMENT.findall(row["guarantee"])), "finding", shown)


def of_bug(bug: Bug) -> Iterator[Reference]:
    """A reported defect of the corpus: each guarantee that it violates, with the trial of it that says most."""
    by_weight = sorted(bug.trials, key=lambda trial: list(Sort).index(trial.sort), reverse=True)
    for statement, sort in {trial.statements[0]: trial.sort for trial in by_weight}.items():
        shown = f"[{'corpus' if sort in CAUGHT else 'corpus, not as reported'}](../difftest/corpus/README.md)"
        yield Reference("defect of the corpus", bug.id, (statement,), "finding", shown)


def of_tests(root: Path) -> Iterator[Reference]:
    """The files of tests, each with the guarantees that it names."""
    for room in ("tests", "difftest"):
        for path in sorted((root / room).rglob("test_*.py")):
            file = path.relative_to(root).as_posix()
            named = tuple(sorted({*STATEMENT.findall(path.read_text(encoding="utf-8"))}))
            if named and not file.startswith(ABOUT_WORDS):
                yield Reference("test", file, named, "test")


# What checks a state or a run. The ids are read from the code of the checks: each names what it finds violated.

_MODULES: Mapping[str, tuple[ModuleType, ...]] = MappingProxyType(
    {
        "lockstep": (lockstep, comparison),
        "check": (snapshot,),
        "ghost": (slot_memory,),
        "leak": (leak,),
        "work": (work,),
        "scheduler": (engine, finish_check),
        "batch": (batch,),
        "clients": (clients,),
        "connector": (connector_check,),
        "encoder": (encoder,),
        "statistics": (statistics_check,),
        "worker": (slot_check,),
        "line": (queue_order_monitor,),
        "chunks": (chunks,),
        "progress": (progress,),
        "twice": (twice,),
        "tiers": (tier_memory, tier_engine),
    }
)
_OCCURS: Mapping[str, Callable[[Settings], bool]] = MappingProxyType(
    {
        "KV-INV-07": lambda settings: settings.pin_drop_blocks_min is not None,
        "KV-INV-08": lambda settings: settings.scratch_first,
        "KV-INV-09": lambda settings: any(group.copies for group in settings.geometry.groups),
        "KV-MEM-04": lambda settings: settings.loads_out_of_turn,
        "KV-OP-07": lambda settings: settings.loads_out_of_turn,
        "KV-OP-15": lambda settings: settings.retention_interval_tokens is not None,
        "KV-OP-16": lambda settings: settings.caches and settings.geometry.state_block_tokens is None,
        "KV-OP-27": lambda settings: settings.keeps_junctions,
        "KV-WORK-01": lambda settings: any(group.copies for group in settings.geometry.groups),
    }
)
"""In which settings a guarantee about a mechanism is not empty; the others are about every system."""


def named_in(*modules: ModuleType) -> frozenset[str]:
    """The ids that the code of ``modules`` names."""
    return frozenset(STATEMENT.findall("\n".join(map(inspect.getsource, modules))))


def watched() -> Mapping[str, frozenset[str]]:
    """Detector of the gate to the guarantees that it finds violated."""
    return MappingProxyType({name: named_in(*modules) for name, modules in _MODULES.items()})


def explored() -> Mapping[str, frozenset[str]]:
    """Tiny model to the guarantees that are checked in every state, or at every step, of it."""
    found = {}
    for name, model in MODELS.items():
        world = model.world()
        if isinstance(world, TierWorld):
            found[name] = named_in(tier_world, search)
            continue
        if isinstance(world, ManagerWorld):
            ahead = (ahead_world, steps_in_flight) if isinstance(world, AheadWorld) else ()
            checked = named_in(snapshot, slot_memory, invariants, search, *ahead)
            settings = world.scope.settings
            # Where content is forgotten by order, no check asks whether a replay hits.
            checked -= {"KV-OP-16"} if world.scope.menu.evicts else frozenset()
        else:
            assert isinstance(world, SchedulerWorld)
            checked, settings = named_in(snapshot, scheduler_world, search), world.shop.settings
        found[name] = frozenset(each for each in checked if each not in _OCCURS or _OCCURS[each](settings))
    return MappingProxyType(found)


# What is wrong


def complaints(references: Sequence[Reference], exemptions: Sequence[Exemption] = EXEMPTIONS) -> list[str]:
    """What is missing, dangling, or exempt without need, in sentences; none if nothing is."""
    exempt = Counter((statement, each.part) for each in exemptions for statement in each.statements)
    there = {(statement, each.part) for each in references for statement in each.statements if each.part}
    needed = [(statement, part) for statement in STATEMENTS for part in PARTS]
    naming = [(f"the {each.kind} {each.name}", each.statements) for each in references]
    naming += [(f"the exemption from {each.part}", each.statements) for each in exemptions]
    return [
        *(
            f"{statement} has no {part}, and is not exempt"
            for statement, part in needed
            if (statement, part) not in there | exempt.keys()
        ),
        *(
            f"{statement} is exempt from having a {part}, and has one"
            for statement, part in exempt
            if (statement, part) in there
        ),
        *(
            f"{statement} is exempt twice from having a {part}"
            for (statement, part), times in exempt.items()
            if times > 1
        ),
        *(
            f"{name} names {each}, which is not a guarantee"
            for name, named in naming
            for each in named
            if each not in STATEMENTS
        ),
        *(
            f"the design {name} names {design.model}, which is not a tiny model"
            for name, design in DESIGNS.items()
            if design.model not in MODELS
        ),
        *functions_missing(IMPLEMENTED_BY),
    ]


def functions_missing(implemented_by: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Functions of the reference that are said to implement a guarantee, and that there are not."""
    for statement, functions in implemented_by.items():
        for function in functions:
            module, _, path = function.partition(":")
            try:
                reduce(getattr, path.split("."), import_module(f"kvreference.{module}"))
            except (ImportError, AttributeError):
                yield f"{statement} is implemented by {function}, which is not there"


# The table


def table(references: Sequence[Reference], exemptions: Sequence[Exemption] = EXEMPTIONS) -> str:
    """The data file: what each guarantee leads to, with links from the folder of the specification."""
    exempt = {(statement, each.part): f"none: {each.reason}" for each in exemptions for statement in each.statements}
    rows = []
    for statement in STATEMENTS:
        its = [each for each in references if statement in each.statements]
        checked = [*_shown(its, "monitor"), *sorted({each.shown for each in its if each.kind == "tiny model"})]
        cells = (
            statement,
            _proofs(its) or exempt.get((statement, "proof"), "none"),
            ", ".join(checked) or exempt.get((statement, "monitor"), "none"),
            _mutants(its) or exempt.get((statement, "mutant"), "none"),
            _findings(its) or exempt.get((statement, "finding"), "none"),
        )
        rows.append(cells)
    return csv_text(("guarantee", "proved by", "checked by", "mutant", "finding"), rows)


def _shown(references: Iterable[Reference], part: str) -> list[str]:
    """What the table shows of one part, each once."""
    return list(dict.fromkeys(each.shown for each in references if each.part == part and each.shown))


def _proofs(references: Sequence[Reference]) -> str:
    tiers: dict[str, list[str]] = {}
    for each in references:
        if each.part == "proof":
            chapter, _, tier = each.shown.rpartition(", ")
            tiers.setdefault(chapter, []).append(tier)
    return ", ".join(
        f"{chapter} ({', '.join(f'{found.count(tier.value)} {tier.value}' for tier in Tier if tier.value in found)})"
        for chapter, found in tiers.items()
    )


def _mutants(references: Sequence[Reference]) -> str:
    names = _shown(references, "mutant")
    more = len(names) - MUTANTS_NAMED
    return ", ".join(names[:MUTANTS_NAMED]) + (f" and {more} more" if more > 0 else "")


def _findings(references: Sequence[Reference]) -> str:
    times = Counter(each.shown for each in references if each.part == "finding")
    return ", ".join(shown if n == 1 else f"{shown} ({counted(n, 'case')})" for shown, n in times.items())


if __name__ == "__main__":
    _references = read()
    print(table(_references), end="")
    _wrong = complaints(_references)
    print("\n".join(_wrong), file=sys.stderr, end="\n" if _wrong else "")
    sys.exit(1 if _wrong else 0)
