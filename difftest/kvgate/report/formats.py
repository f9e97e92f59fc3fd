"""The formats of a report, and the files of a report directory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from kvgate.gate.verdict import Verdict
from kvgate.report.contents import contents_of
from kvgate.report.github import github_report, summary
from kvgate.report.json_report import json_report
from kvgate.report.junit import junit_report
from kvgate.report.text import text_report

Format: TypeAlias = Literal["text", "json", "junit", "github"]

FILES = {"report.txt": text_report, "verdict.json": json_report, "junit.xml": junit_report, "summary.md": summary}
"""What a report directory holds."""


def render(
    verdict: Verdict,
    format_name: Format,
    *,
    not_tested: Sequence[str],
    reproducers: Mapping[int, Path],
    pages: Mapping[int, Path] | None = None,
) -> str:
    """The report in one format.

    ``reproducers`` maps an index in ``verdict.found`` to the trace file written for it, ``pages`` to the page.

    In GitHub's format the job's summary is written as well, to the file that the environment names.

    Raises:
        ValueError: there is no such format.
    """
    contents = contents_of(verdict, not_tested, reproducers, pages)
    match format_name:
        case "text":
            return text_report(contents)
        case "json":
            return json_report(contents)
        case "junit":
            return junit_report(contents)
        case "github":
            return github_report(contents, os.environ)
    raise ValueError(f"no report format {format_name!r}")


def write(
    verdict: Verdict,
    directory: Path,
    *,
    not_tested: Sequence[str],
    reproducers: Mapping[int, Path],
    pages: Mapping[int, Path] | None = None,
) -> tuple[Path, ...]:
    """Write the report in every format into ``directory``, which is made if need be; returns the files."""
    contents = contents_of(verdict, not_tested, reproducers, pages)
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, report in FILES.items():
        path = directory / name
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.write(report(contents))
        written.append(path)
    return tuple(written)
