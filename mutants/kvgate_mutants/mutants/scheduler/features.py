"""The mutants of features.txt: small edits of vLLM's source where a scheduler's features meet."""

from __future__ import annotations

from importlib.resources import files

from kvgate_mutants.mutants.mutant import mutants_of

FEATURE_MUTANTS = tuple(mutants_of(files(__package__).joinpath("features.txt").read_text("utf-8"), "vllm.v1."))
