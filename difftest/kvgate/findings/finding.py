"""What a finding consists of: where a published system departs from a rule of the reference, and on what condition.

A finding is a difference between a published system and the reference that is understood and written up. Each has a
folder of its own in this package, which defines one ``FINDING``. It excuses nothing: its deltas are part of the
reference that the system is compared with (``kvgate.findings.modelled``), so everything else that differs is new.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeAlias

from attrs import frozen

from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvgate.monitors.slot_memory import Misread, WorkerMemory
from kvreference.rules import Delta
from kvreference.settings import Settings


class Engine(Protocol):
    """A scheduler on its block manager, at the point where it diverged; see ``kvgate.levels.scheduler.engine``."""

    settings: Settings
    lockstep: Lockstep
    stage: Any
    """What the scheduler is configured with."""
    followed: Any
    """The block manager, a ``Stock``."""
    answers_min: Any
    """By request, how many answers it must have."""
    memory: WorkerMemory
    encoder: Any
    """The check of the encoder, with what it keeps."""
    experts: Any
    """The experts that the worker keeps; None if they are not returned."""
    residency: Any
    """What is known of how often blocks were used; None if that is not measured."""
    progress: Any
    """The monitor of progress, with its wait-for graph ``waiting``."""
    sessions: Any
    """The sessions that its clients opened."""
    nodes: Any
    """The other nodes."""
    set_back: Any
    """By request, what a failed load sets back with the output that was taken last."""
    reusing: Any
    """The other requests that have blocks of it: how many tokens come before the first of them."""
    unfounded: Any
    """By request that was preempted since its step, what that step answers that follows from a failed load."""


ExplainsEngine: TypeAlias = Callable[[Divergence, Engine], bool]


@frozen
class Acts:
    """How a finding acts in one run."""

    deltas: Sequence[Delta] = ()
    """How it changes the reference's rules."""
    follow: Sequence[Delta] = ()
    """What follows from that, and is not counted."""
    without: Sequence[Delta] = ()
    """What rules would answer if it did not change the settings: it is counted where that differs."""
    misreads: Callable[[Misread], bool] = lambda _misread: False
    """Whether what a request reads from a wrong slot follows from it."""
    on_its_own: Callable[[Misread], bool] = lambda _misread: False
    """The same where no rule is asked that a delta is of."""
    unfollowed: Callable[[Misread], bool] | None = None
    """The same where the reference does not follow, so that no delta has noted anything; None: the same."""


@frozen
class Also:
    """Another guarantee that a finding violates in some of the cases in which a delta of it acts."""

    statement: str
    rule: str
    """The rule that the delta changes."""
    holds: Callable[..., bool]
    """In which cases: of the reference's answer, the delta's, and the arguments of the rule."""


@frozen(kw_only=True)
class Finding:
    """One finding."""

    id: str
    """``NNN-slug``; its folder has the same name as a Python package, ``fNNN_slug``."""
    rank: int
    """Deltas of one rule are applied in this order, each to what the ones before it have made of the rule."""
    statement: str
    """The guarantee that it violates."""
    also: Sequence[Also] = ()
    """Further guarantees that it violates, and when."""
    condition: str
    """What there must be for it to act, in a sentence."""
    where: Callable[[Settings], bool] = lambda _settings: True
    """The condition as far as settings decide it: elsewhere it is left out."""
    acts: Callable[[Settings, str], Acts] = lambda _settings, _release: Acts()
    """How it acts in a run with these settings, on the release of that name; called once for each run.

    They are the settings before its own change, and after those of the findings before it.
    """
    contains: Collection[str] = ()
    """The findings that its deltas contain, and that are left out where it applies."""
    on: Callable[[Any], bool] | None = None
    """The condition as far as the configuration of a scheduler decides it. None: it acts without a scheduler, too."""
    off: Callable[[Any], bool] = lambda _stage: False
    """With which configurations of a scheduler it does not act."""
    detector: str = "lockstep"
    """Which detector asks the rules that its deltas change."""
    holds: Callable[..., bool] = lambda *_arguments: True
    """The condition where a delta acts: of the reference's answer, the delta's, and the arguments of the rule."""
    settings: Callable[[Settings], Settings] | None = None
    """What it makes of the settings, if the system goes by others than it was given."""

    explains: Callable[[Divergence, Lockstep], bool] | None = None
    """The recogniser of what remains at the end, which no rule of the reference is about."""
    explains_engine: ExplainsEngine | None = None
    """The recogniser at the level of the scheduler, and of each node of a pair."""
    explains_tiers: Callable[[Divergence, Any], bool] | None = None
    """The same at the level of two tiers; see ``kvgate.levels.tiers.engine``."""
    goes_on: bool = False
    """Whether a run continues after ``explains_engine`` has recognised it."""
    live: bool = True
    """Whether a shadow, which knows no tokens but their digests, can follow it."""
    unrecognised: str = ""
    """Why nothing is recognised as this finding."""
