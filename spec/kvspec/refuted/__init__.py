"""Designs that z3 refutes, each with a counterexample that is run on the reference."""
