"""Progress on standard error: a live line on a terminal, a plain line every 15 seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

_PLAIN_EVERY_SECONDS = 15.0


class Line:
    """How far a command is, as one line of text."""

    def __init__(self, console: Console) -> None:
        # A name of a file is not markup.
        columns = SpinnerColumn(), TextColumn("{task.description}", markup=False)
        self._progress = Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal, redirect_stdout=False
        )
        self._task = self._progress.add_task("", total=None)
        self._next = time.monotonic() + _PLAIN_EVERY_SECONDS

    def say(self, text: str, at_once: bool = False) -> None:
        """Show ``text``: at once on a terminal, or if it must be; else only if the last line is not too recent."""
        self._progress.update(self._task, description=text)
        now = time.monotonic()
        if self._progress.disable and (at_once or now >= self._next):
            self._next = now + _PLAIN_EVERY_SECONDS
            self._progress.console.print(text, markup=False, highlight=False)

    def start(self) -> None:
        """Begin to show."""
        self._progress.start()

    def stop(self) -> None:
        """Leave the terminal as it was."""
        self._progress.stop()


@contextmanager
def progress_line() -> Iterator[Line]:
    """A progress line on standard error."""
    line = Line(Console(stderr=True))
    line.start()
    try:
        yield line
    finally:
        line.stop()
