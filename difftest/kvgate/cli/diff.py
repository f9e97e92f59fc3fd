"""``kvgate diff``: the first difference of two recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvgate.cli.options import TableOutput
from kvgate.kernel.output import TableFormat


def diff(
    one: Annotated[Path, typer.Argument(metavar="A", help="A recording of a shadow.", show_default=False)],
    other: Annotated[Path, typer.Argument(metavar="B", help="Another one.", show_default=False)],
    output: TableOutput = TableFormat.TEXT,
) -> None:
    """Compare two recordings call by call, and print the first difference.

    Two runs of the same requests should do the same. Where they part, a patch, a setting or a race shows. Times and
    checkpoints are left out; content is compared although each recording has a salt of its own. Where a recording has a
    gap, or no end, that is said: what is not there was not compared.

    Exit 0 if they are the same as far as they go, 1 if they differ.

    Examples:

      kvgate diff before/recording-20260101T000000-1-000000.kvrec after/recording-20260102T000000-7-000000.kvrec

      kvgate diff a.kvrec b.kvrec --format json
    """
    from kvgate.report.formats import echo
    from kvgate.report.recordings import report_of_contrast
    from kvgate.shadow.recording_diff import diff_recordings

    report = report_of_contrast(one, other, diff_recordings(one, other))
    echo(report, output)
    raise typer.Exit(report.exit_code)
