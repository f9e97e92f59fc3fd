"""The report for GitHub Actions: annotations as workflow commands, and the job's summary in Markdown.

A workflow command is one line, so its text is percent-encoded as the runner decodes it:
https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from kvgate.kernel.text import counted, printable
from kvgate.report.contents import Contents

ANNOTATIONS_MAX = 10
"""How many annotations of a kind GitHub shows for one step."""
MESSAGE_CHARACTERS_MAX = 4000
"""How long a message may be: the runner cuts those beyond 4096 characters."""
TITLE_CHARACTERS_MAX = 200
"""How long a title may be: the API that takes annotations refuses those beyond 255 characters."""
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
"""The environment variable that names the file of the job's summary."""

# What Markdown, GitHub's mentions, emoji, links and formulas, and HTML give a meaning.
_ACTIVE = frozenset("\\`*_{}[]<>()#!|&~@$:\"'")


def github_report(contents: Contents, environment: Mapping[str, str]) -> str:
    """The workflow commands. Appends the job's summary to the file that ``environment`` names, if it names one."""
    commands = [*_errors(contents), *_notices(contents)]
    path = environment.get(SUMMARY_VARIABLE)
    if path:
        try:
            with Path(path).open("a", encoding="utf-8", newline="\n") as file:
                file.write(summary(contents))
        except OSError as error:
            commands.append(command("warning", "kvgate", f"the job summary was not written: {error}"))
    return "".join(f"{line}\n" for line in commands)


def command(name: str, title: str, message: str) -> str:
    """One workflow command."""
    short_title, short_message = printable(title, TITLE_CHARACTERS_MAX), message[:MESSAGE_CHARACTERS_MAX]
    return f"::{name} title={_escape_property(short_title)}::{_escape(short_message)}"


def _errors(contents: Contents) -> Iterator[str]:
    total = len(contents.verdict.found)
    shown = ANNOTATIONS_MAX if total <= ANNOTATIONS_MAX else ANNOTATIONS_MAX - 1
    for told in contents.told[:shown]:
        yield command("error", told.headline, told.brief)
    if total > shown:
        yield command("error", "kvgate", f"{contents.outcome}; {counted(total - shown, 'divergence')} not shown")


def _notices(contents: Contents) -> Iterator[str]:
    """The outcome, and in one notice all that is declared."""
    yield command("notice", "kvgate", contents.outcome)
    if contents.declared:
        yield command("notice", "kvgate, declared", "\n".join(contents.declared))


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


def summary(contents: Contents) -> str:
    """The job's summary, in GitHub's Markdown."""
    return "".join(f"{line}\n" for line in _summary(contents))


def _summary(contents: Contents) -> Iterator[str]:
    verdict = contents.verdict
    yield from (f"## kvgate: {_plain(contents.outcome)}", "", "### Claimed", "")
    yield from (f"- {_plain(claim)}" for claim in contents.claims or ("nothing",))
    yield from ("", "### Tested", "", _plain(contents.circumstances), "")
    yield from ("| model | preset | cases | operations |", "| --- | --- | ---: | ---: |")
    for tally in verdict.tallies:
        model, preset = _plain(printable(tally.model)), _plain(printable(tally.preset))
        yield f"| {model} | {preset} | {tally.cases} | {tally.operations} |"
    yield from (f"| all | | {verdict.cases} | {verdict.operations} |", "", "### Found", "")
    if not contents.told:
        yield from ("nothing that is not declared", "")
    for told in contents.told:
        fence = _fence(told.story)
        yield from (_plain(told.headline), "", f"{fence}text", told.story, fence, "")
    if contents.left_out:
        yield from (f"{counted(len(contents.left_out), 'divergence')} more, left out here", "")
    if contents.declared:
        yield from ("Declared:", "", *(f"- {_plain(line)}" for line in contents.declared), "")
    yield from ("### Not tested", "")
    yield from (f"- {_plain(line)}" for line in contents.not_tested or ("Whatever lies outside these cases.",))


def _plain(text: str) -> str:
    """``text`` with no meaning in Markdown: an entity stands for itself and never for structure."""
    return "".join(f"&#{ord(character)};" if character in _ACTIVE else character for character in text)


def _fence(text: str) -> str:
    """A fence that no line of ``text`` closes."""
    fence = "```"
    while fence in text:
        fence += "`"
    return fence
