"""The four defects of ``difftest/examples/pages``, on the real vLLM, and in a browser if one is installed.

Goal: a leak, a hang, a foreign hit and a hit of nothing can each be read off one page. Method: draw them, and look for
what a reader must see; let a headless browser run the page's script, without a network.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .test_page import Document

if TYPE_CHECKING:
    from tests.fork_server import ForkServer

pytestmark = pytest.mark.ci

DRAW = Path(__file__).parents[3] / "difftest" / "examples" / "pages" / "draw.py"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SEEN = {
    "leak": (
        "Every request has ended, and 5 blocks are still held.",
        "What remains after every request has ended",
        "manager.coordinator.single_type_managers[1].req_to_blocks",
    ),
    "hang": (
        "The scheduler hangs: it takes steps, and no request makes progress.",
        "Request 0 can never run: its 150 tokens need 10 blocks, and the pool has 4.",
        "Submit request 0: a prompt of 150 tokens, at most 5 answers",
    ),
    "foreign-hit": (
        "Request 1 is served 16 of its 17 tokens from the prefix cache; it should be none.",
        "The system serves it all the same, from block 1, which holds the first 16 tokens of request 0, group 0.",
        "salt and adapter ('tenant-1', None)",
    ),
    "no-hit": (
        "Request 1 is served 0 of its 65 tokens from the prefix cache; it should be 32.",
        "Everything that token 32 needs is cached on both sides: the system's look-up misses it.",
        "sliding window, 16 tokens a block, window 64, draft layer",
    ),
}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Path:
    """The folder of pages, written as the example's docstring says; in a process of its own, for it injects a fault."""
    folder = tmp_path_factory.mktemp("pages")
    finished = fork_server.run(str(DRAW), str(folder), timeout=300)
    assert 0 == finished.returncode, finished.stderr
    return folder


@pytest.mark.parametrize("name", SEEN)
def test_a_reader_sees_what_is_wrong(name: str, drawn: Path) -> None:
    """The headline, what follows, and a detail that only this page has."""
    page = (drawn / name / "divergence-1.html").read_text(encoding="utf-8")
    document = Document(page)
    headline, conclusion, detail = SEEN[name]
    assert headline == document.text("h1")
    assert conclusion in document.text("section")
    assert detail in document.text("section")
    assert "did not happen again" not in page


@pytest.mark.parametrize(
    ("name", "anomaly"),
    [("leak", "LEAK"), ("hang", "HANG"), ("foreign-hit", "WRONG ANSWER"), ("no-hit", "LOST HIT")],
)
def test_a_reader_sees_what_a_client_notices(name: str, anomaly: str, drawn: Path) -> None:
    """Under the headline, and on the page that links to it."""
    page = Document((drawn / name / "divergence-1.html").read_text(encoding="utf-8"))
    assert page.text("header").count(f"{anomaly}: ") == 1
    assert f". {anomaly}" in Document((drawn / name / "index.html").read_text(encoding="utf-8")).text("article")


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed: what its script draws was not looked at")
@pytest.mark.parametrize("name", SEEN)
def test_a_browser_shows_the_step(name: str, drawn: Path, tmp_path: Path) -> None:
    """The script runs under the page's own content policy, and shows the state at the first difference."""
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
    command += [f"--user-data-dir={tmp_path}", "--dump-dom", (drawn / name / "divergence-1.html").as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    _, _, state = shown.partition('id="state"')
    assert "After operation " in state
    assert '<h3 class="">' in state or "<h3>" in state
    assert "<noscript>" not in state
    assert ('class="differs"' in state) == (name != "hang")
