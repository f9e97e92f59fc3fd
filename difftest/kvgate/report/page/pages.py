"""The pages of one verdict: one for each divergence, and one that leads to them.

What is shown on a page is a run, so every divergence is performed once more. A page that cannot be made is said to be
missing, and takes nothing else with it: the divergence counts for more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from attrs import frozen

from kvgate.gate.story import command_to_replay
from kvgate.gate.verdict import Found, Verdict
from kvgate.report.contents import Contents, contents_of
from kvgate.report.page.chrome import trace_events
from kvgate.report.page.headlines import headline_of
from kvgate.report.page.recording import Recording
from kvgate.report.page.render import About, index_page, page

INDEX = "index.html"
Record = Callable[[Found], Recording]
"""Performs once more what was found."""


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
    contents = contents_of(verdict, not_tested, reproducers or {})
    written: list[Path] = []
    links: dict[int, Link] = {}
    missing: list[str] = []
    for index, told in enumerate(contents.told if record is not None else ()):
        assert record is not None, "without it nothing is shown"
        name = f"divergence-{index + 1}"
        try:
            recording = record(told.found)
        except Exception as error:
            missing.append(f"{name}.html: the run could not be repeated: {type(error).__name__}: {error}")
            continue
        about = about_found(contents, index, name)
        html, events = directory / f"{name}.html", directory / f"{name}.trace-events.json"
        _write(html, page(recording, told.found, about))
        _write(events, trace_events(recording, told.found.divergence, verdict.system, verdict.version))
        written += [html, events]
        more = () if about.trace is None else ((about.trace, "the operations"),)
        headline = headline_of(recording, told.found.divergence)
        links[index] = Link(headline, html.name, (*more, (events.name, "for a trace viewer")))
    first = directory / INDEX
    _write(first, index_page(contents, links, files))
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


def about_found(contents: Contents, index: int, name: str) -> About:
    """What the page of one divergence says of the run that it comes from."""
    verdict, told = contents.verdict, contents.told[index]
    command = None
    if told.reproducer is not None:
        command = command_to_replay(told.reproducer, verdict.system, verdict.preloads)
    return About(
        system=verdict.system,
        version=verdict.version,
        model=told.found.case.model,
        preset=told.found.case.preset,
        seed=str(told.found.case.seed),
        command=command,
        title=f"divergence {index + 1} of {len(verdict.found)}",
        trace=told.reproducer.name if told.reproducer is not None else None,
        chrome=f"{name}.trace-events.json",
        index=INDEX,
        claims=contents.claims,
        tested=contents.circumstances,
        not_tested=contents.not_tested,
    )


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
