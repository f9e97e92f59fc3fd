"""Traceability: every guarantee leads to what states, proves, checks and breaks it, and nothing leads nowhere.

The existing references are checked first. Then the same references with one thing wrong: each kind of complaint is made
once.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest
from attrs import evolve

from kvgate.explore.designs import DESIGNS
from kvgate.kernel.data_file import read_csv
from kvgate_mutants.corpus.bug import Sort
from kvgate_mutants.corpus.register import BUGS
from kvgate_mutants.mutants.registry import BLOCK_MANAGER_MUTANTS, SCHEDULER_MUTANTS
from kvgate_mutants.traceability import (
    EXEMPTIONS,
    PARTS,
    Exemption,
    Reference,
    complaints,
    explored,
    functions_missing,
    of_bug,
    of_chapters,
    of_findings,
    of_proofs,
    read,
    table,
    watched,
)
from kvreference.statements import STATEMENTS
from kvspec.chapters import HOME, parse
from kvspec.evidence import EXPLORED

UNKNOWN = "KV-INV-99"
BECAUSE = "because this test says so, at length"


@pytest.fixture(scope="module")
def references() -> Sequence[Reference]:
    """The existing references."""
    return read()


def test_nothing_is_missing_dangling_or_stale(references: Sequence[Reference]) -> None:
    """Goal: every guarantee has all its parts. Method: ask for complaints."""
    assert [] == complaints(references)


def test_the_table_is_current() -> None:
    """Goal: the table shows what is there. Method: print it as its page says, and compare."""
    command = [sys.executable, "-m", "kvgate_mutants.traceability"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    written = (HOME / "traceability.csv").read_text(encoding="utf-8")
    assert written == printed.stdout, "run: python -m kvgate_mutants.traceability > spec/traceability.csv"


def test_evidence_of_the_explorer_is_what_its_checks_name() -> None:
    """Goal: B stands for what is checked in every state, and for nothing else. Method: compare with the checks.

    KV-OP-25 is named by ghost memory as the cause of what it sees, and not checked for itself.
    """
    assert set().union(*explored().values()) - {"KV-OP-25"} == set(EXPLORED)


def test_a_mechanism_is_checked_where_it_occurs() -> None:
    """Goal: no model is listed for a guarantee that is empty in it. Method: the models of three mechanisms."""
    found = explored()
    assert {"tiny-partial"} == {name for name, checked in found.items() if "KV-INV-09" in checked}
    assert {"tiny-pinned", "tiny-loopholes"} == {name for name, checked in found.items() if "KV-INV-07" in checked}
    assert "KV-OP-16" not in found["tiny-full"]
    assert "KV-OP-16" in found["tiny-hybrid"]


def test_detectors_name_what_they_find() -> None:
    """Goal: the monitors are linked to their own guarantees. Method: one each, and one that is another's."""
    found = watched()
    assert ("KV-OP-05" in found["lockstep"], "KV-OP-05" in found["check"]) == (True, False)
    assert {"KV-MEM-01", "KV-MEM-02"} < found["ghost"]
    assert {"KV-LEAK-01", "KV-LEAK-02"} == found["leak"]
    assert {each for each in STATEMENTS if each.startswith("KV-INV")} == found["check"]


def test_every_source_is_read(references: Sequence[Reference]) -> None:
    """Goal: no source is forgotten. Method: the existing kinds of references."""
    kinds = {each.kind for each in references}
    assert {"chapter", "known bug", "proof", "lemma", "design that z3 refutes", "tiny model", "detector"} < kinds
    assert {"test", "mutant", "design", "finding", "defect of the corpus"} < kinds


# With one thing wrong


@pytest.mark.parametrize("part", PARTS)
def test_a_missing_part_is_found(references: Sequence[Reference], part: str) -> None:
    """Goal: no part can be lost in silence. Method: take it from one guarantee, wherever it comes from."""
    without = [
        evolve(each, statements=tuple({*each.statements} - {"KV-OP-01"})) if each.part == part else each
        for each in references
    ]
    complaint = f"KV-OP-01 has no {part}, and is not exempt"
    assert complaint not in complaints(references)
    assert complaint in complaints(without)


def test_an_unknown_guarantee_is_found(references: Sequence[Reference]) -> None:
    """Goal: every reference to a guarantee names one. Method: let one reference of each kind name an unknown one."""
    for kind, each in {each.kind: each for each in references}.items():
        strange = evolve(each, name="strange", statements=(UNKNOWN,))
        assert [f"the {kind} strange names {UNKNOWN}, which is not a guarantee"] == complaints([*references, strange])
    exempt = [*EXEMPTIONS, Exemption("proof", (UNKNOWN,), BECAUSE)]
    assert [f"the exemption from proof names {UNKNOWN}, which is not a guarantee"] == complaints(references, exempt)


def test_a_proof_of_no_chapter_is_found(references: Sequence[Reference]) -> None:
    """Goal: every proof is described in a chapter. Method: read the proofs without any chapter."""
    homeless = [*references, next(each for each in of_proofs([]) if each.kind == "proof")]
    assert [f"the proof {homeless[-1].name} names a chapter, which is not a guarantee"] == complaints(homeless)


def test_a_known_bug_names_a_guarantee(references: Sequence[Reference]) -> None:
    """Goal: no public report is listed without what it violates. Method: a chapter that does not say it."""
    text = (HOME / "02-free-queue.md").read_text(encoding="utf-8")
    sound = [each for each in of_chapters([parse("02-free-queue.md", text)]) if each.kind == "known bug"]
    assert ("KV-OP-17",) in {each.statements for each in sound}
    silent = [*of_chapters([parse("02-free-queue.md", text.replace("(KV-OP-17)", ""))])]
    assert 1 == len([each for each in complaints([*references, *silent]) if "names nothing" in each])


def test_a_design_without_its_model_is_found(references: Sequence[Reference], monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a design is refuted in an existing model. Method: name an unknown one."""
    strange = evolve(DESIGNS["scratch-last"], model="tiny-none")
    monkeypatch.setattr("kvgate_mutants.traceability.DESIGNS", {"strange": strange})
    assert ["the design strange names tiny-none, which is not a tiny model"] == complaints(references)


@pytest.mark.parametrize("function", ["hit_lookup:shortest_hit", "lookups:longest_hit"])
def test_a_function_that_is_gone_is_found(function: str) -> None:
    """Goal: the code that implements a guarantee exists. Method: name a function, and a module, that do not exist."""
    assert [] == list(functions_missing({"KV-OP-01": ("hit_lookup:longest_hit",)}))
    expected = [f"KV-OP-01 is implemented by {function}, which is not there"]
    assert expected == list(functions_missing({"KV-OP-01": (function,)}))


def test_a_stale_exemption_is_found(references: Sequence[Reference]) -> None:
    """Goal: an exemption goes when its reason has gone. Method: exempt an existing part, and something twice."""
    twice = EXEMPTIONS[0]
    found = complaints(references, [*EXEMPTIONS, Exemption("chapter", ("KV-OP-01",), BECAUSE), twice])
    assert "KV-OP-01 is exempt from having a chapter, and has one" in found
    assert f"{twice.statements[0]} is exempt twice from having a {twice.part}" in found


@pytest.mark.parametrize(
    ("part", "named", "reason"),
    [("doubt", ("KV-OP-01",), BECAUSE), ("proof", (), BECAUSE), ("proof", ("KV-OP-01",), "so")],
)
def test_an_exemption_says_what_and_why(part: str, named: tuple[str, ...], reason: str) -> None:
    """Goal: no exemption is for an unknown part, for nothing, or without a reason. Method: make each."""
    with pytest.raises(ValueError, match=r"part|statements|reason"):
        Exemption(part, named, reason)


def test_a_mutant_of_no_guarantee_cannot_be_made() -> None:
    """Goal: a mutant names an existing guarantee. Method: try another."""
    with pytest.raises(ValueError, match="statement"):
        evolve(BLOCK_MANAGER_MUTANTS[0], statement=UNKNOWN)


def test_what_violates_nothing_counts_for_nothing(references: Sequence[Reference]) -> None:
    """Goal: a mutant that is equivalent to vLLM is not evidence. Method: the equivalent ones."""
    equivalent = {each.name for each in (*BLOCK_MANAGER_MUTANTS, *SCHEDULER_MUTANTS) if each.equivalent}
    assert equivalent
    assert {""} == {each.part for each in references if each.kind == "mutant" and each.name in equivalent}


def test_of_several_trials_the_one_that_says_most_counts() -> None:
    """Goal: a defect that published code shows is not an analogue, and an analogue is not caught. Method:
    both, ordered.
    """
    bug = next(bug for bug in BUGS.values() if Sort.ANALOGUE in {trial.sort for trial in bug.trials})
    analogue = next(trial for trial in bug.trials if trial.sort is Sort.ANALOGUE)
    published = analogue.without_mutants()
    assert Sort.PUBLISHED is published.sort
    for trials in ((analogue, published), (published, analogue)):
        (reference,) = of_bug(evolve(bug, trials=trials))
        assert (analogue.statements[0],) == reference.statements
        assert reference.shown.startswith("[corpus](")
    (reference,) = of_bug(evolve(bug, trials=(analogue,)))
    assert reference.shown.startswith("[corpus, not as reported](")


def test_findings_are_read_from_their_register() -> None:
    """Goal: the column of guarantees counts, and no other. Method: a row with ids in two columns."""
    register = 'id,guarantee,title\n001-a,"KV-OP-01, KV-MEM-02",t KV-OP-09\n'
    assert [("001-a", ("KV-OP-01", "KV-MEM-02"))] == [(each.name, each.statements) for each in of_findings(register)]


def test_the_table_says_what_there_is() -> None:
    """Goal: a row has proofs by tier, the first mutants, counted findings, or the reason why not. Method: two rows."""
    its = [
        *(Reference("proof", f"a{n}", ("KV-OP-01",), "proof", "[a](a.md#proofs), P") for n in range(2)),
        Reference("proof", "b", ("KV-OP-01",), "proof", "[a](a.md#proofs), B"),
        Reference("detector", "ghost", ("KV-OP-01",), "monitor", "`ghost`"),
        *(Reference("tiny model", f"t{n}", ("KV-OP-01",), "", "explorer") for n in range(2)),
        *(Reference("mutant", f"m{n}", ("KV-OP-01",), "mutant", f"`m{n}`") for n in range(3)),
        *(Reference("known bug", f"k{n}", ("KV-OP-01",), "finding", "[reported](a.md)") for n in range(2)),
    ]
    rows = {
        row.pop("guarantee"): [*row.values()]
        for row in read_csv(table(its, [Exemption("proof", ("KV-OP-02",), BECAUSE)]))
    }
    one = ["[a](a.md#proofs) (2 P, 1 B)", "`ghost`, explorer", "`m0`, `m1` and 1 more", "[reported](a.md) (2 cases)"]
    assert one == rows["KV-OP-01"]
    assert [f"none: {BECAUSE}", "none", "none", "none"] == rows["KV-OP-02"]
