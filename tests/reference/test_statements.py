"""The guarantees: ids that stay, sentences that end."""

from __future__ import annotations

import re

import pytest

from kvreference.statements import STATEMENTS


def test_ids_are_well_formed_and_in_order() -> None:
    """Goal: an id names its family and number. Method: match each; within a family the numbers run from 01."""
    families: dict[str, list[int]] = {}
    for statement in STATEMENTS:
        match = re.fullmatch(r"KV-(INV|OP|MEM|LEAK|SYS)-(\d\d)", statement)
        assert match is not None, statement
        families.setdefault(match[1], []).append(int(match[2]))
    for family, numbers in families.items():
        assert list(range(1, len(numbers) + 1)) == numbers, family


@pytest.mark.parametrize("statement", STATEMENTS)
def test_each_is_one_sentence(statement: str) -> None:
    """Goal: a report quotes a guarantee as one sentence. Method: a capital first, one full stop last, no line break."""
    assert re.fullmatch(r"[A-Z][^.\n]*\.", STATEMENTS[statement])


def test_no_sentence_is_given_twice() -> None:
    """Goal: two ids are two guarantees. Method: count."""
    assert len(STATEMENTS) == len(set(STATEMENTS.values()))


def test_they_cannot_be_changed() -> None:
    """Goal: nobody redefines a guarantee while running. Method: try."""
    with pytest.raises(TypeError, match="does not support item assignment"):
        STATEMENTS["KV-INV-01"] = "Anything goes."  # type: ignore[index]
