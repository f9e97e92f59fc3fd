"""Names and texts from outside on pages.

Goal: with any name of a model, a preset, a salt, an exception, a file or a finding, a page has the elements that it has
for plain names, and a browser would run no other script. Method: hostile words in every place that a page prints, in
each of the forms that HTML gives a meaning. What an HTML parser and an XML parser make of them, compared with plain
words.
"""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from attrs import evolve, field, mutable

from kvgate.adapters.reference import Reference
from kvgate.adapters.registry import Loaded
from kvgate.gate.verdict import Found, Tally, Verdict
from kvgate.kernel.output import Format
from kvgate.levels.manager import MANAGER, Bench
from kvgate.report.campaign import report_of
from kvgate.report.formats import render
from kvgate.report.page.chrome import trace_events
from kvgate.report.page.pages import write_pages
from kvgate.report.page.recording import once_more, record
from kvreference.answers import Answer
from kvreference.attention import Kind
from kvreference.content import Keys, Media
from kvreference.geometry import Geometry, Group
from kvreference.operations import Arrive, LookUp, Operation, Run
from kvreference.settings import Settings

PLAIN = "plain words 1"
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</title></style></textarea><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x=\'',
    "' autofocus onfocus='alert(1)",
    "javascript:alert(1)//",
    "--><svg/onload=alert(1)><!--",
    "]]><x:script xmlns:x='http://www.w3.org/1999/xhtml'>alert(1)</x:script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "{{ 7 * 7 }}{% include 'page.js' %}",
    "\u2028alert(1)\u202e<\x00script>",
)


class Raises(Reference):
    """No look-up succeeds; the exception has a given message."""

    words = PLAIN

    def apply(self, operation: Operation) -> Answer:
        if isinstance(operation, LookUp):
            raise ZeroDivisionError(self.words)
        return super().apply(operation)


@mutable
class Page(HTMLParser):
    """A page as a browser reads it."""

    text: str
    tags: Counter[str] = field(factory=Counter)
    attributes: Counter[tuple[str, str]] = field(factory=Counter)
    links: list[str] = field(factory=list)
    scripts: list[str] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        HTMLParser.__init__(self, convert_charrefs=True)
        self._in_script = False
        self.feed(self.text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes.update((tag, name) for name, _ in attrs)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action", "srcdoc")]
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_script = self._in_script and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data


def verdict_of(words: str) -> Verdict:
    """A verdict in which everything that can be called something is called ``words``."""
    kind = type("Words", (Raises,), {"words": words})
    arrival = Arrive(0, (Run(0, 12),), Keys(salt=words, lora=words, media=(Media(words, 1, 2),)))
    case = MANAGER.case(
        Settings(Geometry((Group(Kind.FULL, 4),)), blocks=12), (arrival, LookUp(0)), model=words, preset=words, seed=7
    )
    divergence = record(Bench(kind, ("lockstep",)), case).divergences[0]
    found = Found(divergence, case)
    declared = evolve(found, finding=words)
    tallies = (Tally(words, words, 2, 8),)
    detectors = ("lockstep", "ghost", "leak")
    return Verdict(words, words, words, 7, detectors, tallies, (found,), (declared,), (), 1.0, (words,), ended=words)


def rendered(words: str, name: str) -> str:
    """A report of that verdict."""
    return render(report_of(verdict_of(words), (words,)), Format(name))


def pages_of(words: str, folder: Path) -> dict[str, Page]:
    """The pages of that verdict."""
    verdict = verdict_of(words)
    folder.mkdir()
    again = once_more(Loaded(words, words, type("Words", (Raises,), {"words": words})), verdict.detectors)
    # A file's name holds no slash and no zero.
    trace = folder / words.translate({ord("/"): "_", 0: "0"})
    pages = write_pages(verdict, folder, again, not_tested=(words,), reproducers={0: trace}, files=(trace.name,))
    assert () == pages.missing
    return {path.name: Page(path.read_text(encoding="utf-8")) for path in pages.written if path.suffix == ".html"}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Page]:
    """The pages with plain names."""
    return pages_of(PLAIN, tmp_path_factory.getbasetemp() / "plain")


@pytest.mark.parametrize("words", HOSTILE)
def test_a_page_has_no_element_more(words: str, plain: dict[str, Page], tmp_path: Path) -> None:
    """Goal and method: as above; no new kind of element or attribute, no script, and no link that leads elsewhere."""
    for name, page in pages_of(words, tmp_path / "pages").items():
        usual = plain[name]
        assert set(page.tags) <= set(usual.tags)
        assert set(page.attributes) <= set(usual.attributes)
        assert not [name for _, name in page.attributes if name.startswith("on")]
        assert (usual.tags["script"], usual.tags["style"]) == (page.tags["script"], page.tags["style"])
        # The last one is the page's own; the one before it, if there is one, is data.
        assert usual.scripts[-1:] == page.scripts[-1:]
        assert all(isinstance(json.loads(data), dict) for data in page.scripts[:-1])
        assert len(usual.links) == len(page.links)
        assert not [link for link in page.links if ":" in link]


@pytest.mark.parametrize("words", HOSTILE)
def test_documents_stay_documents(words: str) -> None:
    """Goal: documents for programs have the same words, as words. Method: XML, JSON and trace events, read back."""
    usual, written = (ElementTree.fromstring(rendered(each, "junit")).iter() for each in (PLAIN, words))
    assert [element.tag for element in usual] == [element.tag for element in written]
    assert words == json.loads(rendered(words, "json"))["circumstances"]["system"]
    verdict = verdict_of(words)
    recording = record(Bench(Raises, ("lockstep",)), verdict.found[0].case)
    assert json.loads(trace_events(recording, verdict.found[0].divergence, words, words))["traceEvents"]


@pytest.mark.parametrize("words", HOSTILE)
def test_a_workflow_gets_no_command(words: str) -> None:
    """Goal: nothing in GitHub's log is a command but the gate's own. Method: words after a newline, and plain ones."""
    usual, written = (rendered(each, "github") for each in (PLAIN, f"{words}\n::error::{words}"))
    commands = [[line.partition(" ")[0] for line in text.splitlines()] for text in (usual, written)]
    assert commands[0] == commands[1]
    assert all(line.startswith("::") for line in written.splitlines())


def test_the_page_would_differ() -> None:
    """Goal: the comparison can fail. Method: a page in which words are markup."""
    fine, broken = (Page(f'<p title="{words}">{words}</p>') for words in (PLAIN, HOSTILE[2]))
    assert {"p"} == set(fine.tags)
    assert not set(broken.tags) <= set(fine.tags)
    assert [] == fine.links
    assert ["x"] == broken.links
    assert report_of(verdict_of(PLAIN)).found
