"""Mutants of vLLM's scheduler: how it counts, which requests it admits, what it sends to the worker, what becomes of
transfers."""
