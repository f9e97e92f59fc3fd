"""All that an allocator's own tests need to say."""

from __future__ import annotations

import kvgate.conformance
from examples.paged.adapter import CAPABILITIES, Adapter


def test_conforms() -> None:
    """Goal: the paged allocator does what the specification says. Method: in lockstep, its order followed."""
    report = kvgate.conformance.run(Adapter, models=["full"], operations=5_000, capabilities=CAPABILITIES)
    assert report.passed, report.text()
