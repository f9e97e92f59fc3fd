"""The mutants of vLLM-Ascend from 0.23.0 on: edits of managers, coordinator, schedulers and AscendStoreConnector."""

from __future__ import annotations

from importlib.resources import files

from kvgate_mutants.mutants.mutant import Mutant, mutants_of


def _of(name: str) -> tuple[Mutant, ...]:
    return tuple(mutants_of(files(__package__).joinpath(f"{name}.txt").read_text("utf-8"), "vllm_ascend."))


MUTANTS = {
    "ascend@0.23.0": {level: _of(f"0_23_0_{level}") for level in ("blocks", "scheduler", "tiers")},
    "ascend-recompute@0.23.0": {"scheduler": _of("0_23_0_recompute")},
    "ascend@0.30.0rc2": {level: _of(f"0_30_0rc2_{level}") for level in ("blocks", "scheduler")},
}
"""By system, and by the level that shows them."""
