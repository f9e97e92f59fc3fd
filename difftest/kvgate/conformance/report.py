"""The report of a conformance run: one object, as text, as JSON or as JUnit's XML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import asdict, evolve, field, frozen

from kvgate.conformance.capabilities import Capabilities
from kvgate.gate import trace_codec
from kvgate.gate.level import NO_WORKER
from kvgate.gate.story import describe_answer
from kvgate.gate.trace_codec import Header, Line, Trace, Violated
from kvgate.gate.verdict import Found, Verdict
from kvgate.kernel.output import FAULT, UNAVAILABLE, Format
from kvgate.kernel.text import printable
from kvgate.levels.manager import MANAGER, MONITORS, Bench
from kvgate.report import formats
from kvgate.report.campaign import report_of
from kvgate.report.document import Report as Document
from kvgate.report.document import Section, columns
from kvgate.report.junit import with_error

NOT_TESTED = (
    "Scheduling: requests are driven as a scheduler would, without a scheduler.",
    "Mechanisms that no model of this run has, and context parallelism.",
    NO_WORKER,
)
ERROR_CHARACTERS_MAX = 2000


@frozen
class Report:
    """The outcome of a conformance run."""

    verdict: Verdict
    capabilities: Capabilities
    bench: Bench | None = field(default=None, repr=False)
    """What it was run on; None if nothing was run."""
    error: str | None = None
    """Why nothing, or not everything, was run; None if everything was."""
    failed: bool = False
    """Whether that is a fault of the gate itself."""
    left_out: tuple[str, ...] | None = None
    """What was not tested, of a connector; None: what the capabilities leave out."""

    @property
    def passed(self) -> bool:
        """Whether something was run, to its end or its time budget, and nothing was found."""
        ended = self.verdict.ended in ("completed", "time budget")
        return self.error is None and ended and self.verdict.agrees and self.verdict.operations > 0

    def text(self) -> str:
        """The report for a person: outcome, claims, what was tested, the stories, what was not tested."""
        return formats.render(self.document(), Format.TEXT)

    def json(self) -> str:
        """The report for a program, in the form of ``kvgate check --format json``."""
        return formats.render(self.document(), Format.JSON)

    def junit(self) -> str:
        """The report for a test dashboard."""
        written = formats.render(self.document(), Format.JUNIT)
        return written if self.error is None else with_error(written, self._error, "kvgate.conformance")

    @property
    def _error(self) -> str:
        return printable(self.error or "", ERROR_CHARACTERS_MAX)

    def document(self, reproducers: Mapping[int, Path] | None = None) -> Document:
        """The report as a document; ``reproducers`` maps an index in ``found`` to its trace file."""
        files = reproducers or {}
        report = report_of(self._shown(tuple(files.values())), self._not_tested, files, command="conformance")
        about = (("passed", self.passed), ("error", self.error), ("capabilities", asdict(self.capabilities)))
        outcome = report.outcome if self.error is None else f"not run: {self._error}; {report.outcome}"
        section = Section("conformance", columns("name", "value"), about, shown=False)
        code = report.exit_code if self.error is None else FAULT if self.failed else UNAVAILABLE
        return evolve(report, outcome=outcome, exit_code=code, tested=(*report.tested, section))

    def write(self, directory: Path | str) -> tuple[Path, ...]:
        """Write the report in every format, and a reproducer for each divergence; returns the files.

        Raises:
            OSError: they cannot be written.
        """
        folder = Path(directory)
        reproducers = {}
        for index, found in enumerate(self.verdict.found):
            path = folder / f"divergence-{index + 1}.jsonl"
            trace_codec.write(_trace_of(found, self.verdict, self.capabilities), path)
            reproducers[index] = path
        written = formats.write(self.document(reproducers), folder)
        return (*written, *reproducers.values())

    def _shown(self, traces: Sequence[Path] = ()) -> Verdict:
        """The verdict with what only this report knows; ``traces`` are the files of what was found."""
        if self.left_out is not None:
            # ``kvgate replay`` runs it again.
            return self.verdict
        has = "" if self.capabilities == Capabilities() else ", capabilities=…"
        found = []
        for index, each in enumerate(self.verdict.found):
            file = repr(str(traces[index])) if traces else "the file that report.write(directory) writes"
            again = f"kvgate.conformance.replay({self.verdict.system}, {file}{has})"
            found.append(evolve(self._answered(each), again=again))
        return evolve(self.verdict, found=tuple(found))

    def _answered(self, found: Found) -> Found:
        """With the answers of the reference that followed the system, which cannot be worked out without it."""
        if self.bench is None or self.capabilities.order == "vllm":
            return found
        answers = []
        try:
            lockstep = self.bench.set_up(found.case.settings)
            for operation in found.case.operations:
                lockstep.perform(operation)
                expected = lockstep.answers[0]
                answers.append("nothing" if expected is None else describe_answer(expected))
        except Exception as error:
            # A system that is not the same twice: the report is made all the same.
            answers += [f"not known: {type(error).__name__}"] * (len(found.case.operations) - len(answers))
        return evolve(found, answers=tuple(answers))

    @property
    def _not_tested(self) -> tuple[str, ...]:
        return (*self.capabilities.absent(), *NOT_TESTED) if self.left_out is None else self.left_out


def _trace_of(found: Found, verdict: Verdict, capabilities: Capabilities) -> Trace:
    """The trace of what was found; without the reference's answers, which it did not give of itself."""
    case, divergence = found.replayable, found.divergence
    settings = capabilities.fitted(case.settings)
    if capabilities.order == "vllm":
        fitted = evolve(case, settings=settings)
        return trace_codec.trace_of(fitted, divergence, verdict.system, verdict.version, verdict.detectors)
    where_from = (case.model, case.preset, case.seed, verdict.system, verdict.version)
    header = Header(settings, *where_from, MONITORS, Violated.by(divergence))
    return Trace(MANAGER, header, tuple(map(Line, case.operations)))
