"""The page of one divergence: HTML that needs nothing but a browser.

Whatever is told comes from outside, and the template engine escapes it; the data that the page steps through is JSON in
which nothing can end the script that holds it. The page says itself that it loads nothing: its content policy lets in
its own style and its own script, by the script's hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from attrs import frozen

from kvgate.gate.story import describe, judged
from kvgate.gate.verdict import Found
from kvgate.kernel.difference import Divergence
from kvgate.kernel.text import contrast, printable
from kvgate.levels.pair.case import PairCase
from kvgate.levels.pair.describe import configured, done_to
from kvgate.levels.scheduler.case import EngineCase
from kvgate.report.contents import Contents
from kvgate.report.page.headlines import headline_of
from kvgate.report.page.looks import Look
from kvgate.report.page.recording import Recording
from kvgate.report.page.resume import ABOUT_CONTENT, resume
from kvgate.report.page.timeline import COLOURS, timeline, told
from kvgate.report.page.views import Views, answered
from kvgate.report.page.wait_graph import WIDTH, drawing

if TYPE_CHECKING:
    from jinja2 import Environment

OPERATIONS_MAX = 300
"""How many operations are listed, the last ones."""
WHOLE_CHARACTERS_MAX = 300
"""How long two texts may be that are shown whole, next to each other."""


@frozen
class About:
    """What a page says of the run that it comes from."""

    system: str
    version: str
    model: str
    preset: str
    seed: str
    command: str | None = None
    """What to paste in order to see it again."""
    title: str = ""
    """Which of how many divergences it is."""
    trace: str | None = None
    """The name of the file next to the page that holds the operations."""
    chrome: str | None = None
    """The name of the file next to the page for a trace viewer."""
    index: str | None = None
    """The name of the page of all divergences."""
    claims: tuple[str, ...] = ()
    tested: str = ""
    not_tested: tuple[str, ...] = ()


def page(recording: Recording, found: Found | None, about: About) -> str:
    """The whole page."""
    divergence = None if found is None else found.divergence
    views = Views(recording)
    # What is found at the end is shown at the last operation.
    diverges = None if divergence is None or divergence.operation is None else divergence.step
    return _render(
        "divergence.html",
        about=about,
        found=found,
        divergence=divergence,
        headline=headline_of(recording, divergence),
        judged="" if divergence is None else judged(divergence),
        difference=None if found is None else _difference(recording, found),
        drawing=drawing(recording),
        drawing_width=WIDTH,
        left_behind=_left_behind(recording, found),
        engine=None if found is None or found.engine is None else _engine(found.engine),
        resume=resume(recording, divergence),
        timeline=timeline(recording, views.blocks, views.blocks_left_out, diverges),
        operations=_operations(recording, diverges),
        operations_left_out=max(0, len(recording.operations) - OPERATIONS_MAX),
        colours=COLOURS,
        recording=recording,
        happened_again=divergence is None or divergence.kind in {each.kind for each in recording.divergences},
        data=embedded(views.document()),
    )


def _engine(case: EngineCase | PairCase) -> dict[str, Any]:
    """What was done to a scheduler, or to two, in words."""
    left_out = max(0, len(case.operations) - OPERATIONS_MAX)
    done = [printable(told, 300) for told in done_to(case)[left_out:]]
    return {"stage": configured(case), "operations": done, "left_out": left_out}


def index_page(contents: Contents, links: Mapping[int, object], files: Sequence[str]) -> str:
    """The page that leads to all others: the verdict, and what of it is told elsewhere."""
    return _render("index.html", contents=contents, links=links, files=files)


def _difference(recording: Recording, found: Found) -> dict[str, Any]:
    """What was expected and what was got, with what differs between the two apart."""
    difference = found.divergence.difference
    expected, got = _in_words(recording, found.divergence) or (difference.expected, difference.got)
    if max(len(expected), len(got)) <= WHOLE_CHARACTERS_MAX:
        ours, theirs = printable(expected), printable(got)
    else:
        ours, theirs = contrast(expected, got)
    pairs = ((expected, ours, theirs), (got, theirs, ours))
    sides = [(printable(whole, 4000), _apart(shown, other)) for whole, shown, other in pairs]
    return {"subject": printable(difference.subject), "sides": sides}


def _in_words(recording: Recording, divergence: Divergence) -> tuple[str, str] | None:
    """Both answers in words, if it is the answers that differ; and what both say a block holds, if it is that."""
    subject = divergence.difference.subject
    frame = next((frame for frame in recording.frames if frame.index == divergence.step), None)
    if frame is None or frame.reference is None:
        return None
    pair: tuple[str, str] | None = None
    if subject.startswith("answer to "):
        pair = answered(frame.reference), answered(frame.system)
    elif subject.startswith(ABOUT_CONTENT):
        block = int(subject.removeprefix(ABOUT_CONTENT))
        ours, theirs = (Look(side).content(block) for side in (frame.reference, frame.system))
        pair = told(ours) if ours else "not cached", told(theirs) if theirs else "not cached"
    return pair if pair is not None and pair[0] != pair[1] else None


def _apart(text: str, other: str) -> tuple[str, str, str]:
    """What ``text`` begins with as ``other`` does, what it has for itself, and what both end with.

    Cut between words; where the two have little in common nothing is marked.
    """
    words, others = _words(text), _words(other)
    shorter = min(len(words), len(others))
    begin = next((index for index in range(shorter) if words[index] != others[index]), shorter)
    rest = shorter - begin
    end = next((index for index in range(rest) if words[-1 - index] != others[-1 - index]), rest)
    if 3 * (begin + end) < len(words):
        return text, "", ""
    stop = len(words) - end
    return "".join(words[:begin]), "".join(words[begin:stop]), "".join(words[stop:])


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|\W", text)


def _left_behind(recording: Recording, found: Found | None) -> list[dict[str, str]]:
    """Everything that remains at rest, if that is what was found."""
    if found is None or found.divergence.detector != "leak":
        return []
    remaining = [each for each in recording.divergences if each.detector == "leak"] or [found.divergence]
    return [
        {
            "subject": printable(each.difference.subject),
            "expected": printable(each.difference.expected),
            "got": printable(each.difference.got),
        }
        for each in remaining
    ]


def _operations(recording: Recording, diverges: int | None) -> list[dict[str, Any]]:
    """The operations as a list, with the answers where there are any."""
    frames = {frame.index: frame for frame in recording.frames}
    listed: list[dict[str, Any]] = []
    first = max(0, len(recording.operations) - OPERATIONS_MAX)
    for index, operation in enumerate(recording.operations[first:], start=first):
        frame = frames.get(index)
        ours = None if frame is None or frame.reference is None else answered(frame.reference)
        theirs = None if frame is None else answered(frame.system)
        listed.append(
            {
                "index": index,
                "told": printable(describe(operation), 300),
                "request": getattr(operation, "request", None),
                "ours": ours,
                "theirs": theirs,
                "diverges": index == diverges,
                "recorded": frame is not None,
            }
        )
    return listed


# Putting it together


def embedded(document: Any) -> str:
    """A document as JSON that can stand in a script: nothing in it is markup."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _render(template: str, **context: Any) -> str:
    style, script = _asset("page.css"), _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _environment().get_template(template).render(style=style, script=script, script_hash=digest, **context)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("kvgate.report.page", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["printable"] = printable
    return environment


@cache
def _asset(name: str) -> str:
    return resources.files("kvgate.report.page").joinpath("assets", name).read_text(encoding="utf-8")
