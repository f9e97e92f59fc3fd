"""The table: each figure as published, what was simulated for it, and whether that is within what is accepted."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve, frozen
from benchmarks.headlines.figure import TOLERANCE_POINTS, Accepts, Case, Figure
from benchmarks.headlines.store import REAL, Store, code_digest

from kvgate.simulation.comparison import difference
from kvgate.simulation.result import Result
from kvgate.simulation.sweep import Job

ASIDE, INSIDE = "for comparison", "in the bracket"
RULE = (
    "One rule for all rows. Where a rate is expected of a case, every arm that serves it must be within one percentage "
    "point: of what was published (*within a point*), or of what another simulation reported (*agrees*). Where the "
    "published figure depends on what was not published, it lies between the lowest and the highest of several cases "
    "(*in the bracket*), or it does not (*outside*). Of all other cases nothing is expected (*for comparison*). In "
    "every case, every block must have held what it should when it was read, and arms that "
    "serve one case must agree on every request, in what it hit, what was computed and copied for it, how often it "
    "was looked up and preempted, and in the server's counters, the steps and the evictions."
)
"""When a case is accepted."""


@frozen
class Line:
    """One case, and what became of it."""

    figure: Figure
    case: Case
    results: tuple[Result | None, ...]
    """In the order of the case's arms; None where it was not run."""
    earlier: tuple[bool, ...] = ()
    """For each arm, whether earlier code computed its result; empty: for none."""
    span_percent: tuple[float, float] | None = None
    """Of the figure's cases that a bracket spans, as far as they were run."""

    @property
    def done(self) -> tuple[Result, ...]:
        """What was run."""
        return tuple(each for each in self.results if each is not None)

    @property
    def marks(self) -> tuple[bool, ...]:
        """For each arm, whether earlier code computed the result."""
        earlier = self.earlier or (False,) * len(self.results)
        return tuple(mark and each is not None for mark, each in zip(earlier, self.results, strict=True))

    @property
    def differs(self) -> str | None:
        """In what the arms differ, request by request."""
        found = (difference(self.done[0], other) for other in self.done[1:])
        return next((each for each in found if each), None)

    @property
    def compared(self) -> int | None:
        """On how many requests the arms agree, those of the warm-up among them; None if there is nothing to compare."""
        return len(self.done[0].served) if len(self.done) > 1 and not self.differs else None

    def points_off(self, result: Result) -> float | None:
        """How far the hit rate is from the expected one, in percentage points."""
        if self.case.expected_percent is None:
            return None
        return self.case.percent(result) - self.case.expected_percent

    @property
    def farthest(self) -> float | None:
        """The same of the arm that is farthest from it."""
        off = [each for each in map(self.points_off, self.done) if each is not None]
        return max(off, key=abs) if off else None

    @property
    def verdict(self) -> str:
        """In one word, or one sentence if something is wrong."""
        return self.wrong or self._accepted

    @property
    def wrong(self) -> str | None:
        """What is wrong independent of any published figure; None if nothing."""
        if any(not each.soundness.sound for each in self.done):
            return "unsound or not checked"
        if self.differs:
            return f"arms differ: {self.differs}"
        off = abs(self.farthest or 0.0)
        return f"{off:.2f} points off" if off > TOLERANCE_POINTS else None

    @property
    def _accepted(self) -> str:
        """What is said where nothing is wrong."""
        accepts, case = self.figure.accepts, self.case
        missing = [arm for arm, each in zip(case.arms, self.results, strict=False) if each is None]
        if missing:
            return f"not run: {', '.join(missing)}"
        if accepts is Accepts.BRACKET and case.spans:
            return self._bracket
        if case.expected_percent is None:
            return ASIDE
        return "agrees" if accepts is Accepts.AGREES else "within a point"

    @property
    def _bracket(self) -> str:
        """Whether the published figure lies between the cases. If not, the row says so; the run still succeeds."""
        rates = [self.case.percent(each) for each in self.done]
        low, high = self.span_percent or (min(rates), max(rates))
        published = self.figure.published_percent
        inside = published is not None and low <= published <= high
        return INSIDE if inside else f"outside: {low:.2f} to {high:.2f}"

    @property
    def is_wrong(self) -> bool:
        """Whether it is neither accepted nor left open."""
        return self.wrong is not None


def jobs_of(figures: Sequence[Figure]) -> list[Job]:
    """All simulations that the figures need, each once; those first that take seconds and not minutes."""
    jobs = [Job(arm, case.setting) for figure in figures for case in figure.cases for arm in case.arms]
    return sorted(dict.fromkeys(jobs), key=lambda job: (job.arm in REAL, job.arm == "reference"))


def lines_of(figures: Sequence[Figure], store: Store) -> list[Line]:
    """Every case with what was simulated for it."""
    return [line for figure in figures for line in _with_span([_line(figure, case, store) for case in figure.cases])]


def _line(figure: Figure, case: Case, store: Store) -> Line:
    jobs = [Job(arm, case.setting) for arm in case.arms]
    return Line(figure, case, tuple(map(store.get, jobs)), tuple(map(store.is_earlier, jobs)))


def _with_span(lines: Sequence[Line]) -> list[Line]:
    """The lines of one figure, each with what its bracket spans."""
    rates = [line.case.percent(each) for line in lines if line.case.spans for each in line.done]
    return [evolve(line, span_percent=(min(rates), max(rates)) if rates else None) for line in lines]


def codes_of(lines: Sequence[Line]) -> dict[str, list[str]]:
    """By the digest of the code as it is now, the arms that it decides."""
    found: dict[str, list[str]] = {}
    for arm in sorted({arm for line in lines for arm in line.case.arms}):
        found.setdefault(code_digest(arm), []).append(arm)
    return found
