"""The ``kvgate`` command in a process of its own: for whoever needs several versions of vLLM, of which each process
has one for good.
"""

from __future__ import annotations

import subprocess
import sys

from attrs import frozen


@frozen
class Ended:
    """How a command ended."""

    code: int
    """See ``kvgate --help`` for exit codes."""
    output: str
    errors: str


def kvgate_apart(*arguments: str, seconds_max: float | None = None) -> Ended:
    """Run ``kvgate ARGUMENTS…``: ``kvgate_apart("replay", trace, "--sut", "native@0.23.0", "--format", "json")``.

    An interrupt reaches the command too, which ends as it would alone.

    Raises:
        TimeoutError: it takes longer than ``seconds_max``; it is ended.
    """
    command = [sys.executable, "-m", "kvgate.command.app", *arguments]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds_max)
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"kvgate {' '.join(arguments)}: not over after {seconds_max} s") from error
    return Ended(ended.returncode, ended.stdout, ended.stderr)
