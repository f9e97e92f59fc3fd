"""Mutants of vLLM's scheduler: how it counts, whom it lets in, what it tells the worker, what becomes of transfers."""
