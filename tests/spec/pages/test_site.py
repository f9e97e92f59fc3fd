"""The site: one command builds it from the pages, and it needs nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kvgate.kernel.data_file import read_csv

from .lints import SPEC

pytestmark = pytest.mark.ci

ROOT = SPEC.parent
SECONDS_MAX = 120
ENTRIES_MAX = 12
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""What a browser fetches by itself, by tag. A link to click on does not count."""


class Loads(HTMLParser):
    """Collects what a page makes a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "link" and attributes.get("rel") in ("canonical", "next", "prev"):
            return
        self.found += [attributes[name] or "" for name in (LOADED.get(tag, ""), "srcset") if name in attributes]


def loads(html: str) -> list[str]:
    """The resources that ``html`` makes a browser fetch."""
    parser = Loads()
    parser.feed(html)
    return parser.found


def foreign(name: str, text: str) -> list[str]:
    """The resources that a file of the site takes from elsewhere."""
    fetched = loads(text) if name.endswith(".html") else []
    if name.endswith((".css", ".html", ".svg")):
        fetched += re.findall(r"(?:url\(|@import\s)\s*[\"']?([^\"')\s;]+)", text)
    return [each for each in fetched if re.match(r"(?:https?:)?//", each)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as the first page says, strictly: a dead link or anchor is an error."""
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert finished.returncode == 0, finished.stderr
    return directory


def texts(site: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(site.rglob("*")):
        if path.suffix in {".html", ".css", ".svg", ".js"}:
            yield path.relative_to(site).as_posix(), path.read_text(encoding="utf-8")


def test_every_page_is_there(site: Path) -> None:
    """Goal: no page is forgotten. Method: the pages of the specification, the findings, README."""
    pages = [*SPEC.glob("*.md"), *(ROOT / "difftest" / "kvgate" / "findings").rglob("*.md"), ROOT / "README.md"]
    names = {page.relative_to(ROOT).with_suffix(".html").as_posix() for page in pages}
    expected = {re.sub(r"README\.html$", "index.html", name) for name in names}
    assert len(expected) > 20
    assert set() == {name for name in expected if not (site / name).is_file()}


def test_nothing_comes_from_elsewhere(site: Path) -> None:
    """Goal: it can be read without a network, and reports its readers to no server. Method: search what
    browsers fetch.
    """
    assert {} == {name: found for name, text in texts(site) if (found := foreign(name, text))}


def test_all_that_a_page_loads_is_there(site: Path) -> None:
    """Goal: no style is missing, no picture broken. Method: look every file up from the page that loads it."""
    missing = []
    for name, text in texts(site):
        for each in loads(text) if name.endswith(".html") and name != "404.html" else ():
            if not each.startswith("data:") and not ((site / name).parent / each.partition("?")[0]).is_file():
                missing.append((name, each))
    assert [] == missing


def test_a_data_file_is_a_table_that_can_be_searched(site: Path) -> None:
    """Goal: no row is left out of the site. Method: the rows of each data file against those of its page."""
    for name in ("difftest/mutants", "difftest/families", "spec/traceability", "benchmarks/headlines/TABLE"):
        text = (site / f"{name}.html").read_text(encoding="utf-8")
        table = text.partition('<div class="searchable">')[2].partition("</table>")[0]
        assert len(read_csv((ROOT / f"{name}.csv").read_text(encoding="utf-8"))) == table.count("<tr>") - 1, name
        assert "filter.js" in text


def test_issues_and_ids_are_links(site: Path) -> None:
    """Goal: a number leads to its thread, and an id to its sentence. Method: one of each kind, and code without any."""
    findings = (site / "difftest" / "kvgate" / "findings" / "index.html").read_text(encoding="utf-8")
    tutorial = (site / "docs" / "tutorial.html").read_text(encoding="utf-8")
    assert 'href="https://github.com/vllm-project/vllm/issues/44701">vllm#44701</a>' in tutorial
    assert 'href="https://github.com/vllm-project/vllm/issues/35219">#35219</a>' in findings
    assert 'href="https://github.com/vllm-project/vllm-ascend/issues/14055">vllm-ascend#14055</a>' in findings
    assert 'statements.html#kv-leak-02">KV-LEAK-02</a>' in findings
    assert 'href="f001_new_block_ids_never_drained/index.html">001-new-block-ids-never-drained</a>' in findings
    assert not re.search(r"<code>[^<]*<a [^>]*issues/", findings + tutorial)


def test_few_entries_lead_everywhere() -> None:
    """Goal: a reader can choose. Method: count the entries of the highest level."""
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    assert 5 < len(re.findall(r"^  - ", nav, re.MULTILINE)) <= ENTRIES_MAX


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.html", '<script src="https://cdn.example/a.js"></script>', ["https://cdn.example/a.js"]),
        ("a.html", '<link rel="stylesheet" href="//fonts.example/a">', ["//fonts.example/a"]),
        ("a.html", '<img src="http://example/a.png" alt="">', ["http://example/a.png"]),
        ("a.html", '<a href="https://example/">read</a><link rel="canonical" href="https://example/">', []),
        ("a.html", '<script src="../a.js"></script>', []),
        ("a.css", "@font-face{src:url('https://fonts.example/a.woff')}", ["https://fonts.example/a.woff"]),
        ("a.css", "a{background:url(data:image/png;base64,aa)}", []),
        ("a.svg", '<style>@import "https://fonts.example/a";</style>', ["https://fonts.example/a"]),
    ],
)
def test_what_comes_from_elsewhere_would_be_found(name: str, text: str, found: list[str]) -> None:
    """Goal: the search can fail, and does not without a reason. Method: one file of each kind."""
    assert found == foreign(name, text)


def test_a_dead_link_fails_the_build(tmp_path: Path) -> None:
    """Goal: strict is strict. Method: a site of one page with a dead anchor, built with this site's rules."""
    validation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("validation:")[2].partition("nav:")[0]
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A\n\n[b](#b)\n")
    (tmp_path / "mkdocs.yml").write_text(
        f"site_name: a\ntheme: {{name: mkdocs, highlightjs: false}}\nvalidation:{validation}"
    )
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert finished.returncode == 1
    assert "#b" in finished.stderr
