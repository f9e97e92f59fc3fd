"""Simulation of serving, request by request: what hits, what is evicted, what is computed again."""
