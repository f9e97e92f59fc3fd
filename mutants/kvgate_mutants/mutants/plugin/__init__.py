"""Mutants of the plug-in's own code: each is planted while the plug-in is in place, and is told like those of vLLM."""
