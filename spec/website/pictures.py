"""The pictures of the first page, made anew: a terminal that finds a bug in a patch, and the page of its report.

    python spec/website/pictures.py

The terminal is rich's SVG of what `kvgate` printed, cut where it shows "…". The page is a screenshot by Chromium;
without one, it stays.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

FOLDER = Path(__file__).parent
README = FOLDER.parents[1] / "README.md"
COLUMNS, PAGE_SIZE = 112, (1280, 900)
COMMAND = "kvgate check --preload my_patch.py --model swa --report out"
_FONT = re.compile(r"@font-face \{.*?\}", re.DOTALL)
"""rich's fonts come from elsewhere: the reader's own are used."""


def patch() -> str:
    """The patch that the first page shows."""
    found = re.search(r"<<'END'\n(.*?)END\n", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None, "the first page shows no patch"
    return found[1]


def run(command: str, folder: Path) -> str:
    """What a command prints in ``folder``, with colours; a patch that is wrong makes it exit with 1."""
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
    ended = subprocess.run(
        [sys.executable, "-m", "kvgate.cli", *command.split()[1:]],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 1, f"{command} exited with {ended.returncode}"
    return ended.stdout.replace(f"{folder}/", "")


def main() -> None:
    """Write both."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "my_patch.py").write_text(patch(), encoding="utf-8")
        printed = run(COMMAND, folder)
        console = Console(record=True, width=COLUMNS, file=io.StringIO())
        console.print(f"$ {COMMAND}", style="bold")
        story = printed[printed.index("Found") :].partition("known findings seen")[0]
        shown = f"{printed.splitlines()[0]}\n\n…\n\n{story.strip()}\n\n…"
        console.print(Text.from_ansi(shown))
        svg = console.export_svg(title="kvgate", unique_id="kvgate")
        (FOLDER / "terminal.svg").write_text(_FONT.sub("", svg), encoding="utf-8")
        browser = shutil.which("chromium") or shutil.which("google-chrome")
        if browser is None:
            print("no Chromium here: report.png stays as it is")
            return
        page = next((folder / "out").glob("divergence-*.html"))
        page.write_text(page.read_text(encoding="utf-8").replace(f"{folder}/", ""), encoding="utf-8")
        size = ",".join(map(str, PAGE_SIZE))
        options = [
            "--headless",
            "--no-sandbox",
            "--hide-scrollbars",
            f"--window-size={size}",
            f"--screenshot={folder}/a.png",
        ]
        subprocess.run([browser, *options, page.as_uri()], check=True, capture_output=True)
        shutil.copy(folder / "a.png", FOLDER / "report.png")


if __name__ == "__main__":
    main()
