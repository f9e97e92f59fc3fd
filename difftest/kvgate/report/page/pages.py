"""The pages of one verdict: one for each divergence, and one that leads to them.

What is shown on a page is a run, so every divergence is performed once more. A page that cannot be made is said to be
missing, and takes nothing else with it: the divergence counts for more.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from kvgate.adapters.registry import load_system
from kvgate.gate.level import Case
from kvgate.gate.story import checked, command_to_replay, describe, means
from kvgate.gate.verdict import Found, Verdict
from kvgate.kernel.comparison import hit_tokens_of
from kvgate.kernel.difference import Divergence
from kvgate.kernel.text import contrast, counted, printable
from kvgate.levels.registry import read
from kvgate.report.campaign import report_of
from kvgate.report.document import Report
from kvgate.report.page.chrome import trace_events
from kvgate.report.page.recording import Frame, Record, Recording, describe_content, perform
from kvgate.report.page.resume import ABOUT_CONTENT, resume
from kvgate.report.page.timeline import COLOURS, timeline
from kvgate.report.page.views import Look, Views, answered
from kvgate.report.page.wait_graph import WIDTH, drawing
from kvreference.answers import Refused
from kvreference.operations import Admit, LookUp, OfRequest, Schedule

if TYPE_CHECKING:
    from jinja2 import Environment

INDEX = "index.html"


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
    """The number of the divergence, and of how many."""
    trace: str | None = None
    """The name of the file next to the page that holds the operations."""
    chrome: str | None = None
    """The name of the file next to the page for a trace viewer."""
    index: str | None = None
    """The name of the page of all divergences."""
    claims: tuple[str, ...] = ()
    tested: str = ""
    not_tested: tuple[str, ...] = ()


@frozen
class Link:
    """What the first page says of one divergence, and where it leads to."""

    headline: str
    page: str
    files: tuple[tuple[str, str], ...]
    """Names of files next to the page, and what they are."""


@frozen
class Pages:
    """What was written, and what was not."""

    written: tuple[Path, ...]
    of: Mapping[int, Path]
    """The page of each divergence, by its index."""
    missing: tuple[str, ...]
    """A sentence for each page that could not be made."""


def write_pages(
    verdict: Verdict,
    directory: Path,
    record: Record | None,
    *,
    not_tested: Sequence[str] = (),
    reproducers: Mapping[int, Path] | None = None,
    files: Sequence[str] = (),
) -> Pages:
    """Write ``divergence-N.html`` and ``divergence-N.trace-events.json`` for each divergence, and ``index.html``.

    Without ``record``, which performs once more what was found, there is the last one alone.
    ``reproducers`` maps an index in ``verdict.found`` to its trace file; ``files`` are the names of the other reports
    in ``directory``.

    Raises:
        OSError: a file cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    traces_of = reproducers or {}
    report = report_of(verdict, not_tested, traces_of)
    written: list[Path] = []
    links: dict[int, Link] = {}
    missing: list[str] = []
    for index, found in enumerate(verdict.found[: len(report.found)]):
        if record is None:
            break
        name = f"divergence-{index + 1}"
        try:
            recording = record(found)
        except Exception as error:
            missing.append(f"{name}.html: the run could not be repeated: {type(error).__name__}: {error}")
            continue
        about = _about(report, verdict, index, name, traces_of.get(index))
        html, events = directory / f"{name}.html", directory / f"{name}.trace-events.json"
        _write(html, page(recording, found, about))
        _write(events, trace_events(recording, found.divergence, verdict.system, verdict.version))
        written += [html, events]
        more = () if about.trace is None else ((about.trace, "the operations"),)
        headline = headline_of(recording, found.divergence)
        links[index] = Link(headline, html.name, (*more, (events.name, "for a trace viewer")))
    first = directory / INDEX
    _write(first, index_page(report, links, files))
    return Pages((*written, first), {index: directory / link.page for index, link in links.items()}, tuple(missing))


def write_page(
    recording: Recording, found: Found | None, about: About, *, html: Path | None, chrome: Path | None
) -> None:
    """Write one run as a page, as trace events, or as both.

    Raises:
        OSError: a file cannot be written.
    """
    if html is not None:
        _write(html, page(recording, found, about))
    if chrome is not None:
        divergence = None if found is None else found.divergence
        _write(chrome, trace_events(recording, divergence, about.system, about.version))


def _about(report: Report, verdict: Verdict, index: int, name: str, reproducer: Path | None) -> About:
    """What the page of one divergence says of the run that it comes from."""
    case = verdict.found[index].case
    return About(
        system=verdict.system,
        version=verdict.version,
        model=case.model,
        preset=case.preset,
        seed=str(case.seed),
        command=None if reproducer is None else command_to_replay(reproducer, verdict.system, verdict.changed),
        title=f"divergence {index + 1} of {len(verdict.found)}",
        trace=None if reproducer is None else reproducer.name,
        chrome=f"{name}.trace-events.json",
        index=INDEX,
        claims=report.claimed,
        tested=report.circumstances_text(),
        not_tested=report.not_tested,
    )


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)


OPERATIONS_MAX = 300
"""How many operations are listed, the last ones."""
WHOLE_CHARACTERS_MAX = 300
"""How long two texts may be that are shown whole, next to each other."""


def draw(verdict: Verdict, file: Path, html: Path | None, chrome: Path | None) -> None:
    """Write what replaying ``file`` showed: the first divergence, or that there is none.

    Raises:
        OSError: a file cannot be written.
    """
    found = verdict.found[0] if verdict.found else None
    case = read(file).case if found is None else found.replayable
    # It is loaded, and its preloads were run: they are not run twice.
    system = load_system(verdict.system)
    report = report_of(verdict)
    about = About(
        system=verdict.system,
        version=verdict.version,
        model=case.model,
        preset=case.preset,
        seed=str(case.seed),
        command=command_to_replay(file, verdict.system, verdict.changed, instead=verdict.instead),
        title=f"divergence 1 of {len(verdict.found)}" if found is not None else "",
        claims=report.claimed,
        tested=report.circumstances_text(),
        not_tested=report.not_tested,
    )
    write_page(perform(system, verdict.detectors, case), found, about, html=html, chrome=chrome)


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
        means=() if found is None else tuple(means(found)) or (f"{found.anomaly.value}: {found.anomaly.meaning}",),
        checked="" if divergence is None else checked(divergence),
        difference=None if found is None else _difference(recording, found),
        drawing=drawing(recording),
        drawing_width=WIDTH,
        left_behind=_remains(recording, found),
        engine=None if found is None or found.driver is None else _engine(found.driver),
        resume=resume(recording, divergence),
        timeline=timeline(recording, views.blocks, views.blocks_left_out, diverges),
        operations=_operations(recording, diverges),
        operations_left_out=max(0, len(recording.operations) - OPERATIONS_MAX),
        colours=COLOURS,
        recording=recording,
        happened_again=divergence is None or divergence.kind in {each.kind for each in recording.divergences},
        data=embedded(views.document()),
    )


def _engine(case: Case) -> dict[str, Any]:
    """What was done to a scheduler, or to two, in words."""
    level, left_out = case.level, max(0, len(case.operations) - OPERATIONS_MAX)
    done = [printable(level.describe(operation), 300) for operation in case.operations[left_out:]]
    return {"stage": level.describe_stage(case.stage), "operations": done, "left_out": left_out}


def index_page(report: Report, links: Mapping[int, object], files: Sequence[str]) -> str:
    """A report as a page, with links to the pages of what was found."""
    return _render("index.html", report=report, links=links, files=files)


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
        pair = describe_content(ours) if ours else "not cached", describe_content(theirs) if theirs else "not cached"
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


def _remains(recording: Recording, found: Found | None) -> list[dict[str, str]]:
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


_BY_STATEMENT = {
    "KV-SYS-01": "A legal operation raises an exception.",
    "KV-SYS-02": "The scheduler's bookkeeping does not match what was done.",
    "KV-LIVE-01": "A request is never admitted.",
    "KV-LIVE-02": "A running request gets no token any more.",
    "KV-LIVE-03": "The scheduler hangs: it takes steps, and no request makes progress.",
    "KV-MEM-01": "A computed token would read memory that is not its own.",
    "KV-MEM-02": "A step has no slot for a token that it computes.",
    "KV-LEAK-01": "Every request has ended, and something of one remains.",
    "KV-LEAK-02": "Every request has ended, and something has grown for good.",
    "KV-OP-02": "A hit is served by another block than it should be.",
    "KV-OP-05": "The new blocks are not those that it was this request's turn to get.",
    "KV-OP-08": "What is cached is not what should be.",
    "KV-OP-09": "Two different contents pass for the same, or the same for two.",
    "KV-OP-10": "A block is still cached, or not, when it should be the other way round.",
    "KV-OP-12": "The KV events do not report what happened.",
    "KV-OP-13": "The prefix-cache statistics are wrong.",
    "KV-OP-15": "What is cached is not what a later request can resume from.",
}
_BY_FAMILY = {
    "KV-WORK": "The work of a step grows with what came before it.",
    "KV-LIVE": "A request makes no progress.",
    "KV-LEAK": "Every request has ended, and something remains.",
}


def headline_of(recording: Recording, divergence: Divergence | None) -> str:
    """What is wrong, in one sentence."""
    if divergence is None:
        operations = counted(len(recording.operations), "operation")
        return f"No divergence: both sides agree after each of {operations}."
    frame = next((frame for frame in recording.frames if frame.index == divergence.step), None)
    special = _of_blocks_held(divergence) if frame is None else _of_hit(frame) or _of_refusal(frame)
    statement, subject = divergence.difference.statement, printable(divergence.difference.subject, 80)
    return (
        special
        or _BY_STATEMENT.get(statement)
        or _BY_FAMILY.get(statement.rpartition("-")[0])
        or f"After operation {divergence.step}, the {subject} is not what it must be."
    )


def _of_blocks_held(divergence: Divergence) -> str | None:
    """Blocks that remain when every request has ended."""
    blocks, colon, _ = divergence.difference.got.partition(":")
    if divergence.difference.subject != "blocks held" or not (colon and blocks.isdigit()):
        return None
    return f"Every request has ended, and {counted(int(blocks), 'block is', 'blocks are')} still held."


def _of_hit(frame: Frame) -> str | None:
    """A hit that is too short, or too long."""
    operation = frame.operation
    if frame.reference is None or not isinstance(operation, (LookUp, Admit)):
        return None
    ours, theirs = hit_tokens_of(frame.reference.answer), hit_tokens_of(frame.system.answer)
    if ours is None or theirs is None or ours == theirs:
        return None
    tokens = frame.requests[operation.request].tokens if operation.request in frame.requests else None
    of = "" if tokens is None else f" of its {counted(tokens, 'token')}"
    should = "none" if ours == 0 else str(ours)
    return f"Request {operation.request} is served {theirs}{of} from the prefix cache; it should be {should}."


def _of_refusal(frame: Frame) -> str | None:
    """A request that is rejected, or admitted, and should not be."""
    if frame.reference is None or not isinstance(frame.operation, OfRequest):
        return None
    answers = frame.reference.answer, frame.system.answer
    if None in answers or frame.system.raised:
        return None
    ours, theirs = (isinstance(answer, Refused) for answer in answers)
    if ours == theirs:
        return None
    number, is_in = frame.operation.request, isinstance(frame.operation, Schedule)
    if theirs:
        return f"Request {number} is {'denied its next step' if is_in else 'rejected'}, although its blocks would fit."
    return f"Request {number} is {'given blocks' if is_in else 'admitted'}, although they do not fit."
