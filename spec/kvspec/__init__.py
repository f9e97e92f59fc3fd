"""kvspec: the written specification, and its proofs.

``kvspec.proofs`` holds what is proved, one module per chapter of ``spec/``; ``kvspec.registry`` lists it. The functions
of the reference are run on unknown numbers (``symbolic``, ``paths``, ``prover``), and the transitions of the block pool
are proved by induction (``pool``). The rest reads the chapters and writes what follows from the proofs into them, draws
their pictures, and prints the page of the guarantees. What leads from an id to its monitors, tests and mutants is
``kvgate_mutants.traceability``: this package does not know the gate.
"""
