"""A plug-in of pytest that plants one fault before anything else is imported: ``KVGATE_PLANT`` names it.

The faults are picked across what the gate is made of: the reference, the proofs, the plug-in, the gate's own checkers,
adapters, and vLLM under all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from attrs import frozen

from kvgate_mutants.mutants import hit_lookup, work
from kvgate_mutants.mutants.mutant import Mutant
from kvgate_mutants.mutants.plugin import retention
from kvgate_mutants.mutants.scheduler import scheduling

VARIABLE = "KVGATE_PLANT"
HYBRID = "gpt-oss-hybrid+eagle"
SPARSE = "mixed-blocks+retention=128+scratch"


@frozen
class Plant:
    """One fault, and how the gate is run to see it."""

    package: str
    says: str
    """The required output: the guarantee that the fault violates, or the outcome of the proof."""
    put: Callable[[], None]
    model: str = HYBRID
    sut: str = "stock"


def _replaced(target: str, broken: Any) -> Callable[[], None]:
    """Put ``broken`` in the place of ``module:name`` or ``module:Class.name``."""

    def put() -> None:
        module, _, path = target.partition(":")
        *outer, name = path.split(".")
        owner: Any = import_module(module)
        for each in outer:
            owner = getattr(owner, each)
        getattr(owner, name)
        setattr(owner, name, broken)

    return put


def _of_the_zoo(mutant: Mutant) -> Callable[[], None]:
    """A mutant that is never undone: the process ends with it."""

    def put() -> None:
        _KEPT.append(mutant.applied())
        _KEPT[-1].__enter__()

    return put


_KEPT: list[Any] = []


def _nothing_seen(*_arguments: Any) -> None:
    """The answer of a check that does not look."""


def _proved_as_it_is(obligation: Any, _mutant: Any) -> Any:
    """A prover that injects no mutant, and so finds that all of them survive."""
    return import_module("kvspec.prover").prove(obligation)


PLANTS = {
    "reference-window-a-token-short": Plant(
        "reference/kvreference",
        "KV-OP-06",
        _replaced("kvreference.attention:tokens_skipped", lambda computed, window: max(0, computed - window + 2)),
    ),
    "reference-counts-no-look-up": Plant(
        "reference/kvreference",
        "KV-OP-13",
        _replaced("kvreference.answers:Statistics.counted", lambda statistics, *_arguments, **_named: statistics),
    ),
    "spec-reads-a-token-less": Plant(
        "spec/kvspec",
        "KV-MEM-01",
        _replaced("kvspec.proofs.attention_kinds:reads", lambda _kind, _unknowns, at, position: position < at),
    ),
    "spec-proves-anything": Plant(
        "spec/kvspec", "is empty", _replaced("kvspec.proof_result:survives", _proved_as_it_is)
    ),
    "plug-in-knows-no-scratch": Plant(
        "impl/swa_retention",
        "KV-OP-17",
        _replaced("swa_retention.patches.free_queue:scratch_and_rest", lambda _pool, blocks: ([], blocks)),
        SPARSE,
        "retention",
    ),
    "plug-in-caches-what-nobody-reads": Plant(
        "impl/swa_retention", "KV-OP-15", _of_the_zoo(retention.all_blocks_are_read), SPARSE, "retention"
    ),
    "gate-ghost-looks-away": Plant(
        "difftest/kvgate", "KV-MEM-01", _replaced("kvgate.monitors.slot_memory:GhostMemory.observe", _nothing_seen)
    ),
    "gate-states-are-not-compared": Plant(
        "difftest/kvgate", "KV-OP-07", _replaced("kvgate.kernel.comparison:Comparison.of_states", _nothing_seen)
    ),
    "gate-adapter-forgets-drafts": Plant(
        "difftest/kvgate", "KV-OP-05", _replaced("kvgate.adapters.stock:Stock._follow", _nothing_seen)
    ),
    "vllm-look-ahead-not-dropped": Plant("vLLM", "KV-OP-01", _of_the_zoo(hit_lookup.look_ahead_not_dropped)),
    "vllm-all-blocks-hashed-again": Plant("vLLM", "KV-WORK-02", _of_the_zoo(work.all_blocks_hashed_again)),
    "vllm-last-come-first-served": Plant("vLLM", "KV-LIVE-01", _of_the_zoo(scheduling.last_come_first_served)),
}
"""Name to fault."""

if VARIABLE in os.environ:
    PLANTS[os.environ[VARIABLE]].put()
