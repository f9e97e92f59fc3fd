"""The wording of evidence: what is proved, explored and tested of a statement, and how much of it."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvspec.chapter_proofs import proofs_in, written
from kvspec.chapters import chapter_of, parse, read_all
from kvspec.evidence import LEMMAS, chapter_name, evidence, proofs_of
from kvspec.obligation import Count, Obligation
from kvspec.registry import obligations

from .lints import SPEC

PROVED = Obligation(
    id="something.whole",
    statements=("KV-OP-02", "KV-OP-15"),
    title="It holds.",
    unknowns={"length": Count()},
    claim=lambda unknowns: unknowns.length >= 0,
    witnesses={},
    mutants=(),
)
BOUNDED = evolve(PROVED, id="something.small", bound="up to 3")
OF_A_MODEL = evolve(PROVED, id="free-queue.empty-is-whole")
"""By its id it executes no function of the reference."""


@pytest.mark.parametrize(
    ("statement", "proofs", "left", "expected"),
    [
        ("KV-OP-02", [], {}, "T"),
        ("KV-OP-02", [PROVED], {"KV-OP-02": ""}, "P, T"),
        ("KV-OP-02", [PROVED], {"KV-OP-02": "the rest"}, "P in part, T"),
        ("KV-OP-02", [PROVED], {}, "P in part, T"),
        ("KV-OP-02", [BOUNDED], {"KV-OP-02": ""}, "B, T"),
        ("KV-OP-02", [OF_A_MODEL], {"KV-OP-02": ""}, "M, T"),
        ("KV-OP-02", [OF_A_MODEL], {}, "M in part, T"),
        ("KV-OP-02", [PROVED, OF_A_MODEL], {}, "P in part, T"),
        ("KV-OP-02", [BOUNDED], {"KV-OP-02": "the rest"}, "B in part, T"),
        ("KV-OP-02", [PROVED, BOUNDED], {"KV-OP-02": "the rest"}, "P in part, B in part, T"),
        ("KV-INV-01", [], {}, "B, T"),
        ("KV-INV-01", [PROVED, BOUNDED], {"KV-INV-01": "the rest"}, "P in part, B, T"),
        ("KV-OP-15", [], {}, "B in part, T"),
        ("KV-OP-15", [PROVED], {"KV-OP-15": ""}, "P, B in part, T"),
    ],
)
def test_wording(statement: str, proofs: list[Obligation], left: dict[str, str], expected: str) -> None:
    """Goal: no kind of evidence claims to cover more than it does. Method: with and without each kind, and a rest."""
    assert expected == evidence(statement, proofs, left)


def test_a_lemma_proves_no_statement() -> None:
    """Goal: arithmetic is not a proof of what it is used for. Method: the same obligation under both names."""
    lemma = evolve(PROVED, id=f"{LEMMAS[0]}.sum")
    assert [PROVED] == proofs_of("KV-OP-02", {each.id: each for each in (PROVED, lemma)})


def test_every_family_of_proofs_is_described_in_one_place() -> None:
    """Goal: no proof is left out of the pages. Method: count those of all chapters, and the lemmas."""
    proofs_section = [each.id for chapter in read_all() for each in proofs_in(chapter)]
    lemmas = [name for name, each in obligations().items() if chapter_name(each) in LEMMAS]
    assert sorted(obligations()) == sorted([*proofs_section, *lemmas])
    families = {name.rpartition(".")[0] for name in obligations()}
    assert set(LEMMAS) <= families


def test_stale_evidence_is_written_anew() -> None:
    """Goal: the command updates stale evidence. Method: claim too much in a chapter, and write it."""
    chapter = chapter_of(read_all())["KV-OP-14"]
    text = (SPEC / chapter.file).read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| [KV-OP-14]"))
    changed = text.replace(row, row.replace(" T |", " P, B, T |"))
    assert changed != text
    assert text == written(parse(chapter.file, changed), changed)
