"""Mutants of two nodes: of their schedulers, and of the connector between them."""
