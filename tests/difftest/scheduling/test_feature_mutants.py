"""The mutants of where scheduler features meet: each edits a passage that the installed vLLM has, and is undone.

Goal: a passage that another vLLM words differently is noticed before a run, and never counts as a kill.
Method: read vLLM's files without importing vLLM, and apply every edit to their text.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from kvgate_mutants.mutants.mutant import NEEDS, Edit, Mutant, mutants_of
from kvgate_mutants.mutants.registry import BLOCK_MANAGER_MUTANTS, FEATURE_MUTANTS, PAIR_MUTANTS, SCHEDULER_MUTANTS

ENTRY = "all-are-served KV-SYS-01 drafts chunks\nAll are served.\n@ a:b\n- if x:\n-     y\n+ if z:\n+     y\n"


def source_of(target: str) -> str:
    """The source of a function in vLLM's file."""
    spec = find_spec("vllm")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    module, _, path = target.partition(":")
    text = Path(spec.submodule_search_locations[0], *module.split(".")[1:]).with_suffix(".py").read_text("utf-8")
    node: ast.AST = ast.parse(text)
    for name in path.split("."):
        node = next(each for each in ast.iter_child_nodes(node) if getattr(each, "name", None) == name)
    source = ast.get_source_segment(text, node, padded=True)
    assert source is not None
    return source


@pytest.mark.ci
def test_every_passage_is_there() -> None:
    """Once in its function, and its replacement is Python; vLLM is not imported for that."""
    for mutant in FEATURE_MUTANTS:
        assert isinstance(mutant.broken, Edit)
        (target,) = mutant.targets
        try:
            ast.parse(mutant.broken.of(source_of(target)))
        except (LookupError, SyntaxError) as error:
            pytest.fail(f"{mutant.name}: {error}")
    assert "vllm.v1.core.sched.scheduler" not in sys.modules or "vllm" in sys.modules


def test_there_are_enough() -> None:
    """At least sixty, of names that no other set has; every need that they name is explained, and most differ."""
    assert len(FEATURE_MUTANTS) >= 60
    others = (*BLOCK_MANAGER_MUTANTS, *SCHEDULER_MUTANTS, *PAIR_MUTANTS)
    assert {1} == set(Counter(mutant.name for mutant in (*FEATURE_MUTANTS, *others)).values())
    assert len({mutant.broken for mutant in FEATURE_MUTANTS}) > len(FEATURE_MUTANTS) * 3 // 4
    assert {need for mutant in FEATURE_MUTANTS for need in mutant.needs} <= set(NEEDS)


def test_an_entry_is_read() -> None:
    """A name, a guarantee, needs, a sentence, a function, two passages; and what became of it, if that is known."""
    (mutant,) = mutants_of("# A comment\n\n" + ENTRY, "vllm.v1.")
    edit = Edit("if x:\n    y", "if z:\n    y")
    assert (
        Mutant("all-are-served", "All are served.", "KV-SYS-01", ("vllm.v1.a:b",), edit, needs=("drafts", "chunks"))
        == mutant
    )
    (mutant,) = mutants_of(ENTRY + "= survived\n", "vllm.v1.")
    assert "survived" == mutant.before


@pytest.mark.parametrize("wrong", [ENTRY.replace("@ ", ""), ENTRY.replace("KV-SYS-01", "KV-SYS-" + "99"), "name\n"])
def test_a_malformed_entry_is_an_error(wrong: str) -> None:
    """It is not passed over."""
    with pytest.raises(ValueError, match=r"not a mutant|statement"):
        tuple(mutants_of(wrong))


@pytest.mark.parametrize("source", ["def f():\n    return 0\n", "def f():\n    return x + x\n"], ids=["none", "two"])
def test_a_stale_passage_is_an_error(source: str) -> None:
    """If the function no longer contains it, or contains it twice."""
    with pytest.raises(LookupError, match="not one: x"):
        Edit("x", "y").of(source)


def test_lines_are_indented_as_where_they_stand() -> None:
    """Both a passage of several lines, and its replacement."""
    source = "def f():\n    if a:\n        b()\n        c()\n    b()\n"
    edited = Edit("b()\nc()", "if d:\n    c()").of(source)
    assert "def f():\n    if a:\n        if d:\n            c()\n    b()" == edited


class Base:
    """The superclass that a function of a subclass calls with super()."""

    def name(self) -> str:
        """Of which kind it is."""
        return "base"


class Child(Base):
    """A target with a method, a class method and a property."""

    def name(self) -> str:
        """Calls the base."""
        return super().name() + " and child"

    @classmethod
    def made(cls, number: int = 1) -> int:
        """Has a default."""
        return number + 1

    @property
    def size(self) -> int:
        """A property."""
        return 3


def test_the_function_itself_changes() -> None:
    """Wherever it was imported to, and whichever kind it is of; and it is as before afterwards."""
    imported = Child.name
    with (
        Edit("' and child'", "' and mutant'").applied(vars(Child)["name"]),
        Edit("number + 1", "number + 2").applied(vars(Child)["made"]),
        Edit("return 3", "return 4").applied(vars(Child)["size"]),
    ):
        assert ("base and mutant", 3, 4) == (imported(Child()), Child.made(), Child().size)
    assert ("base and child", 2, 3) == (imported(Child()), Child.made(), Child().size)


def test_a_stale_passage_breaks_nothing() -> None:
    """It is an error before the function is changed."""
    with pytest.raises(LookupError), Edit("absent", "pass").applied(vars(Child)["made"]):
        pytest.fail("applied")
    assert 2 == Child.made()
