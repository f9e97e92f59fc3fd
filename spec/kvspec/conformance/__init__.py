"""Conformance: whatever the reference does to its blocks is a sequence of the transitions that the proofs are about.

The reference's pool is recorded (``recording``), its states are seen as states of ``kvspec.pool`` (``picture``), what
was recorded is told as transitions (``labels``), and these are run beside it (``follower``).
"""
