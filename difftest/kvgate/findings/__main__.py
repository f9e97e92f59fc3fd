"""``python -m kvgate.findings`` writes the table of the findings again, from the write-ups in their folders."""

from __future__ import annotations

from pathlib import Path

from kvgate.findings.register import FOLDER, folders, id_of
from kvgate.kernel.data_file import csv_text

TABLE = FOLDER / "findings.csv"
COLUMNS = ("id", "guarantee", "title", "versions", "upstream", "status")


def row(folder: Path) -> tuple[str, ...]:
    """The row of a finding: the title of its write-up, and the row of the table below the title."""
    lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    title = lines[0].partition(": ")[2]
    guarantee, *rest = (cell.strip() for cell in lines[4].strip().strip("|").split(" | "))
    return id_of(folder.name), guarantee, title, *rest


def table() -> str:
    """The data file: a row for each finding that there is."""
    return csv_text(COLUMNS, (row(FOLDER / name) for name in sorted(folders())))


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
