"""The guarantees: ids that stay, sentences that end."""

from __future__ import annotations

import re

import pytest

from kvreference import statements
from kvreference.statements import STATEMENTS

FAMILIES = re.findall(r"``(KV-[A-Z]+)``", statements.__doc__ or "")


def test_ids_are_well_formed_and_in_order() -> None:
    """Goal: an id names its family and number, and each family has a description.

    Method: match each; families stand in the order in which the module introduces them, and in each the numbers run
    from 01.
    """
    numbers: dict[str, list[int]] = {}
    stretches: list[str] = []
    for statement in STATEMENTS:
        match = re.fullmatch(r"(KV-[A-Z]+)-(\d\d)", statement)
        assert match is not None, statement
        numbers.setdefault(match[1], []).append(int(match[2]))
        stretches += [match[1]] if stretches[-1:] != [match[1]] else []
    assert len(FAMILIES) == 8
    assert FAMILIES == stretches
    assert {family: list(range(1, len(numbers[family]) + 1)) for family in FAMILIES} == numbers


def test_no_sentence_is_given_twice() -> None:
    """Goal: two ids are two guarantees. Method: count."""
    assert len(STATEMENTS) == len(set(STATEMENTS.values()))


def test_they_cannot_be_changed() -> None:
    """Goal: a guarantee cannot be redefined at run time. Method: try."""
    with pytest.raises(TypeError, match="does not support item assignment"):
        STATEMENTS["KV-INV-01"] = "Anything goes."  # type: ignore[index]  # what it refuses
