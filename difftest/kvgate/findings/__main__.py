"""``python -m kvgate.findings`` writes the table of the findings' page again, from the write-ups in their folders."""

from __future__ import annotations

from pathlib import Path

from kvgate.findings.register import FOLDER, folders, id_of

PAGE = FOLDER / "README.md"
_HEAD = "| id | guarantee | title | versions | upstream | status |\n|---|---|---|---|---|---|\n"


def row(folder: Path) -> str:
    """The row of a finding: the title of its write-up, and the row of the table below the title."""
    lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    title = lines[0].partition(": ")[2]
    guarantee, _, rest = lines[4].strip("| ").partition(" | ")
    return f"| [{id_of(folder.name)}]({folder.name}/README.md) | {guarantee} | {title} | {rest} |\n"


def page(text: str) -> str:
    """The page, with the rows of the findings that there are."""
    before, _, after = text.partition(_HEAD)
    rows = (row(FOLDER / name) for name in sorted(folders()))
    return f"{before}{_HEAD}{''.join(rows)}\n{after.partition(chr(10) * 2)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
