"""What ends a command before it has a verdict: each with one message that says what was wrong and what to do."""

from __future__ import annotations


class UsageError(Exception):
    """Bad usage, configuration or input; exit code 2."""


class SystemUnavailableError(Exception):
    """The system under test cannot be loaded; exit code 3."""
