"""What the programs of this folder have in common: how they are called, and how they end.

Exit 2 for a request that makes no sense and 3 where a system under test is not here, each told in a line; 130 if
interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import NoReturn

from kvgate.kernel.errors import SystemUnavailableError, UsageError


def options_of(name: str, about: str | None) -> argparse.ArgumentParser:
    """A parser whose usage can be typed. ``about`` is shown as it is."""
    return argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def at_least_one(text: str) -> int:
    """A number of rounds, of processes, of whatever there has to be one of."""
    try:
        found = int(text)
    except ValueError:
        found = 0
    if found < 1:
        raise argparse.ArgumentTypeError(f"{text}: give at least 1")
    return found


def end_with(name: str, main: Callable[[], int | None]) -> NoReturn:
    """Run a program and end with its exit code, or with one line and the exit code for what went wrong."""
    try:
        sys.exit(main())
    except (UsageError, SystemUnavailableError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 3)
    except KeyboardInterrupt:
        sys.exit(130)
