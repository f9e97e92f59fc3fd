"""kvspec: the written specification, and later its proofs.

Here so far: the guarantees by their ids, each with the function of the reference that says it, as a page that
``python -m kvspec`` prints. Not here yet: the chapters, the z3 modules that prove the formulas and the invariants, and
the matrix that leads from an id to its proof, monitor, tests and mutants. Nothing in this package proves anything.
"""
