"""Progress on standard error.

Goal: a person sees progress, a log is not flooded, and standard output is left to the report. Method: a console that
writes into memory, and a clock that a test moves.
"""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from kvgate.kernel import progress
from kvgate.kernel.progress import Line, progress_line


class Clock:
    """Seconds that pass only on command."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that the module reads."""
    stopped = Clock()
    monkeypatch.setattr(progress, "time", stopped)
    return stopped


def test_a_log_gets_a_line_now_and_then(clock: Clock) -> None:
    """None at first: most commands are done by then. Names are not read as markup."""
    output = StringIO()
    line = Line(Console(file=output, force_terminal=False))
    line.start()
    for _ in range(40):
        line.say(f"[red]{clock.now:.0f}")
        clock.now += 1.0
    line.stop()
    assert ["[red]1015", "[red]1030"] == output.getvalue().splitlines()


def test_a_terminal_gets_a_line_that_moves() -> None:
    """At once; it is gone in the end, and names are not read as markup."""
    output = StringIO()
    line = Line(Console(file=output, force_terminal=True, width=80))
    line.start()
    line.say("loading [/my] …")
    line.stop()
    assert "loading [/my] …" in output.getvalue()
    # The cursor goes back to the line, which is erased.
    assert output.getvalue().endswith("\x1b[1A\x1b[2K")


def test_a_line_is_always_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the work it reports on fails."""
    stopped: list[bool] = []
    monkeypatch.setattr(Line, "stop", lambda _line: stopped.append(True))
    with pytest.raises(ZeroDivisionError), progress_line():
        raise ZeroDivisionError
    assert [True] == stopped
