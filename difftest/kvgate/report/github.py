"""The report for GitHub Actions: annotations as workflow commands, and the job's summary in Markdown.

A workflow command is one line, so its text is percent-encoded as the runner decodes it:
https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kvgate.kernel.output import FAULT
from kvgate.kernel.text import counted, printable
from kvgate.report.document import Report, Section

ANNOTATIONS_MAX = 10
"""How many annotations of a kind GitHub shows for one step."""
MESSAGE_CHARACTERS_MAX = 4000
"""How long a message may be: the runner cuts those beyond 4096 characters."""
TITLE_CHARACTERS_MAX = 200
"""How long a title may be: the API that takes annotations rejects those beyond 255 characters."""
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
"""The environment variable that names the file of the job's summary."""

# What Markdown, GitHub's mentions, emoji, links and formulas, and HTML give a meaning.
_ACTIVE = frozenset("\\`*_{}[]<>()#!|&~@$:\"'")


def github_report(report: Report, environment: Mapping[str, str]) -> str:
    """The workflow commands. Appends the job's summary to the file that ``environment`` names, if it names one."""
    commands = [*_errors(report), *_notices(report)]
    path = environment.get(SUMMARY_VARIABLE)
    if path:
        try:
            with Path(path).open("a", encoding="utf-8", newline="\n") as file:
                file.write(summary(report))
        except OSError as error:
            commands.append(command("warning", "kvgate", f"the job summary was not written: {error}"))
    return "".join(f"{line}\n" for line in commands)


def command(name: str, title: str, message: str, file: str | None = None, line: int | None = None) -> str:
    """One workflow command; with a file it stands next to that line of the pull request."""
    short_title, short_message = printable(title, TITLE_CHARACTERS_MAX), message[:MESSAGE_CHARACTERS_MAX]
    where = "" if file is None else f"file={_escape_property(_in_workspace(file))},line={line or 1},"
    return f"::{name} {where}title={_escape_property(short_title)}::{_escape(short_message)}"


def _in_workspace(file: str) -> str:
    """The path as GitHub knows it: from the folder that was checked out, in which the command is run."""
    path = Path(file)
    return path.relative_to(Path.cwd()).as_posix() if path.is_relative_to(Path.cwd()) else file


def _errors(report: Report) -> Iterator[str]:
    total = len(report.found) + report.found_left_out
    shown = ANNOTATIONS_MAX if total <= ANNOTATIONS_MAX else ANNOTATIONS_MAX - 1
    for story in report.found[:shown]:
        yield command(story.severity, story.headline, story.brief or story.text, story.file, story.line)
    if total > shown:
        yield command("error", "kvgate", f"{report.outcome}; {counted(total - shown, report.found_noun)} not shown")
    if report.exit_code == FAULT:
        yield command("error", "kvgate", report.outcome)


def _notices(report: Report) -> Iterator[str]:
    """The outcome, and in one notice all known findings that were seen."""
    yield command("notice", "kvgate", report.outcome)
    if report.known_seen:
        yield command("notice", "kvgate, known findings seen", "\n".join(report.known_lines()))


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


def summary(report: Report) -> str:
    """The job's summary, in GitHub's Markdown."""
    return "".join(f"{line}\n" for line in _summary(report))


def _summary(report: Report) -> Iterator[str]:
    yield from (f"## kvgate: {plain(report.outcome)}", "", "### Claimed", "")
    yield from (f"- {plain(claim)}" for claim in report.claimed or ("nothing",))
    yield from ("", f"### {report.tested_title}", "", plain(report.circumstances_text()), "")
    for section in report.tested:
        if section.shown:
            yield from (*_section(section), "")
    yield from ("### Found", "")
    if report.agrees:
        yield from (report.nothing_found, "")
    for story in report.found:
        fence = _fence(story.text)
        yield from (plain(story.headline), "", f"{fence}text", story.text, fence, "")
    if report.more_found:
        yield from (report.more_found, "")
    if report.known_seen:
        yield from ("Known findings seen:", "", *(f"- {plain(line)}" for line in report.known_lines()), "")
    yield from ("### Not tested", "")
    yield from (f"- {plain(line)}" for line in report.not_tested)


def _section(section: Section) -> Iterator[str]:
    if section.title:
        yield from (plain(section.title), "")
    if section.visible:
        rows = (*section.rows, *([section.total] if section.total else []))
        yield from markdown_table(section, [list(map(plain, section.texts(row))) for row in rows])
    yield from map(plain, section.notes)


def markdown_table(section: Section, rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """The lines of a Markdown table: the visible columns of ``section``, and ``rows`` of Markdown."""
    yield f"| {' | '.join(column.name for column in section.visible)} |"
    yield f"|{'|'.join('--:' if section.is_number(column) else '---' for column in section.visible)}|"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def plain(text: str) -> str:
    """``text`` with no meaning in Markdown: an entity stands for itself and never for structure."""
    return "".join(f"&#{ord(character)};" if character in _ACTIVE else character for character in text)


def _fence(text: str) -> str:
    """A fence that no line of ``text`` closes."""
    fence = "```"
    while fence in text:
        fence += "`"
    return fence
