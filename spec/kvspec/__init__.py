"""kvspec: the written specification, and its proofs.

``kvspec.proofs`` holds what is proved, by the chapters of ``spec/``; ``kvspec.registry`` lists it. The functions of the
reference run on unknown numbers (``symbolic``, ``prover``, ``proof_result``), and the transitions of the block pool are
proved by induction (``pool``). ``refinement`` checks that the reference takes no other steps. The rest reads the
chapters, writes into them what follows from the proofs, draws their pictures, and prints the page of the guarantees.
The table that leads from an id to its monitors and mutants is ``kvgate_mutants.traceability``: this package does not
import the gate.
"""
