"""Obligations as data: a statement about unknowns, in Python that runs on numbers and on terms alike.

Because it runs on numbers too, all that z3 finds is tried: a witness or a counterexample is run again, as ints.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias
from unittest.mock import patch

from attrs import field, frozen

from kvspec.symbolic import Term


class Tier(Enum):
    """How far a proof reaches."""

    ALL = "P"
    """For all sizes, of functions of the reference that run."""
    MODEL = "M"
    """For all sizes, of a model: no function of the reference is executed, or a transcription is."""
    BOUNDED = "B"
    """For all sizes up to a bound."""


@frozen
class Count:
    """An integer that is not known: at least ``least`` and, if it has a bound, at most ``most``."""

    least: int = 0
    most: int | None = None


@frozen
class AMap:
    """A map that is not known, from ``arity`` numbers to a number."""

    arity: int = 1


Unknown: TypeAlias = Count | AMap
Property: TypeAlias = Callable[[Any], Any]
"""Something said of the unknowns, which it reads as attributes: a bool of numbers, a truth of terms."""


@frozen
class Patch:
    """Something of the code that runs, replaced: ``target`` is ``module:name`` or ``module:Class.name``."""

    target: str
    by: Any

    @contextmanager
    def applied(self) -> Iterator[None]:
        module, _, path = self.target.partition(":")
        *owners, name = path.split(".")
        owner: Any = importlib.import_module(module)
        for each in owners:
            owner = getattr(owner, each)
        # Only what is there can be replaced: a mutant of a name that is gone would break nothing.
        with patch.object(owner, name, self.by):
            yield


@frozen
class Mutant:
    """The formula or the transition, broken: the statement must not be provable any more."""

    name: str
    story: str
    """The fault, in one sentence."""
    patches: tuple[Patch, ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The code, broken, while it lasts."""
        with ExitStack() as stack:
            for each in self.patches:
                stack.enter_context(each.applied())
            yield


@frozen
class Lemma:
    """An obligation that is used in the proof of another, at given values of its unknowns."""

    obligation: Obligation
    values: Mapping[str, Any]


def no_lemmas(_unknowns: Any) -> Sequence[Lemma]:
    """None is needed."""
    return ()


def all_counts(unknowns: Any) -> Any:
    """How large values are, if nothing else is said: their sum."""
    return sum(value for value in vars(unknowns).values() if isinstance(value, (int, Term)))


@frozen(eq=False)
class Obligation:
    """One statement that is to be proved."""

    id: str
    """``chapter.name``: never given to another one."""
    statements: tuple[str, ...]
    """The guarantees that rest on it, by their ids."""
    title: str
    """The claim in a sentence that a user would recognise."""
    unknowns: Mapping[str, Unknown]
    claim: Property
    """The claim."""
    witnesses: Mapping[str, Property]
    """Cases that must be possible, each by a name that says why it is not trivial."""
    mutants: tuple[Mutant, ...]
    assumes: Property = field(default=lambda _unknowns: True)
    """The assumptions."""
    lemmas: Callable[[Any], Sequence[Lemma]] = no_lemmas
    size: Property = all_counts
    """The measure of a counterexample's size."""
    bound: str = ""
    """For tier B: up to where it is proved, and why no further."""
    binds: Callable[..., Mapping[str, int] | None] | None = None
    """The values of unknowns in a group of a geometry; None if it does not speak of such a group."""

    @property
    def tier(self) -> Tier:
        """How far it reaches, and whether it is about the code that runs."""
        if self.bound:
            return Tier.BOUNDED
        names = executed().get(self.id)
        if names is None:
            return Tier.ALL
        return Tier.MODEL if not names or any(map(is_transcription, names)) else Tier.ALL


def is_transcription(name: str) -> bool:
    """Whether ``name``, of the trace, stands in the place of a function of the reference and is none itself."""
    return name.startswith("kvspec.")


EXECUTED_FILE = Path(__file__).with_name("executed.json")


@cache
def executed() -> Mapping[str, Sequence[str]]:
    """By the id of an obligation, what of the reference it executes, and what in its place; see ``kvspec.executed``."""
    known: dict[str, Sequence[str]] = json.loads(EXECUTED_FILE.read_text(encoding="utf-8"))
    return known


def only(name: str, story: str, target: str, by: Any) -> Mutant:
    """A mutant that replaces one thing."""
    return Mutant(name, story, (Patch(target, by),))


NO_VALUES: Mapping[str, int] = MappingProxyType({})
"""Nothing is fixed."""
