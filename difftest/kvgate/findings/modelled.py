"""The reference with the findings of a system: what the system is compared with.

Each finding is a delta on a rule of the reference, counted where it acts: where its answer and the answer of the rule
without it differ, for the same arguments. What the system does beyond that is a new divergence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from operator import is_
from typing import Any, TypeVar

from attrs import define, evolve, field, frozen

from kvgate.adapters.release_variants import NewReference, choices_of, choices_of_release, release_of, scheduled
from kvgate.adapters.releases import INSTALLED, RELEASES
from kvgate.adapters.releases.description import Release
from kvgate.adapters.retention import fixes, with_plug_in
from kvgate.findings.finding import Acts, Finding
from kvgate.findings.register import with_ids
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.protocol import Factory, System
from kvgate.monitors.slot_memory import Misread
from kvreference.choices import Choices
from kvreference.manager import Manager, population_of
from kvreference.operations import Operation
from kvreference.rules import Delta, Rules
from kvreference.settings import Settings
from kvreference.tables import content_up_to

M = TypeVar("M", bound=Manager)
TEXT_MAX = 300
"""How many characters of an answer are kept."""
BEGINS_BLOCKS = "012-prompt-tail-that-serves-nobody"
"""The finding that has the cache know boundaries inside blocks."""


@frozen
class Acted:
    """How a finding acted for the first time in a run."""

    finding: str
    statement: str
    """The guarantee that it violates."""
    step: int
    """The number of the operation."""
    rule: str
    ideal: str
    """What the reference would have answered without it."""
    answered: str
    detector: str = "lockstep"
    """Which detector found it."""

    def divergence(self, step: int, operation: Operation | None = None) -> Divergence:
        """How it differs from what the reference would have done, at that step."""
        return Divergence(
            step, operation, self.detector, Difference(self.statement, self.rule, self.ideal, self.answered)
        )


@define
class Modelled:
    """The findings of one system in one run, and how often each acted."""

    findings: tuple[Finding, ...] = ()
    times: dict[str, int] = field(factory=dict)
    first: dict[str, Acted] = field(factory=dict)
    also: dict[tuple[str, str], Acted] = field(factory=dict)
    """By finding and guarantee, how it acted for the first time with one of the further guarantees that it violates."""
    outside: tuple[Finding, str] | None = None
    """A finding that acted although its condition did not hold, and how."""
    step: int = 0
    """The number of the operation that is performed."""
    follows: bool = True
    """Whether the reference follows the run: where it does not, no delta acts."""
    sources: tuple[Modelled, ...] = ()
    """What acts on the nodes from which blocks come."""
    _acts: list[tuple[Finding, Acts]] = field(factory=list)
    _quiet: bool = False

    def rules(self, settings: Settings, release: str) -> Rules:
        """The reference's rules with the deltas of the findings, each counted."""
        self._acts, deltas = [], list[Delta]()
        for finding in self.findings:
            acts = finding.acts(settings, release)
            self._acts.append((finding, acts))
            deltas += (Delta(each.rule, self._counted(finding, each)) for each in acts.deltas)
            deltas += acts.follow
            deltas += (Delta(each.rule, self._counted_alone(finding, each)) for each in acts.without)
            settings = settings if finding.settings is None else finding.settings(settings)
        return Rules(deltas)

    def _counted(self, finding: Finding, delta: Delta) -> Callable[..., Any]:
        def answer(rule: Callable[..., Any], *arguments: Any) -> Any:
            ideal = rule(*arguments)
            answered = self._again(delta, rule, arguments, ideal)
            self._compare(finding, delta.rule, ideal, answered, arguments)
            return answered

        return answer

    def _counted_alone(self, finding: Finding, without: Delta) -> Callable[..., Any]:
        def answer(rule: Callable[..., Any], *arguments: Any) -> Any:
            answered = rule(*arguments)
            ideal = self._again(without, rule, arguments, answered)
            self._compare(finding, without.rule, ideal, answered, arguments)
            return answered

        return answer

    def _again(self, delta: Delta, rule: Callable[..., Any], arguments: Sequence[Any], known: Any) -> Any:
        """What a delta answers to what ``rule`` is ``known`` to answer. The deltas before it were counted just now."""

        def remembered(*asked: Any) -> Any:
            # Asked anew, each delta would ask all before it twice.
            same = len(asked) == len(arguments) and all(map(is_, asked, arguments))
            return known if same and isinstance(known, tuple) else rule(*asked)

        quiet, self._quiet = self._quiet, True
        answered = delta.answer(remembered, *arguments)
        self._quiet = quiet
        return answered

    def _compare(self, finding: Finding, rule: str, ideal: Any, answered: Any, arguments: Sequence[Any]) -> None:
        if answered == ideal or self._quiet:
            return
        self.note(finding, rule, ideal, answered, finding.detector)
        for each in finding.also:
            if each.rule == rule and each.holds(ideal, answered, *arguments):
                acted = self._acted_now(finding, each.statement, rule, ideal, answered, finding.detector)
                self.also.setdefault((finding.id, each.statement), acted)
        if not finding.holds(ideal, answered, *arguments):
            self.outside = finding, f"{_text(answered)}, and {_text(ideal)} without it"

    def note(self, finding: Finding, rule: str, ideal: object, answered: object, detector: str = "lockstep") -> None:
        """A finding acted."""
        self.times[finding.id] = self.times.get(finding.id, 0) + 1
        if finding.id not in self.first:
            self.first[finding.id] = self._acted_now(finding, finding.statement, rule, ideal, answered, detector)

    def _acted_now(
        self, finding: Finding, statement: str, rule: str, ideal: object, answered: object, detector: str
    ) -> Acted:
        return Acted(finding.id, statement, self.step, rule, _text(ideal), _text(answered), detector)

    def violations(self) -> list[Acted]:
        """How each finding acted for the first time, for each guarantee that it violates."""
        return [*self.first.values(), *self.also.values()]

    def take_outside(self) -> Difference | None:
        """That a finding acted although its condition did not hold, reported once."""
        if self.outside is None:
            return None
        (finding, answered), self.outside = self.outside, None
        return Difference(finding.statement, f"finding {finding.id}", f"acts only with {finding.condition}", answered)

    def _acted(self, finding: str) -> bool:
        """Here, or on a node from which blocks come."""
        return finding in self.times or any(finding in known.times for known in self.sources)

    def is_known(self, misread: Misread) -> bool:
        """Whether that a request reads a wrong slot follows from one of the findings."""
        for finding, acts in self._acts:
            # Where the reference follows, what a delta explains is read wrong after it acted.
            recognises = acts.misreads if self.follows else acts.unfollowed or acts.misreads
            follows = not self.follows or not acts.deltas or self._acted(finding.id)
            if (recognises(misread) and follows) or acts.on_its_own(misread):
                self.note(finding, "what is read", misread.expected, misread.got, "ghost")
                return True
        return False


def _text(answer: object) -> str:
    return str(answer)[:TEXT_MAX]


def findings_of(system: Any) -> tuple[Finding, ...]:
    """The findings that a system has: those of its release, without those that it is there to fix."""
    release: Release | None = getattr(system, "description", None)
    if release is None:
        return ()
    return _with_ids(release.findings - system.fixes())


def without(factory: Factory, fixed: Collection[str] | None = None) -> Factory:
    """A system that is compared as if it had none of the findings that are ``fixed``; None: none at all."""

    def build(settings: Settings) -> Any:
        system: Any = factory(settings)
        published = system.fixes()
        gone = published | (system.description.findings if fixed is None else frozenset(fixed))
        system.fixes = lambda: gone
        return system

    return build


def _with_ids(ids: Iterable[str]) -> tuple[Finding, ...]:
    return tuple(sorted(with_ids(ids), key=lambda finding: finding.rank))


def _always(_stage: Any) -> bool:
    return True


def _modelled(findings: Iterable[Finding], settings: Settings, stage: Any) -> tuple[Modelled, Settings]:
    """Those of the findings that can act under ``settings``, and what the system makes of the settings."""
    on_stage = (
        each
        for each in findings
        if (each.on is None if stage is None else (each.on or _always)(stage) and not each.off(stage))
    )
    those = [each for each in on_stage if each.where(settings)]
    contained = {name for each in those for name in each.contains}
    those = [each for each in those if each.id not in contained]
    for finding in those:
        settings = settings if finding.settings is None else finding.settings(settings)
    return Modelled(tuple(those)), settings


def reference_of(system: System, settings: Settings, stage: Any = None) -> tuple[Manager, Modelled]:
    """What ``system`` is compared with: the reference with the choices and the findings of its release.

    ``stage`` is what its scheduler is configured with, if one drives it.
    """
    return _reference(findings_of(system), choices_of(system), getattr(system, "release", ""), settings, stage)


def _reference(
    findings: Iterable[Finding],
    choices: Choices,
    release: str,
    settings: Settings,
    stage: Any = None,
    new: Callable[[Settings, Choices], M] = Manager,  # type: ignore[assignment]  # of the managers, the plain one
) -> tuple[M, Modelled]:
    known, asked = _modelled(findings, settings, stage)
    reference = new(asked, _with_findings(choices, known, settings, release))
    if asked != settings:
        # What the model is, is still what the settings say.
        reference.population = population_of(settings, reference.choices.rules)
    return reference, known


def _with_findings(choices: Choices, known: Modelled, settings: Settings, release: str) -> Choices:
    # What a release decides by design comes first: a finding is a delta on that.
    return evolve(choices, rules=Rules((*choices.rules.deltas, *known.rules(settings, release).deltas)))


def reference_named(system: str) -> NewReference:
    """The same for the block manager of that name, whether its system is here or not."""
    release = release_of(system)
    if release is None:
        return Manager
    has_plug_in = "retention" in system
    return lambda settings: reference_of_release(release, settings, has_plug_in)[0]


def reference_of_release(
    release: Release,
    settings: Settings,
    has_plug_in: bool = False,
    is_scheduled: bool = False,
    new: Callable[[Settings, Choices], M] = Manager,  # type: ignore[assignment]  # of the managers, the plain one
) -> tuple[M, Modelled]:
    """The same for a release, with or without the plug-in, and driven by its scheduler or not; ``new`` makes it."""
    fixed = fixes(settings, release) if has_plug_in else frozenset()
    choices = choices_of_release(with_plug_in(release, settings) if has_plug_in else release, settings)
    choices = scheduled(choices, release.scheduler) if is_scheduled else choices
    return _reference(_with_ids(release.findings - fixed), choices, release.label, settings, new=new)


@frozen
class Live:
    """What a live system is compared with."""

    settings: Settings
    """What the system makes of the settings that it was given."""
    choices: Choices
    known: Modelled
    """The findings that a shadow can follow, and how often each acted."""
    counts_admitted: bool
    """Whether a look-up counts only if its request is admitted after it."""
    begins_blocks: bool
    """Whether the cache also has boundaries inside blocks, which no hit uses (finding 012): they are not followed."""


def live_reference(settings: Settings, system: str, version: str) -> Live:
    """What the live ``system`` is compared with; of a version that is not known, the one that is described."""
    described = release_of(system) or INSTALLED
    wanted = (described.system, version)
    release = next((each for each in RELEASES.values() if (each.system, each.version) == wanted), described)
    fixed = fixes(settings, release) if "retention" in system else frozenset()
    those = [finding for finding in _with_ids(release.findings - fixed) if finding.live]
    known, asked = _modelled(those, settings, None)
    counts_admitted = release.scheduler is not None and release.scheduler.counts_admitted
    choices = _with_findings(choices_of_release(release, settings), known, settings, release.label)
    inside = any(finding.where(settings) for finding in _with_ids(release.findings & {BEGINS_BLOCKS}))
    return Live(asked, choices, known, counts_admitted, inside)


def key_sizes_tokens(settings: Settings, system: str, version: str) -> list[int]:
    """Per group, how many tokens of a prefix more each block's key covers: its own, unless a finding says otherwise."""
    geometry, rules = settings.geometry, live_reference(settings, system, version).choices.rules
    grain, sizes = geometry.grain_tokens, [group.block_size_tokens for group in geometry.groups]
    # A prefix is its number of tokens here: settings of a recording may name blocks of millions of tokens.
    prefixes = range(grain, max(sizes, default=0) + 1, grain)
    return [rules.ask(content_up_to, geometry, index, prefixes, size)[1] for index, size in enumerate(sizes)]  # type: ignore[arg-type, misc]  # as above
