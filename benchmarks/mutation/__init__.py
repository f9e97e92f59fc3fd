"""How much the tests of the reference notice: mutmut changes `kvreference` in small ways, and the tests must fail."""
