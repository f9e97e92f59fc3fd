"""The pictures of the site, made anew: a terminal that finds a bug in a patch, the page of its report, the layers of
the code, hit rates over the size of the cache, and the timeline of a hang.

    python spec/website/pictures.py           # all of them: 2 min
    python spec/website/pictures.py layers hits hang

The terminal is rich's SVG of what `kvgate` printed, cut where it shows "…". The page is a screenshot by Chromium;
without one, it stays.
"""

from __future__ import annotations

import io
import json
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
README, PROJECT = FOLDER.parents[1] / "README.md", FOLDER.parents[1] / "pyproject.toml"
COLUMNS, PAGE_SIZE = 112, (1280, 900)
COMMAND = "kvgate check --preload my_patch.py --model swa --report out"
HITS = (
    "kvgate simulate agents --model dsv4-flash --arm ranges --blocks 4000 --blocks 8000 --blocks 16000 --blocks 32000 "
    "--blocks 64000 --policy dense --policy masked+scratch --plot plot"
)
HANG = "difftest/kvgate/findings/f023_parked_loads_leave_no_room/trace.jsonl"
OF_SYSTEM = 2
"""Whose blocks are drawn, as trace events number them: the system's, not the reference's."""
LAYER_WIDTH, LAYER_HEIGHT = 620, 34
_METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
"""Who drew a plot, and when."""
_FONT = re.compile(r"@font-face \{.*?\}", re.DOTALL)
"""rich's fonts come from elsewhere: the reader's own are used."""


def patch() -> str:
    """The patch that the first page shows."""
    found = re.search(r"<<'END'\n(.*?)END\n", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None, "the first page shows no patch"
    return found[1]


def run(command: str, folder: Path, code: int = 1) -> str:
    """What a command prints in ``folder``, with colours; a patch that is wrong makes it exit with 1."""
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
    ended = subprocess.run(
        [sys.executable, "-m", "kvgate.cli", *command.split()[1:]],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == code, f"{command} exited with {ended.returncode}"
    return ended.stdout.replace(f"{folder}/", "")


def layers() -> None:
    """The layers of the code, as their contract has them: each imports only what is below it."""
    listed = re.search(r"^layers = \[\n(.*?)^\]", PROJECT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert listed is not None, "the project has no contract of layers"
    rows = [row.split(" | ") for row in re.findall(r'"(.*?)"', listed[1])]
    body, height = [], len(rows) * LAYER_HEIGHT + 10
    for place, names in enumerate(rows):
        width = (LAYER_WIDTH - 20) / len(names)
        for column, name in enumerate(names):
            x, y = 10 + column * width, 10 + place * LAYER_HEIGHT
            body.append(f'<rect x="{x:.1f}" y="{y}" width="{width - 4:.1f}" height="{LAYER_HEIGHT - 6}" rx="4"/>')
            body.append(f'<text x="{x + width / 2 - 2:.1f}" y="{y + 18}">{name}</text>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LAYER_WIDTH} {height}" width="{LAYER_WIDTH}" '
        f'height="{height}" role="img"><title>The layers of kvgate: each imports only what is below it</title>'
        "<style>text{font:12.5px system-ui,sans-serif;text-anchor:middle;fill:#1c2430}rect{fill:#dfe7f1;stroke:#6b7480}"
        "</style>"
    )
    (FOLDER / "layers.svg").write_text("\n".join((head, *body, "</svg>", "")), encoding="utf-8")


def hits() -> None:
    """Hit rates over the size of the cache: what the plot of a simulation shows."""
    with tempfile.TemporaryDirectory() as name:
        run(HITS, Path(name), code=0)
        plot = (Path(name) / "plot" / "agents-hit-rate.svg").read_text(encoding="utf-8")
        (FOLDER / "hit-rate.svg").write_text(_METADATA.sub("", plot), encoding="utf-8")


def hang() -> None:
    """A hang: what each request waits for, and how many blocks are free, from the events of a trace."""
    with tempfile.TemporaryDirectory() as name:
        run(f"kvgate replay {HANG} --chrome {name}/events.json", FOLDER.parents[1], code=0)
        events = json.loads(Path(name, "events.json").read_text(encoding="utf-8"))["traceEvents"]
    states = [each for each in events if each.get("cat") == "request"]
    lanes = sorted({each["tid"] for each in states})
    ends = max(each["ts"] + each["dur"] for each in states)
    scale, top = (LAYER_WIDTH - 110) / ends, 12
    body = []
    for lane, tid in enumerate(lanes):
        y = top + lane * LAYER_HEIGHT
        body.append(f'<text x="10" y="{y + 18}" class="name">request {lane}</text>')
        for each in (each for each in states if each["tid"] == tid):
            x, width = 100 + each["ts"] * scale, each["dur"] * scale
            body.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width - 2:.1f}" height="26" rx="4" class="{each["name"]}"/>'
            )
            if width > len(each["name"]) * 8:
                body.append(f'<text x="{x + width / 2:.1f}" y="{y + 18}">{each["name"]}</text>')
    y, last = top + len(lanes) * LAYER_HEIGHT + 16, None
    body.append(f'<text x="10" y="{y}" class="name">free blocks</text>')
    for each in events:
        if each["ph"] == "C" and each["name"] == "free blocks" and each["pid"] == OF_SYSTEM and each["ts"] < ends:
            count = each["args"]["blocks"]
            if count != last:
                body.append(f'<text x="{104 + each["ts"] * scale:.1f}" y="{y}" class="name">{count}</text>')
            last = count
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LAYER_WIDTH} {y + 12}" width="{LAYER_WIDTH}" '
        f'height="{y + 12}" role="img"><title>Two loads hold all blocks, and the first cannot go on</title>'
        "<style>text{font:12.5px system-ui,sans-serif;text-anchor:middle;fill:#1c2430}.name{text-anchor:start}"
        "rect{fill:#dfe7f1;stroke:#6b7480}.loading{fill:#cfe8cf}.waiting{fill:#f6d7d0}svg{background:#fff}</style>"
    )
    (FOLDER / "hang.svg").write_text("\n".join((head, *body, "</svg>", "")), encoding="utf-8")


def first_page() -> None:
    """The terminal and the report."""
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


PICTURES = {"first-page": first_page, "layers": layers, "hits": hits, "hang": hang}

if __name__ == "__main__":
    for _name in sys.argv[1:] or PICTURES:
        PICTURES[_name]()
