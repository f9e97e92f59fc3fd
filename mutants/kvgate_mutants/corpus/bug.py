"""A reported defect, and how it is shown to the gate.

Where the published code that has the defect runs here, that code is the system. Where it does not, a mutant
re-introduces the defect, or is an analogue of it, and a sentence says why. In both cases a control must be silent: the
same scenario without the defect, or, if no repair exists, one that does not cause it.
"""

from __future__ import annotations

from enum import Enum

from attrs import Attribute, evolve, field, frozen
from attrs.validators import deep_iterable, in_, matches_re, min_len

from kvgate.kernel.difference import Difference
from kvgate_mutants.corpus.scenario import Scenario
from kvgate_mutants.mutants.mutant import Mutant
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


class Sort(str, Enum):
    """What is run in a trial, from what says most to what says least."""

    PUBLISHED = "published code"
    REINTRODUCED = "mutant re-introducing it"
    """The reported wrong rule is injected."""
    ANALOGUE = "analogue"
    """A similar fault is injected: the reported cause is another, elsewhere, or not known."""
    BY_HAND = "contract violated by hand"
    """Published code, called as nothing that was published calls it."""


class Contrast(str, Enum):
    """What makes a control free of the defect."""

    UNPLANTED = "without the mutant"
    REPAIR = "repair"
    REFERENCE = "reference"
    OTHER_SETTINGS = "other settings"
    """The same code: what brings the defect about is left out. It shows that the gate is silent, and no more."""


@frozen
class Control:
    """What must be silent: the same without the defect, or, by other settings, without what brings it about."""

    what: str = field(validator=min_len(1))
    """What is different, in a few words."""
    system: str = field(validator=min_len(1))
    scenario: Scenario
    mutants: tuple[Mutant, ...] = ()
    contrast: Contrast = Contrast.OTHER_SETTINGS
    fixes: frozenset[str] = frozenset()
    """The findings that the mutants repair: the reference is compared without them."""


@frozen
class Trial:
    """One way to show a defect to the gate.

    Raises:
        ValueError: a mutant without the reason for it, or a reason without a mutant; an analogue without a mutant, or
            a contract that is violated by hand and by a mutant.
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
    analogue: bool = field(default=False)
    """Whether the mutant is something of the kind only."""
    elsewhere: bool = False
    """Whether the mutant is injected into another program than the reported one."""
    by_hand: bool = field(default=False)
    """Whether the scenario calls what nothing that was published calls so."""
    remark: str = ""
    """What this shows of the report, and what it does not."""

    @analogue.validator
    def _has_a_mutant(self, _attribute: Attribute[bool], analogue: bool) -> None:
        if analogue and not self.mutants:
            raise ValueError("an analogue is a mutant: give it")

    @by_hand.validator
    def _is_as_published(self, _attribute: Attribute[bool], by_hand: bool) -> None:
        if by_hand and self.mutants:
            raise ValueError("a contract is violated by hand in published code: leave out the mutant")

    @why_mutant.validator
    def _says_why(self, _attribute: Attribute[str], why: str) -> None:
        if bool(self.mutants) != bool(why):
            raise ValueError("a mutant needs a reason, and a reason is there for a mutant")

    def expects(self, difference: Difference) -> bool:
        """Whether this is what must be seen."""
        return difference.statement in self.statements and self.words in difference.got

    @property
    def control(self) -> Control:
        """The same without the mutant; without a mutant, the reference in the system's place."""
        if self.otherwise is not None:
            return self.otherwise
        if self.mutants:
            return Control("without the mutant", self.system, self.scenario, contrast=Contrast.UNPLANTED)
        return Control("the reference", "reference", self.scenario, contrast=Contrast.REFERENCE)

    @property
    def sort(self) -> Sort:
        """What is run."""
        if self.by_hand:
            return Sort.BY_HAND
        if not self.mutants:
            return Sort.PUBLISHED
        return Sort.ANALOGUE if self.analogue else Sort.REINTRODUCED

    @property
    def code(self) -> str:
        """Whose code has the defect."""
        return self.system + "".join(f" + {mutant.name}" for mutant in self.mutants)

    def without_mutants(self) -> Trial:
        """The same trial without a mutant: if it is still caught, it was not the defect that was caught."""
        return evolve(self, mutants=(), why_mutant="", otherwise=self.control, analogue=False)


@frozen
class Bug:
    """One reported defect.

    Raises:
        ValueError: it has neither a trial nor a reason for having none.
    """

    number: int
    id: str = field(validator=matches_re(r"[a-z0-9]+(-[a-z0-9]+)*"))
    kind: Kind
    link: str = field(validator=matches_re(r"https://github\.com/[^/]+/[^/]+/(pull|issues)/\d+"))
    title: str = field(validator=min_len(1))
    """What goes wrong, in one sentence."""
    affected: str = field(validator=min_len(1))
    """The versions that have it, as far as upstream's threads and our own runs show."""
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
