"""How a command ends and what it prints: the exit codes of all commands, and the formats of their output."""

from __future__ import annotations

from enum import Enum

AGREEMENT = 0
DIVERGENCE = 1
UNAVAILABLE = 3
"""The system under test is not here, or not what its adapter is for."""
NOT_EXHAUSTIVE = 4
"""Nothing was found, and the search stopped before it had seen everything."""
FAULT = 5
"""The gate itself failed, and nothing was found by then: this says nothing about the system under test."""
INTERRUPTED = 130


class Format(str, Enum):
    """How a report is printed."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    GITHUB = "github"


class TableFormat(str, Enum):
    """How a table is printed."""

    TEXT = "text"
    JSON = "json"
