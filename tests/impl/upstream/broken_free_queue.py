"""A plug-in of pytest: vLLM with one mutant, in whichever tests it is loaded."""

from kvgate_mutants.mutants.registry import mutants_named

# Kept: the mutant is undone when no reference to it remains.
BROKEN = mutants_named(["taken-from-the-back"])[0].applied()
BROKEN.__enter__()
