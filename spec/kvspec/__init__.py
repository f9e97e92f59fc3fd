"""kvspec: the written specification, and later its proofs.

Here so far: what reads the chapters of ``spec/``, and the guarantees by their ids, each with its chapter and the
functions of the reference that say it, as a page that ``python -m kvspec`` prints. Not here yet: the z3 modules that
prove the formulas and the invariants, and the matrix that leads from an id to its proof, monitor, tests and mutants.
Nothing in this package proves anything.
"""
