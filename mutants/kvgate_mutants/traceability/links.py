"""The links of one guarantee."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen

from kvgate_mutants.corpus.bug import Sort
from kvgate_mutants.traceability.judged import STATEMENT
from kvgate_mutants.traceability.sources import Sources
from kvspec.chapters import BUGS, items
from kvspec.chapters import Link as Anchor
from kvspec.chapters import links as anchors_in
from kvspec.evidence import proofs_of


@frozen
class Links:
    """Whatever names one guarantee."""

    chapter: str
    """The file that states it; empty if none does."""
    proofs: tuple[str, ...]
    models: tuple[str, ...]
    """Tiny models in which it is judged."""
    designs: tuple[str, ...]
    """Designs that break it, and that the explorer refutes."""
    refuted: tuple[str, ...]
    """Designs that break it, and that z3 refutes."""
    monitors: tuple[str, ...]
    tests: tuple[str, ...]
    mutants: tuple[str, ...]
    """Mutants of vLLM that violate it, those that nobody can tell from vLLM apart."""
    findings: tuple[str, ...]
    corpus: tuple[tuple[str, Sort], ...]
    """Reported defects that are shown to the gate and violate it, each with what is run."""
    bugs: tuple[tuple[str, Anchor], ...]
    """The chapter and the public thread."""

    def of_kind(self, kind: str) -> Sequence[object]:
        """The links that count as one of ``exemptions.KINDS``."""
        return {
            "chapter": (self.chapter,) if self.chapter else (),
            "proof": self.proofs,
            "explorer": (*self.models, *self.designs),
            "monitor": self.monitors,
            "test": self.tests,
            "planted fault": (*self.mutants, *self.designs, *self.refuted),
            "known bug": (*self.findings, *self.corpus, *self.bugs),
        }[kind]


def links(sources: Sources) -> Mapping[str, Links]:
    """Per guarantee, all of its links."""
    return {statement: _links(sources, statement) for statement in sources.statements}


def _links(sources: Sources, statement: str) -> Links:
    def naming(named: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
        return tuple(name for name, statements in named.items() if statement in statements)

    return Links(
        chapter=next((each.file for each in sources.chapters for row in each.rows if row.statement == statement), ""),
        proofs=tuple(each.id for each in proofs_of(statement, sources.obligations)),
        models=naming(sources.explored),
        designs=tuple(name for name, each in sources.designs.items() if statement in (each.statement, each.breaks)),
        refuted=tuple(name for name, violated in sources.refuted.items() if violated == statement),
        monitors=naming(sources.watched),
        tests=naming(sources.tests),
        mutants=tuple(each.name for each in sources.mutants if each.statement == statement and not each.equivalent),
        findings=tuple(each.slug for each in sources.findings if statement in each.statements),
        corpus=tuple((bug, named[statement]) for bug, named in sources.corpus.items() if statement in named),
        bugs=tuple((chapter, thread) for chapter, thread, named in bugs_in(sources) if statement in named),
    )


def bugs_in(sources: Sources) -> Iterator[tuple[str, Anchor, Sequence[str]]]:
    """Every known bug of every chapter: its chapter, its thread, the guarantees that it names."""
    for chapter in sources.chapters:
        for item in items(chapter.sections.get(BUGS, "")):
            yield chapter.file, anchors_in(item)[0], STATEMENT.findall(item)
