"""Whether the reference with a finding's fault does what the system did, and the reference without it does not.

So another defect that violates the same guarantee is still a new divergence, even in the same run. If two findings act
in one step, the reference with the other fault takes the place of the reference itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from kvgate.adapters.release_variants import reference_for_release
from kvgate.findings.finding import Finding, LiveReference
from kvgate.findings.register import with_ids
from kvgate.kernel.comparison import Comparison, Correspondence
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvreference.answers import Answer, Hit
from kvreference.manager import Manager
from kvreference.settings import Settings


def explains(finding: Finding, divergence: Divergence, lockstep: Lockstep) -> bool:
    """Whether ``finding`` explains ``divergence``. ``lockstep`` is at the point where it diverged."""
    if not finding.applies_to(lockstep):
        return False
    if finding.explains is not None:
        return finding.explains(divergence, lockstep)
    if finding.fault is None:
        return False
    return explained_by(finding.fault, divergence, lockstep, finding.without, finding.together_with)


def explained_by(
    fault: type[Manager],
    divergence: Divergence,
    lockstep: Lockstep,
    without: type[Manager] = Manager,
    together_with: Collection[str] = (),
) -> bool:
    """Whether ``fault`` explains it, alone or with one of the findings that act in the same step."""
    if _replays_alone(fault, divergence, lockstep, without):
        return True
    others = (other for other in with_ids(together_with) if other.applies_to(lockstep))
    return any(_replay_together(other, fault, without, divergence, lockstep) for other in others)


def _replays_alone(
    fault: type[Manager], divergence: Divergence, lockstep: Lockstep, without: type[Manager] = Manager
) -> bool:
    happened = divergence.operation is not None
    return happened and replays(fault, lockstep) and not replays(without, lockstep)


def _replay_together(
    other: Finding, fault: type[Manager], without: type[Manager], divergence: Divergence, lockstep: Lockstep
) -> bool:
    """Whether both faults explain it, and neither the other one alone nor what ``fault`` is compared with does."""
    if other.explains_together is not None:
        return other.explains_together(fault, without, divergence, lockstep)
    if other.fault is None:
        return False
    both = _with_fault(fault, other.fault)
    return _replays_alone(both, divergence, lockstep, other.fault) and not replays(without, lockstep)


def _with_fault(fault: type[Manager], base: type[Any]) -> type[Any]:
    return type(fault.__name__, (fault, base), {})


def replays(kind: type[Manager], lockstep: Lockstep) -> bool:
    """Whether a manager of ``kind`` can take the operations that the system took, and ends in the same state."""
    manager = reference_for_release(lockstep.system, kind)(lockstep.system.population.settings)
    ours: Answer | None = None
    for operation in lockstep.performed:
        if manager.population.resolve(operation) != operation:
            return False
        ours = manager.apply(operation)
    theirs, comparison = lockstep.answers[1], Comparison()
    return (
        ours is not None
        and theirs is not None
        and comparison.of_answers(operation, ours, theirs) is None
        and comparison.of_states(operation, manager.snapshot(), lockstep.system.snapshot()) is None
        and (lockstep.reference is None or _identities_fit(kind, lockstep, lockstep.reference))
    )


def _identities_fit(kind: type[Manager], lockstep: Lockstep, reference: Manager) -> bool:
    """Whether every identity that the system ever gave to a content stands for one content of a manager of ``kind``."""
    system = lockstep.system
    manager = reference_for_release(system, kind)(reference.settings)
    truth = reference_for_release(system)(reference.settings)
    truth._interned = reference._interned
    seen = Correspondence()
    for operation in lockstep.performed[:-1]:
        manager.apply(operation)
        truth.apply(operation)
        identities = lockstep.comparison.correspondence.theirs(truth.pool.cached.contents())
        for content, identity in zip(manager.pool.cached.contents(), identities, strict=True):
            if identity is not None and not seen.relate(content, identity):
                return False
    manager.apply(lockstep.performed[-1])
    return all(map(seen.relate, manager.pool.cached.contents(), lockstep.system.snapshot().contents))


def hits_whole_blocks(settings: Settings) -> bool:
    """Whether every hit ends at a block's end. If not, it is not vLLM's look-up that finds it."""
    return not any(group.copies for group in settings.geometry.groups)


# Live


def live_with(fault: type[Manager], live: LiveReference) -> Any:
    """A live reference in the same state, with a fault."""
    return live.seen_as(_with_fault(fault, type(live)))


def looks_up_with(fault: type[Manager]) -> Callable[[LiveReference, int, Hit], bool]:
    """Whether a live engine's hit is that of the reference with ``fault``."""
    return lambda live, number, hit: bool(live_with(fault, live)._hit(live.population[number]) == hit)
