"""A defect that somebody reported, and how it is shown to the gate.

Where the published code that has the defect runs here, that code is the system. Where it does not, a mutant
re-introduces the defect, and a sentence says why. Either way the same scenario is run once more without the defect:
what the gate says of it must come from the defect alone.
"""

from __future__ import annotations

from enum import Enum

from attrs import Attribute, evolve, field, frozen
from attrs.validators import deep_iterable, in_, matches_re, min_len

from kvgate.corpus.scenario import Scenario
from kvgate.difference import Difference
from kvgate.mutants.mutant import Mutant
from kvreference.statements import STATEMENTS


class Kind(str, Enum):
    """What an operator sees of a defect."""

    ZERO_HIT = "zero hit"
    WRONG_HIT = "wrong hit"
    MISALIGNED = "misaligned"
    LEAK = "leak"
    DOUBLE_FREE = "double free"
    HANG = "hang"
    OVER_EVICTION = "over-eviction"
    ACCOUNTING = "accounting"
    CRASH = "crash"
    EVENTS = "events"
    CONFIGURATION = "configuration"


@frozen
class Control:
    """The same without the defect: nothing may be found."""

    what: str = field(validator=min_len(1))
    """What is different, in a few words."""
    system: str = field(validator=min_len(1))
    scenario: Scenario
    mutants: tuple[Mutant, ...] = ()


@frozen
class Trial:
    """One way to show a defect to the gate.

    Raises:
        ValueError: a mutant without the reason for it, or a reason without a mutant.
    """

    system: str = field(validator=min_len(1))
    """The system as ``kvgate check --sut`` names it."""
    scenario: Scenario
    statements: tuple[str, ...] = field(validator=[min_len(1), deep_iterable(in_(STATEMENTS))])
    """The guarantees of which one must be seen violated first."""
    mutants: tuple[Mutant, ...] = ()
    """What re-introduces the defect; none where the system as published has it."""
    words: str = ""
    """What the gate's words must contain, where a guarantee is violated by many things."""
    why_mutant: str = field(default="")
    """Why no published code that has the defect is run."""
    otherwise: Control | None = None
    """The control, where it is not the obvious one."""

    @why_mutant.validator
    def _says_why(self, _attribute: Attribute[str], why: str) -> None:
        if bool(self.mutants) != bool(why):
            raise ValueError("a mutant needs a reason, and a reason is there for a mutant")

    def expects(self, difference: Difference) -> bool:
        """Whether this is what must be seen."""
        return difference.statement in self.statements and self.words in difference.got

    @property
    def control(self) -> Control:
        """The same without the mutant; where nothing is planted, the reference in the system's place."""
        if self.otherwise is not None:
            return self.otherwise
        if self.mutants:
            return Control("without the mutant", self.system, self.scenario)
        return Control("the reference", "reference", self.scenario)

    @property
    def code(self) -> str:
        """Whose code has the defect."""
        return self.system + "".join(f" + {mutant.name}" for mutant in self.mutants)

    def without_mutants(self) -> Trial:
        """The same trial with nothing planted: if it is still caught, it was not the defect that was caught."""
        return evolve(self, mutants=(), why_mutant="", otherwise=self.control)


@frozen
class Bug:
    """One reported defect.

    Raises:
        ValueError: neither a trial nor a reason why there is none.
    """

    number: int
    id: str = field(validator=matches_re(r"[a-z0-9]+(-[a-z0-9]+)*"))
    kind: Kind
    link: str = field(validator=matches_re(r"https://github\.com/[^/]+/[^/]+/(pull|issues)/\d+"))
    title: str = field(validator=min_len(1))
    """What goes wrong, in one sentence."""
    affected: str = field(validator=min_len(1))
    """The versions that have it, as far as upstream's threads and our own runs tell."""
    trials: tuple[Trial, ...] = ()
    not_caught: str = field(default="")
    """Why nothing catches it, where nothing does."""

    @not_caught.validator
    def _is_shown_or_explained(self, _attribute: Attribute[str], reason: str) -> None:
        if bool(self.trials) == bool(reason):
            raise ValueError(f"{self.id}: a defect has trials, or a reason why nothing catches it")

    @property
    def thread(self) -> str:
        """The public thread, shortened: ``vllm#32802``."""
        owner_repository, _, number = self.link.removeprefix("https://github.com/").rpartition("/")
        repository = owner_repository.rpartition("/")[0].rpartition("/")[2]
        return f"{repository}#{number}"
