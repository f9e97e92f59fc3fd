"""What is wrong with the links: missing, dangling, or exempt without need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import reduce
from importlib import import_module

from kvgate_mutants.traceability.exemptions import KINDS
from kvgate_mutants.traceability.links import Links, bugs_in, links
from kvgate_mutants.traceability.sources import Sources
from kvspec.evidence import LEMMAS, chapter_name


def complaints(sources: Sources) -> list[str]:
    """Everything that is wrong, in sentences; none if nothing is."""
    found = links(sources)
    return [*_missing(sources, found), *_stale(sources, found), *_dangling(sources), *_functions_gone(sources)]


def _exempt(sources: Sources) -> set[tuple[str, str]]:
    return {(statement, each.kind) for each in sources.exemptions for statement in each.statements}


def _missing(sources: Sources, found: Mapping[str, Links]) -> Iterator[str]:
    exempt = _exempt(sources)
    for statement, each in found.items():
        for kind in KINDS:
            if not each.of_kind(kind) and (statement, kind) not in exempt:
                yield f"{statement} has no {kind}, and is not exempt"


def _stale(sources: Sources, found: Mapping[str, Links]) -> Iterator[str]:
    for statement, kind in sorted(_exempt(sources)):
        if statement in found and found[statement].of_kind(kind):
            yield f"{statement} is exempt from having a {kind}, and has {len(found[statement].of_kind(kind))}"
    counted = Counter((statement, each.kind) for each in sources.exemptions for statement in each.statements)
    yield from (
        f"{statement} is exempt twice from having a {kind}" for (statement, kind), n in counted.items() if n > 1
    )


def _dangling(sources: Sources) -> Iterator[str]:
    """Whatever names a guarantee that there is not, or stands where it belongs to nothing."""
    for name, named in _naming(sources):
        yield from (f"{name} names {each}, which is no guarantee" for each in named if each not in sources.statements)
    homes = {chapter.name for chapter in sources.chapters} | set(LEMMAS)
    for proof in sources.obligations.values():
        if chapter_name(proof) not in homes:
            yield f"the proof {proof.id} belongs to no chapter"
    for name, design in sources.designs.items():
        if design.model not in sources.explored:
            yield f"the design {name} names {design.model}, which is no tiny model"


def _naming(sources: Sources) -> Iterator[tuple[str, tuple[str, ...]]]:
    for obligation in sources.obligations.values():
        yield f"the proof {obligation.id}", obligation.statements
    for chapter in sources.chapters:
        yield f"chapter {chapter.file}", tuple(row.statement for row in chapter.rows)
    for file, thread, bugs in bugs_in(sources):
        yield f"chapter {file}, {thread.text}", tuple(bugs)
        if not bugs:
            yield f"chapter {file}, {thread.text}", ("nothing",)
    for kind, by_name in (("model", sources.explored), ("detector", sources.watched), ("test", sources.tests)):
        for name, statements in by_name.items():
            yield f"the {kind} {name}", tuple(sorted(statements))
    for mutant in sources.mutants:
        yield f"the mutant {mutant.name}", (mutant.statement,) if mutant.statement else ()
    for name, design in sources.designs.items():
        yield f"the design {name}", (design.statement, *((design.breaks,) if design.breaks else ()))
    for name, statement in sources.refuted.items():
        yield f"the design {name} that z3 refutes", (statement,)
    for finding in sources.findings:
        yield f"the finding {finding.slug}", finding.statements
    for bug, sorts in sources.corpus.items():
        yield f"the defect {bug} of the corpus", tuple(sorted(sorts))
    for exemption in sources.exemptions:
        yield f"the exemption from {exemption.kind}", exemption.statements


def _functions_gone(sources: Sources) -> Iterator[str]:
    for statement, functions in sources.said_by.items():
        for function in functions:
            module, _, path = function.partition(":")
            try:
                reduce(getattr, path.split("."), import_module(f"kvreference.{module}"))
            except (ImportError, AttributeError):
                yield f"{statement} is said by {function}, which is not there"
