"""Designs that do not work, and why: z3 refutes them, with counterexamples that are run on the reference."""
