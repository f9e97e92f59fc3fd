"""The corpus: real defects of published block managers, as cases that the gate must catch."""
