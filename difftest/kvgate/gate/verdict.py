"""What a run of the gate found: claimed, tested, found, not tested."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from attrs import field, frozen

from kvgate.gate.diagnosis import Anomaly, Diagnosis, of_statement
from kvgate.gate.level import Case, Operation
from kvgate.kernel.difference import Divergence

FAILED = "kvgate itself failed"
"""How a run ended in which the gate raised: what it did not find until then means nothing."""


@frozen
class Also:
    """How a defect shows besides."""

    statement: str
    detector: str
    subject: str
    times: int


@frozen
class Found:
    """One defect: a divergence, the smallest case that shows it, and how often its kind was seen."""

    divergence: Divergence
    case: Case
    """Ends with the operation that diverges."""
    times: int = 1
    finding: str | None = None
    """The id of the declared finding that explains it, or None."""
    answers: tuple[str, ...] = ()
    """The reference's answers in words, where the case alone does not say them: it followed the system's choices."""
    again: str | None = None
    """How to see it again, where ``kvgate replay`` is not how."""
    out_of_time: bool = False
    """Whether there was no more time to make the case smaller."""
    rest: tuple[Operation, ...] = ()
    """What the case would have gone on with."""
    diagnosis: Diagnosis | None = None
    """What it means, where that was looked into."""
    also: tuple[Also, ...] = ()
    """What else is seen that has the same cause."""
    driver: Case | None = None
    """Above the level of the block manager, what was done there; ``case`` is then what that asked of the block manager
    on which the divergence shows."""

    @property
    def anomaly(self) -> Anomaly:
        """What it means to those who use the server, as far as is known."""
        return of_statement(self.divergence) if self.diagnosis is None else self.diagnosis.anomaly

    @property
    def options(self) -> tuple[str, ...]:
        """What ``kvgate replay`` needs to be given besides its trace."""
        return self.replayable.level.options_of(self.replayable.stage)

    @property
    def replayable(self) -> Case:
        """The case that shows it again."""
        return self.driver or self.case


@frozen
class TooSeldom:
    """A known finding that acted in far fewer cases of a run than it did when it was counted."""

    finding: str
    expected: float
    """In how many cases it was expected to act."""
    cases: int
    level: str
    acted: int = 0
    """In how many it acted."""
    model: str | None = None
    """Of which model the cases are; None: of all."""


@frozen
class Tally:
    """What was run on one model with one generator preset."""

    model: str
    preset: str
    cases: int
    operations: int
    cut: int = 0
    """How many of the cases a declared difference ended early: what follows one means nothing."""
    alone: int = 0
    """How many of the operations the reference did not follow, though it was to: the monitors checked them alone."""
    digest: str = ""
    """Of all operations and answers, case by case; empty where none was kept."""


def digest_of(digests: Iterable[str]) -> str:
    """One digest of several; none of none."""
    text = " ".join(digests).strip()
    return blake2b(text.encode(), digest_size=8).hexdigest() if text else ""


@frozen
class NeverRan:
    """A line of a patch that never ran; or one that ran, and never went on to another."""

    path: str
    line: int
    text: str
    to: int | None = None
    """The line to which it never went on; negative where it leaves the function."""


@frozen
class PatchCoverage:
    """How much of a patch ran."""

    lines: int
    lines_ran: int
    branches: int
    branches_ran: int
    never: tuple[NeverRan, ...] = ()


@frozen
class Verdict:
    """The outcome of a whole run."""

    system: str
    """The system's name, as it was asked for."""
    version: str
    profile: str
    seed: int
    detectors: tuple[str, ...]
    tallies: tuple[Tally, ...] = ()
    found: tuple[Found, ...] = ()
    """What no finding explains, and what makes the gate fail."""
    declared: tuple[Found, ...] = ()
    """What a finding explains: counted and shown, and no failure."""
    too_seldom: tuple[TooSeldom, ...] = ()
    """Known findings that should have acted: each is a divergence without a case."""
    seconds: float = 0.0
    preloads: tuple[str, ...] = ()
    """The files that were run before the system was built: without them it is another system."""
    over: tuple[str, ...] = ()
    """The options that laid other files over the system."""
    models: tuple[str, ...] = ()
    """Where the models that were read from files come from."""
    patch: PatchCoverage | None = None
    """How much ran of what was changed, if that was measured."""
    ended: str = field(default="completed")
    """``completed``, ``enough found``, ``time budget``, ``interrupted`` or ``FAILED``."""
    instead: bool = False
    """Whether a stored run was run on another system than the one that it names."""

    @property
    def changed(self) -> tuple[str, ...]:
        """The options that changed the system."""
        return (*(part for path in self.preloads for part in ("--preload", path)), *self.over)

    @property
    def agrees(self) -> bool:
        """Whether nothing was found that is not declared, and every known finding acted as often as it should."""
        return not self.found and not self.too_seldom

    @property
    def operations(self) -> int:
        """How many operations were performed in all."""
        return sum(tally.operations for tally in self.tallies)

    @property
    def cut(self) -> int:
        """How many cases a declared difference ended before their time."""
        return sum(tally.cut for tally in self.tallies)

    @property
    def alone(self) -> int:
        """How many operations the monitors checked without the reference, though it was to follow."""
        return sum(tally.alone for tally in self.tallies)

    @property
    def digest(self) -> str:
        """Of all operations, and all that the system answered."""
        return digest_of(tally.digest for tally in self.tallies)

    @property
    def cases(self) -> int:
        """How many cases were run in all."""
        return sum(tally.cases for tally in self.tallies)
