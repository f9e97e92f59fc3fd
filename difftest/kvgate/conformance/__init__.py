"""Conformance as one call: does a KV-cache allocator do what the specification says?

    import kvgate.conformance

    def test_conforms():
        report = kvgate.conformance.run(build, models=["full", "swa"])
        assert report.passed, report.text()

``build`` makes a system of given settings (see ``kvgate.kernel.protocol``). Nothing is raised: what goes wrong is in
the report.
"""

from __future__ import annotations

from kvgate.conformance.call import replay, run
from kvgate.conformance.capabilities import Capabilities
from kvgate.conformance.connector import check_connector
from kvgate.conformance.report import Report

__all__ = ["Capabilities", "Report", "check_connector", "replay", "run"]
