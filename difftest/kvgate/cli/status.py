"""``kvgate status``: what the shadows of a folder have seen, for a person."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from attrs import asdict

from kvgate.cli.options import TableOutput
from kvgate.kernel.errors import UsageError
from kvgate.kernel.output import TableFormat

if TYPE_CHECKING:
    from kvgate.shadow.status import Status

LINE_CHARACTERS_MAX = 500
LISTED_MAX = 10


def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the shadows.")] = Path("kvgate-shadow"),
    output: TableOutput = TableFormat.TEXT,
) -> None:
    """Print what the shadows of a server have seen, engine by engine.

    Exit 0 if nothing differs, stalls or is lost, 1 if anything does, 2 if DIR holds no status.

    Examples:

      kvgate status /tmp/shadow
    """
    from kvgate.kernel.text import printable
    from kvgate.shadow.status import is_fresh, read_all

    found = list(read_all(folder))
    if not found:
        raise UsageError(f"{folder}: no shadow has written a status there")
    if output is TableFormat.JSON:
        typer.echo(json.dumps([asdict(each) for each in found]))
    for each in found if output is TableFormat.TEXT else ():
        for line in describe(folder, each):
            typer.echo(printable(line, LINE_CHARACTERS_MAX))
    wrong = (
        each.differences or each.lost_blocks or each.raised or (each.stalled and is_fresh(folder, each))
        for each in found
    )
    raise typer.Exit(int(any(wrong)))


def describe(folder: Path, status: Status) -> Iterator[str]:
    """A status in lines: what the engine is, how its shadow stands, and what is wrong."""
    from kvgate.kernel.text import counted
    from kvgate.shadow.status import is_fresh

    index = "" if status.engine_index is None else f" {status.engine_index}"
    yield f"engine{index} ({status.engine}), {status.mode}" + (f", since {status.started}" if status.started else "")
    state = status.state if status.state == "ended" or is_fresh(folder, status) else "silent"
    what = {
        "watching": "watching",
        "waiting": "waiting for the next checkpoint",
        "ended": f"ended: {status.reason or 'for no known reason'}",
        "silent": f"no status for a while: is process {status.pid} on {status.host} still there?",
    }.get(state, state)
    yield f"  {what}" + (f"; written {status.written}" if status.written else "")
    written = f"{counted(status.bytes_written, 'byte')} written" if status.mode == "record" else ""
    checked = f"{counted(status.judged, 'call')} checked, {counted(status.differences, 'difference')}"
    yield f"  {counted(status.steps, 'step')}, {counted(status.calls, 'call')}, {written or checked}"
    missing = {"left out, the shadow was too slow": status.lost, "not written to disk": status.unwritten}
    missing |= {f"not checked: {why}": count for why, count in status.unjudged.items()}
    yield from (f"  {counted(count, 'call')} {why}" for why, count in missing.items() if count)
    if status.first:
        yield f"  first difference{f', {status.first_at}' if status.first_at else ''}: {status.first}"
    if status.raised:
        yield f"  raised: {status.raised}"
    if status.clocks_ended:
        yield f"  the stall clocks ended: {status.clocks_ended}; a request that hangs is not reported"
    for title, lines in (("lost", status.lost_blocks), ("stalled", status.stalled), ("see", status.dumps)):
        yield from (f"  {title}: {line}" for line in lines[:LISTED_MAX])
        if len(lines) > LISTED_MAX:
            yield f"  {title}: {len(lines) - LISTED_MAX} more"
    for finding, count in status.declared.items():
        yield f"  known finding {finding} acted {counted(count, 'time')}"
