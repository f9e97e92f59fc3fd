"""Mutants that re-introduce reported defects, where the published code that has them does not run here."""
