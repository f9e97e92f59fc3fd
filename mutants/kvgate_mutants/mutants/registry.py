"""The mutant sets: every mutant of each system, in the order in which they are listed and run."""

from __future__ import annotations

from collections.abc import Sequence

from kvgate.kernel.errors import UsageError
from kvgate_mutants.mutants import (
    allocation,
    answers,
    ascend,
    block_pool,
    hit_lookup,
    native_0_33_0,
    own_code,
    pair,
    release,
    work,
    worker,
    worker_0_23_0,
    worker_0_30_0,
)
from kvgate_mutants.mutants.mutant import Mutant, mutants_in
from kvgate_mutants.mutants.plugin import installing, junctions, metrics, partial_hits, pinned_tier, retention
from kvgate_mutants.mutants.scheduler import features, finishing, scheduler_output, scheduling, waiting

# No two mutants of a set have the same name.
BLOCK_MANAGER_MUTANTS = mutants_in((block_pool, hit_lookup, allocation, release, answers, work))
SCHEDULER_MUTANTS = mutants_in((scheduling, finishing, scheduler_output, waiting))
FEATURE_MUTANTS = features.FEATURE_MUTANTS
REFERENCE_MUTANTS = own_code.REFERENCE_MUTANTS
INDEPENDENT_MUTANTS = own_code.INDEPENDENT_MUTANTS
CHECKER_MUTANTS = own_code.CHECKER_MUTANTS
PAIR_MUTANTS = mutants_in((pair,))
WORKER_MUTANTS = mutants_in((worker,))
LATER_WORKER_MUTANTS = {"0.23.0": mutants_in((worker_0_23_0,)), "0.30.0rc2": mutants_in((worker_0_30_0,))}
"""By release of vLLM-Ascend."""
RELEASE_MUTANTS = {"native@0.33.0": native_0_33_0.MUTANTS, **ascend.MUTANTS}
"""By system, and by level."""
PLUGIN_MUTANTS = mutants_in((retention, junctions, pinned_tier, partial_hits, metrics, installing))


def mutants_named(names: Sequence[str]) -> list[Mutant]:
    """The mutants of vLLM's block manager with these names.

    Raises:
        UsageError: the mutant is unknown.
    """
    known = {mutant.name: mutant for mutant in BLOCK_MANAGER_MUTANTS}
    for name in names:
        if name not in known:
            raise UsageError(f"unknown mutant {name!r}; kvgate mutants --list lists them")
    return [known[name] for name in names]
