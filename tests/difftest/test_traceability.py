"""Traceability: every guarantee leads to what says, proves, watches, tests and breaks it, and nothing leads nowhere.

What is there is judged first. Then the same sources with one thing wrong: each kind of complaint is seen to be made.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from kvgate_mutants.corpus.bug import Sort
from kvgate_mutants.corpus.register import BUGS
from kvgate_mutants.traceability.complaints import complaints
from kvgate_mutants.traceability.exemptions import EXEMPTIONS, KINDS, Exemption
from kvgate_mutants.traceability.judged import explored, watched
from kvgate_mutants.traceability.links import links
from kvgate_mutants.traceability.page import page
from kvgate_mutants.traceability.sources import Finding, Sources, findings_in, naming_tests, read, violated_by
from kvreference.statements import STATEMENTS
from kvspec.chapters import HOME, parse
from kvspec.evidence import EXPLORED

UNKNOWN = "KV-INV-99"
BECAUSE = "because this test says so, at length"


@pytest.fixture(scope="module")
def sources() -> Sources:
    """What is there."""
    return read()


def test_nothing_is_missing_dangling_or_stale(sources: Sources) -> None:
    """Goal: the chain holds. Method: ask for complaints."""
    assert [] == complaints(sources)


def test_the_page_is_current() -> None:
    """Goal: what is read is what is linked. Method: print the page as its head says, and compare."""
    command = [sys.executable, "-m", "kvgate_mutants.traceability"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    written = (HOME / "traceability.md").read_text(encoding="utf-8")
    assert written == printed.stdout, "run: python -m kvgate_mutants.traceability > spec/traceability.md"


def test_every_link_is_on_the_page(sources: Sources) -> None:
    """Goal: the page leaves out nothing. Method: count what is in its parts for each guarantee."""
    parts = page(sources).split("\n## ")
    by_statement = {part.partition("\n")[0]: part for part in parts}
    for statement, found in links(sources).items():
        for name in (*found.proofs, *found.models, *found.designs, *found.refuted, *found.monitors, *found.mutants):
            assert f"`{name}`" in by_statement[statement]
        for test in found.tests:
            assert f"`{test.rpartition('::test_')[2]}`" in by_statement[statement]


def test_evidence_of_the_explorer_is_what_its_judges_name() -> None:
    """Goal: B is said of what is judged in every state, and of nothing else. Method: compare with the judges.

    KV-OP-25 is named by ghost memory as the cause of what it sees, and not judged for itself.
    """
    judged = set().union(*explored().values()) - {"KV-OP-25"}
    assert judged == set(EXPLORED)


def test_a_mechanism_is_judged_where_it_occurs() -> None:
    """Goal: no model is listed for a guarantee that is empty in it. Method: the models of three mechanisms."""
    found = explored()
    assert {"tiny-partial"} == {name for name, judged in found.items() if "KV-INV-09" in judged}
    assert {"tiny-pinned", "tiny-loopholes"} == {name for name, judged in found.items() if "KV-INV-07" in judged}
    assert "KV-OP-16" not in found["tiny-full"]
    assert "KV-OP-16" in found["tiny-hybrid"]


def test_detectors_name_what_they_find() -> None:
    """Goal: the monitors are linked to their own guarantees. Method: one each, and one that is another's."""
    found = watched()
    assert ("KV-OP-05" in found["lockstep"], "KV-OP-05" in found["check"]) == (True, False)
    assert {"KV-MEM-01", "KV-MEM-02"} < found["ghost"]
    assert {"KV-LEAK-01", "KV-LEAK-02"} == found["leak"]
    assert {each for each in STATEMENTS if each.startswith("KV-INV")} == found["check"]


# With one thing wrong


def _without_chapter(sources: Sources) -> Sources:
    return evolve(sources, chapters=[each for each in sources.chapters if each.number != "07"])


def _without_proofs(sources: Sources) -> Sources:
    kept = {name: each for name, each in sources.obligations.items() if "KV-OP-06" not in each.statements}
    return evolve(sources, obligations=kept)


def _without_judge(sources: Sources) -> Sources:
    return evolve(sources, explored={name: found - {"KV-INV-04"} for name, found in sources.explored.items()})


def _without_monitor(sources: Sources) -> Sources:
    return evolve(sources, watched={name: found - {"KV-LEAK-01"} for name, found in sources.watched.items()})


def _without_tests(sources: Sources) -> Sources:
    return evolve(sources, tests={name: found - {"KV-OP-02"} for name, found in sources.tests.items()})


def _without_mutants(sources: Sources) -> Sources:
    return evolve(sources, mutants=[each for each in sources.mutants if each.statement != "KV-OP-14"])


def _without_bugs(sources: Sources) -> Sources:
    text = (HOME / "02-free-queue.md").read_text(encoding="utf-8").replace("(KV-OP-17)", "")
    return evolve(
        sources, chapters=[parse(each.file, text) if each.number == "02" else each for each in sources.chapters]
    )


MISSING: list[tuple[Callable[[Sources], Sources], str]] = [
    (_without_chapter, "KV-MEM-02 has no chapter, and is not exempt"),
    (_without_proofs, "KV-OP-06 has no proof, and is not exempt"),
    (_without_judge, "KV-INV-04 has no explorer, and is not exempt"),
    (_without_monitor, "KV-LEAK-01 has no monitor, and is not exempt"),
    (_without_tests, "KV-OP-02 has no test, and is not exempt"),
    (_without_mutants, "KV-OP-14 has no planted fault, and is not exempt"),
    (_without_bugs, "KV-OP-17 has no known bug, and is not exempt"),
]


@pytest.mark.parametrize(("change", "complaint"), MISSING, ids=[complaint for _, complaint in MISSING])
def test_a_missing_link_is_found(sources: Sources, change: Callable[[Sources], Sources], complaint: str) -> None:
    """Goal: no kind of link can be lost in silence. Method: take all links of one kind from one guarantee."""
    assert complaint not in complaints(sources)
    assert complaint in complaints(change(sources))


def test_every_kind_of_link_is_missed_above() -> None:
    """Goal: a new kind comes with its failing case. Method: compare the kinds."""
    assert set(KINDS) == {complaint.partition(" has no ")[2].partition(",")[0] for _, complaint in MISSING}


def _naming_proof(sources: Sources) -> Sources:
    proof = evolve(next(iter(sources.obligations.values())), id="eagle.strange", statements=(UNKNOWN,))
    return evolve(sources, obligations={**sources.obligations, proof.id: proof})


def _homeless_proof(sources: Sources) -> Sources:
    proof = evolve(next(iter(sources.obligations.values())), id="nowhere.strange")
    return evolve(sources, obligations={**sources.obligations, proof.id: proof})


def _naming_chapter(sources: Sources) -> Sources:
    chapter = sources.chapters[0]
    rows = (*chapter.rows, evolve(chapter.rows[0], statement=UNKNOWN))
    return evolve(sources, chapters=[evolve(chapter, rows=rows), *sources.chapters[1:]])


def _naming_bug(number: str, old: str, new: str) -> Callable[[Sources], Sources]:
    def change(sources: Sources) -> Sources:
        changed = [
            evolve(each, sections={name: text.replace(old, new) for name, text in each.sections.items()})
            if each.number == number
            else each
            for each in sources.chapters
        ]
        return evolve(sources, chapters=changed)

    return change


def _naming_design(**named: Any) -> Callable[[Sources], Sources]:
    def change(sources: Sources) -> Sources:
        design = evolve(sources.designs["scratch-last"], **named)
        return evolve(sources, designs={**sources.designs, "strange": design})

    return change


DANGLING: list[tuple[Callable[[Sources], Sources], str]] = [
    (_naming_proof, f"the proof eagle.strange names {UNKNOWN}, which is no guarantee"),
    (_homeless_proof, "the proof nowhere.strange belongs to no chapter"),
    (_naming_chapter, f"chapter 01-blocks-and-references.md names {UNKNOWN}, which is no guarantee"),
    (
        _naming_bug("03", "(KV-OP-10)", f"({UNKNOWN})"),
        f"chapter 03-content-and-cached-map.md, local-inference-lab/vllm#480 names {UNKNOWN}, which is no guarantee",
    ),
    (
        _naming_bug("03", "(KV-OP-10)", ""),
        "chapter 03-content-and-cached-map.md, local-inference-lab/vllm#480 names nothing, which is no guarantee",
    ),
    (
        lambda sources: evolve(sources, explored={**sources.explored, "tiny-full": frozenset({UNKNOWN})}),
        f"the model tiny-full names {UNKNOWN}, which is no guarantee",
    ),
    (
        lambda sources: evolve(sources, watched={**sources.watched, "leak": frozenset({UNKNOWN})}),
        f"the detector leak names {UNKNOWN}, which is no guarantee",
    ),
    (
        lambda sources: evolve(sources, tests={**sources.tests, "a.py::test_a": frozenset({UNKNOWN})}),
        f"the test a.py::test_a names {UNKNOWN}, which is no guarantee",
    ),
    (_naming_design(statement=UNKNOWN), f"the design strange names {UNKNOWN}, which is no guarantee"),
    (_naming_design(breaks=UNKNOWN), f"the design strange names {UNKNOWN}, which is no guarantee"),
    (_naming_design(model="tiny-none"), "the design strange names tiny-none, which is no tiny model"),
    (
        lambda sources: evolve(sources, refuted={"strange": UNKNOWN}),
        f"the design strange that z3 refutes names {UNKNOWN}, which is no guarantee",
    ),
    (
        lambda sources: evolve(sources, findings=[Finding("099-strange", (UNKNOWN,))]),
        f"the finding 099-strange names {UNKNOWN}, which is no guarantee",
    ),
    (
        lambda sources: evolve(sources, corpus={"strange": {UNKNOWN: Sort.PUBLISHED}}),
        f"the defect strange of the corpus names {UNKNOWN}, which is no guarantee",
    ),
    (
        lambda sources: evolve(sources, exemptions=[Exemption("proof", (UNKNOWN,), BECAUSE)]),
        f"the exemption from proof names {UNKNOWN}, which is no guarantee",
    ),
    (
        lambda sources: evolve(sources, said_by={**sources.said_by, "KV-OP-01": ("hit_lookup:shortest_hit",)}),
        "KV-OP-01 is said by hit_lookup:shortest_hit, which is not there",
    ),
    (
        lambda sources: evolve(sources, said_by={**sources.said_by, "KV-OP-01": ("lookups:longest_hit",)}),
        "KV-OP-01 is said by lookups:longest_hit, which is not there",
    ),
]


@pytest.mark.parametrize(("change", "complaint"), DANGLING, ids=[complaint for _, complaint in DANGLING])
def test_a_dangling_link_is_found(sources: Sources, change: Callable[[Sources], Sources], complaint: str) -> None:
    """Goal: whoever names a guarantee names one. Method: let each kind of source name one that there is not."""
    assert complaint not in complaints(sources)
    assert complaint in complaints(change(sources))


def test_a_mutant_of_no_guarantee_cannot_be_made(sources: Sources) -> None:
    """Goal: the one source that is not tried above refuses by itself. Method: try."""
    with pytest.raises(ValueError, match="statement"):
        evolve(sources.mutants[0], statement=UNKNOWN)


def test_a_stale_exemption_is_found(sources: Sources) -> None:
    """Goal: an exemption goes when its reason has gone. Method: exempt what is linked, and something twice."""
    needless = Exemption("chapter", ("KV-OP-01",), BECAUSE)
    twice = EXEMPTIONS[0]
    found = complaints(evolve(sources, exemptions=[*EXEMPTIONS, needless, twice]))
    assert "KV-OP-01 is exempt from having a chapter, and has 1" in found
    assert f"{twice.statements[0]} is exempt twice from having a {twice.kind}" in found


@pytest.mark.parametrize(
    ("kind", "named", "reason"),
    [("doubt", ("KV-OP-01",), BECAUSE), ("proof", (), BECAUSE), ("proof", ("KV-OP-01",), "so")],
)
def test_an_exemption_says_what_and_why(kind: str, named: tuple[str, ...], reason: str) -> None:
    """Goal: none for a kind that there is not, for nothing, or without a reason. Method: make each."""
    with pytest.raises(ValueError, match=r"kind|statements|reason"):
        Exemption(kind, named, reason)


def test_what_is_caught_is_told_apart_from_what_is_shown_otherwise(sources: Sources) -> None:
    """Goal: an analogue counts as no catch. Method: a defect of each sort; and one with two trials of a guarantee."""
    corpus = {sort.name: {"KV-OP-01": sort} for sort in Sort}
    told = page(evolve(sources, corpus=corpus))
    at = "](../difftest/corpus/README.md#"
    caught = f"[PUBLISHED{at}PUBLISHED) (published code), [REINTRODUCED{at}REINTRODUCED) (mutant re-introducing it)"
    shown = f"[ANALOGUE{at}ANALOGUE) (analogue), [BY_HAND{at}BY_HAND) (contract violated by hand)"
    assert 1 == told.count(f"**caught in the corpus**: {caught}<br>")
    assert 1 == told.count(f"**shown in the corpus, and not as it was reported**: {shown}<br>")


def test_of_several_trials_the_one_that_says_most_counts() -> None:
    """Goal: a defect that published code shows is no analogue. Method: trials of both sorts, in any order."""
    bug = next(bug for bug in BUGS.values() if Sort.ANALOGUE in {trial.sort for trial in bug.trials})
    analogue = next(trial for trial in bug.trials if trial.sort is Sort.ANALOGUE)
    published = analogue.without_mutants()
    assert Sort.PUBLISHED is published.sort
    for trials in ((analogue, published), (published, analogue)):
        assert {analogue.statements[0]: Sort.PUBLISHED} == violated_by(evolve(bug, trials=trials))
    assert {analogue.statements[0]: Sort.ANALOGUE} == violated_by(evolve(bug, trials=(analogue,)))


def test_tests_are_read_with_what_they_use() -> None:
    """Goal: a table of cases counts for its test. Method: a file with a case, a judge, a test without either."""
    text = """
CASES = [("KV-OP-01", 1)]

def judge(seen):
    return seen == "KV-OP-02"

@pytest.mark.parametrize("case", CASES)
def test_cases(case):
    pass

def test_judged():
    assert judge("")

def test_other():
    '''KV-OP-03'''

def test_nothing():
    pass
"""
    expected = {"test_cases": {"KV-OP-01"}, "test_judged": {"KV-OP-02"}, "test_other": {"KV-OP-03"}}
    assert expected == dict(naming_tests(text))


def test_findings_are_read_from_their_register() -> None:
    """Goal: the second column counts, and no other line. Method: a row, its head, and prose."""
    row = "| [001-a](001-a/README.md) | KV-OP-01, KV-MEM-02 | t KV-OP-09 |"
    register = f"| id | guarantee | title |\n|---|---|---|\n{row}\nKV-OP-03\n"
    assert [Finding("001-a", ("KV-OP-01", "KV-MEM-02"))] == list(findings_in(register))
