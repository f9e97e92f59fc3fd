"""The entry point, ``kvgate`` or ``python -m kvgate.cli``: small, so that all other imports can be interrupted."""

from __future__ import annotations

import sys
from typing import NoReturn


def _interrupted() -> NoReturn:
    sys.stderr.write("kvgate: interrupted\n")
    sys.exit(130)


try:
    from kvgate.kernel.interruption import starting
except KeyboardInterrupt:
    _interrupted()


def main() -> None:
    """Import the command, and run it."""
    try:
        with starting("kvgate"):
            from kvgate.cli import app
        app.main()
    except KeyboardInterrupt:
        _interrupted()


if __name__ == "__main__":
    main()
