"""The formats of a report: printed to standard output, or all of them as the files of a report directory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kvgate.kernel.output import Format, TableFormat
from kvgate.report.document import Report, to_json
from kvgate.report.github import github_report, summary
from kvgate.report.junit import junit_report
from kvgate.report.text import show, text_report

FILES = {"report.txt": text_report, "verdict.json": to_json, "junit.xml": junit_report, "summary.md": summary}
"""The files of a report directory."""


def render(report: Report, output: Format | TableFormat) -> str:
    """The report in one format, with a final newline.

    In GitHub's format the job's summary is written as well, to the file that the environment names.
    """
    match output.value:
        case "json":
            return to_json(report)
        case "junit":
            return junit_report(report)
        case "github":
            return github_report(report, os.environ)
    return text_report(report)


def echo(report: Report, output: Format | TableFormat) -> None:
    """Print the report to standard output: text in colour, and as wide as the terminal, if it is one."""
    if output.value == "text" and sys.stdout.isatty():
        from rich.console import Console

        show(report, Console())
    else:
        sys.stdout.write(render(report, output))
        sys.stdout.flush()


def write(report: Report, directory: Path) -> tuple[Path, ...]:
    """Write the report in every format into ``directory``, which is made if need be; returns the files."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, rendered in FILES.items():
        path = directory / name
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.write(rendered(report))
        written.append(path)
    return tuple(written)
