"""Mutants of the plug-in's own code: each is injected while the plug-in is in place, and is reported like those of
vLLM."""
