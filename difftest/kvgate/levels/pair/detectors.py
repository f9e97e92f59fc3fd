"""Who judges two nodes, by name."""

from __future__ import annotations

from kvgate.levels.scheduler import detectors

ACROSS = ("handover",)
"""What judges both nodes together, and no engine has: that what is read is held. Progress and leaks are judged on
each node and across them, under the names that they have on one."""
MONITORS = (*detectors.MONITORS, *ACROSS)
GATE = (*detectors.GATE, *ACROSS)
"""Everything that can find a defect of two nodes."""
