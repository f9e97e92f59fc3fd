"""The block manager's blocks as a transition system: a pool of any size, any number of requests and copies.

It says what one block can go through, and nothing of which operation does what to how many. Its invariants are proved
by induction (``kvspec.proofs``); that the reference does nothing else, and with each operation what it is for, is
checked by ``kvspec.refinement``.
"""
