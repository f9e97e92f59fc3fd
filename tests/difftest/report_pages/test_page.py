"""The page of a divergence.

Goal: a reader of the page sees what is wrong, needs nothing else for it, and is safe with any names. Method: pages of
faulty systems, read back with an HTML parser and a JSON parser; hostile names; the same page made twice.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from attrs import evolve

from kvgate.adapters.reference import Reference
from kvgate.kernel.models import load
from kvgate.levels.manager import Bench
from kvgate.report.page import views
from kvgate.report.page.pages import About, embedded, page
from kvgate.report.page.recording import record
from kvreference.content import Keys
from kvreference.operations import Arrive

from .stage import (
    ABOUT,
    ENDED,
    FULL,
    HOSTILE,
    PROMPT,
    TWICE,
    ForgetsTheWindow,
    HitsNothing,
    KeepsABlock,
    Raises,
    case_of,
    recorded,
)

VOID = {"meta", "input", "br", "link", "img"}


class Document(HTMLParser):
    """A page as a browser reads it: its elements with their attributes and texts; every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.open.pop(), f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        for tag in self.open:
            self.texts.setdefault(tag, []).append(data)

    def text(self, tag: str) -> str:
        """All texts inside elements of a kind."""
        return " ".join("".join(self.texts.get(tag, [])).split())

    def ids(self) -> set[str]:
        """The ids of all elements."""
        found = [attributes["id"] for _, attributes in self.elements if attributes.get("id")]
        assert len(found) == len(set(found))
        return {each for each in found if each is not None}


def data_of(text: str) -> Any:
    """The data that the page steps through."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.fixture(scope="module")
def shown() -> str:
    """A cache that is never hit."""
    recording, found = recorded(HitsNothing, TWICE)
    return page(recording, found, ABOUT)


def test_the_verdict_comes_first(shown: str) -> None:
    """In one sentence, with what was promised, and how to see it again."""
    document = Document(shown)
    assert [] == document.open
    assert "Request 1 is served 0 of its 12 tokens from the prefix cache; it should be 8." == document.text("h1")
    header = document.text("header")
    assert "KV-OP-01 promises: The hit length is the largest multiple of the alignment" in header
    assert "kvgate replay divergence-1.jsonl" in header


def test_every_part_is_there(shown: str) -> None:
    """The differences, the needs of a hit, the timeline, the steps, and the command."""
    document = Document(shown)
    assert {"difference", "resume", "timeline", "steps", "about", "data", "state", "slider"} <= document.ids()
    assert "waiting" not in document.ids()
    assert "a hit of 8 tokens" in document.text("section")
    # Every title that is referred to is there.
    referred = {attributes["aria-labelledby"] for _, attributes in document.elements if "aria-labelledby" in attributes}
    assert referred <= document.ids()


def test_the_operations_are_printed_with_both_answers(shown: str) -> None:
    """Where these differ."""
    listed = Document(shown).text("ol")
    assert "Request 0 arrives, prompt of 12 tokens: 0..11" in listed
    assert "reference: a hit of 8 tokens, blocks by group: [1..2], [4..5]system: a hit of 0 tokens" in listed


def test_the_data_is_what_was_recorded(shown: str) -> None:
    """Per operation both sides, and where they first differ."""
    data = data_of(shown)
    assert (0, 3, 4) == (
        data["first"],
        data["difference"],
        len(data["steps"]),
    )
    ours, theirs = data["steps"][1]["sides"]
    assert ours == theirs
    assert [[0, [1, 2, 3], 0], [0, [4, 5, 6], 0]] == ours["tables"]["0"]
    assert [1, 2, 3, 4, 5, 6] == data["blocks"]
    references, name, flags, holders = ours["blocks"][0]
    assert (1, [0, 0, 4], 0, [0]) == (references, data["names"][name], flags, holders)


def test_the_page_loads_nothing(shown: str) -> None:
    """No address, no file; and it says so itself, so that a browser would refuse."""
    document = Document(shown)
    assert "http" not in shown.replace("http-equiv", "")
    assert "@import" not in shown
    assert "url(" not in shown.replace("url(#tip)", "")
    linked = {
        value for _, attributes in document.elements for name in ("src", "href") if (value := attributes.get(name))
    }
    assert set() == linked
    policy = next(attributes["content"] for tag, attributes in document.elements if "http-equiv" in attributes)
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")


def test_its_own_script_is_the_only_one(shown: str) -> None:
    """The content policy names the hash of the script in the page."""
    scripts = re.findall(r"<script>(.*?)</script>", shown, re.DOTALL)
    assert 1 == len(scripts)
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in shown


def test_the_same_run_is_the_same_page(shown: str) -> None:
    """Nothing depends on the time or on the order of sets."""
    recording, found = recorded(HitsNothing, TWICE)
    assert shown == page(recording, found, ABOUT)


def test_hostile_names_are_text() -> None:
    """A model, a system, a file, a salt and an exception that would like to be markup."""
    arrival = Arrive(0, PROMPT, Keys(salt=HOSTILE))
    recording, found = recorded(Raises, (arrival, *TWICE[1:]))
    scheme = f"javascript:alert(1){HOSTILE}"
    about = About(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, scheme, scheme, scheme, (HOSTILE,))
    about = evolve(about, tested=HOSTILE, not_tested=(HOSTILE,))
    hostile = page(recording, found, about)
    document = Document(hostile)
    assert [] == document.open
    assert {"script"} == {tag for tag, _ in document.elements if tag in ("script", "img")}
    assert 2 == hostile.count("<script") == hostile.count("</script>")
    assert "49" not in document.text("dl")
    assert "ZeroDivisionError: </script><img src=x" in document.text("section")
    assert "ZeroDivisionError: </script><img src=x" in data_of(hostile)["steps"][3]["sides"][1]["answer"]
    links = [attributes["href"] for _, attributes in document.elements if attributes.get("href")]
    assert 3 == len(links)
    assert {"javascript%3Aalert%281%29%3C/script%3E"} == {str(link)[:38] for link in links}


def test_data_never_ends_its_script() -> None:
    """Any text comes back as it was."""
    assert not {"<", ">", "&", "\u2028"} & set(embedded([HOSTILE]))
    assert [HOSTILE] == json.loads(embedded([HOSTILE]))


def test_what_remains_is_listed() -> None:
    """Blocks that are never freed are the headline, and have no holder in the timeline."""
    recording, found = recorded(KeepsABlock, ENDED, FULL, ("leak",))
    leak = page(recording, found, ABOUT)
    document = Document(leak)
    assert "Every request has ended, and 1 block is still held." == document.text("h1")
    assert "left-behind" in document.ids()
    assert "block 1 counts a holder that no table names, operations 2 to 4" in leak
    assert 2 == data_of(leak)["difference"]


def test_an_agreement_has_a_page_too() -> None:
    """With nothing marked."""
    agreeing = page(record(Bench(Reference, ("lockstep",)), case_of(TWICE)), None, evolve(ABOUT, command=None))
    document = Document(agreeing)
    assert document.text("h1").startswith("No divergence: both sides agree after each of ")
    assert {"difference", "first", "command"}.isdisjoint(document.ids())
    assert None is data_of(agreeing)["difference"]
    assert "diverges" not in {name for _, each in document.elements for name in (each.get("class") or "").split()}


@pytest.mark.ci
def test_a_model_without_a_cache_has_a_page() -> None:
    """It has no block that could be free."""
    pytest.importorskip("vllm")
    from kvgate.levels.scheduler.level import SCHEDULER

    bench = SCHEDULER.bench_named("stock", SCHEDULER.gate)
    cases = (SCHEDULER.draw(load("full"), "tiny", str(number)) for number in range(100))
    case = next(case for case in cases if not case.settings.geometry.groups)
    assert "No divergence" in page(record(bench, case), None, evolve(ABOUT, command=None))


def test_a_divergence_that_does_not_come_again_says_so(shown: str) -> None:
    """The page shows how it went this time."""
    _, found = recorded(HitsNothing, TWICE)
    other = page(record(Bench(Reference, ("lockstep",)), case_of(TWICE)), found, ABOUT)
    assert "It did not happen again when this page was made." in Document(other).text("header")
    assert "did not happen again" not in shown


def test_content_is_described() -> None:
    """Which request had it first, and up to which token."""
    recording, found = recorded(ForgetsTheWindow, TWICE)
    document = Document(page(recording, found, ABOUT))
    assert "content of block 6" in document.text("h2")
    cards = document.text("p")
    assert "the first 12 tokens of request 0, group 1" in cards
    assert "not cached" in cards


def test_a_page_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of blocks and the size of a table have limits; those that differ stay, and the page says what is left
    out.
    """
    monkeypatch.setattr(views, "BLOCKS_MAX", 2)
    monkeypatch.setattr(views, "ENTRIES_MAX", 2)
    recording, found = recorded(KeepsABlock, ENDED, FULL, ("leak",))
    text = page(recording, found, ABOUT)
    data = data_of(text)
    assert 1 in data["blocks"]
    assert [1, [2, 3], 0] == data["steps"][1]["sides"][1]["tables"]["0"][0]
    assert "further blocks are left out here" in text
