"""Ctrl-C while a command starts: one line and exit code 130, and no traceback of an import."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from kvgate.kernel.output import INTERRUPTED


@contextmanager
def starting(command: str) -> Iterator[None]:
    """Imports under this are not interrupted by an exception, which a library may swallow: the process ends at once.

    Nothing may have been begun that is to be ended. An interrupt that the process ignores stays ignored.
    """

    def end(*_signal: object) -> None:
        os.write(2, f"{command}: interrupted\n".encode())
        os._exit(INTERRUPTED)

    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, before)
