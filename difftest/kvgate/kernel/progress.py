"""Progress on standard error: a live line on a terminal, now and then a plain one elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

_PLAIN_EVERY_SECONDS = 15.0
_LIVE_EVERY_SECONDS = 0.2


class Line:
    """Says how far something is."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("") if console.is_terminal else None
        self._next = time.monotonic() + (0.0 if self._status else _PLAIN_EVERY_SECONDS)

    def say(self, text: str) -> None:
        """Show ``text`` now, if the last one is not too recent."""
        now = time.monotonic()
        if now < self._next:
            return
        if self._status is not None:
            # As it is: a name of a file is no markup.
            self._status.update(Text(text))
            self._next = now + _LIVE_EVERY_SECONDS
        else:
            self._console.print(text, markup=False, highlight=False)
            self._next = now + _PLAIN_EVERY_SECONDS

    def start(self) -> None:
        """Begin to show."""
        if self._status is not None:
            self._status.start()

    def stop(self) -> None:
        """Leave the terminal as it was."""
        if self._status is not None:
            self._status.stop()


@contextmanager
def progress_line() -> Iterator[Line]:
    """A progress line on standard error."""
    line = Line(Console(stderr=True))
    line.start()
    try:
        yield line
    finally:
        line.stop()
