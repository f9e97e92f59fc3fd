"""What is printed with rich, as plain text."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO

from rich.console import Console

WIDTH_CHARACTERS = 120


def plain(prints: Callable[[Console], None]) -> str:
    """What is printed on a console that has no colour."""
    console = Console(
        file=StringIO(), width=WIDTH_CHARACTERS, color_system=None, force_terminal=False, legacy_windows=False
    )
    with console.capture() as capture:
        prints(console)
    # Rich pads the cells of a table with spaces.
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())
