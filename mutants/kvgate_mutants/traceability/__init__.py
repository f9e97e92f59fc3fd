"""Traceability: from every guarantee to whatever says, proves, watches, tests and breaks it.

``python -m kvgate_mutants.traceability`` prints the page that is kept as ``spec/traceability.md``. What is linked is
read from where it is: the chapters, the registry of proofs, the judges of the explorer, the detectors of the gate, the
functions under ``tests/``, the mutants, the refuted designs, the findings. Nothing is listed by hand but the
exemptions.

A link says that something names a guarantee, and not that it covers all of it: how far proofs reach is told by the
chapters.
"""
