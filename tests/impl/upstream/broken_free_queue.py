"""A plug-in of pytest: vLLM with one mutant, in whichever tests it is loaded."""

from kvgate_mutants.mutants.registry import mutants_named

mutants_named(["taken-from-the-back"])[0].applied().__enter__()
