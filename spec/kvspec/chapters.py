"""The chapters of the specification, one mechanism each, as data: headings, rows of statements, links, code.

The constants here say what a chapter must look like. Whether it does is what ``tests/spec`` asks: this module
reads, and rejects only what it cannot read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from attrs import frozen

HOME = Path(__file__).parents[1]
"""Where the chapters are: in a clone of the repository. They are not part of the installed package."""

STATEMENTS = "Statements"
OPERATIONS, EXAMPLE, DIFFERENCES, BUGS = "Operations", "Worked example", "What vLLM does differently", "Known bugs"
HEADINGS = (
    "Purpose and scope",
    "Words",
    "State",
    STATEMENTS,
    OPERATIONS,
    EXAMPLE,
    DIFFERENCES,
    BUGS,
    "Not covered",
)
"""The headings of every chapter, in this order."""
KINDS = ("Safety", "Scaffolding")
"""The role of a statement: a user would notice if it did not hold, or others rest on it."""
PROOFS = "Proofs"
"""The heading, after the statements, below which stands what is proved of them."""
SYSTEMS = ("vLLM 0.20.2", "vLLM 0.22 and later", "vLLM-Ascend")
"""The systems whose differences a chapter lists, in this order."""
COLUMNS = ("operation", "precondition", "effect", "result", "errors")
"""The columns of the table of operations."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
_ROW = re.compile(r"\| \[(KV-[A-Z]+-\d\d)\]\(([^)]+)\) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|")


@frozen
class Link:
    """A link, as it is written."""

    text: str
    target: str


@frozen
class Row:
    """One statement in a chapter."""

    statement: str
    target: str
    """Where the id leads."""
    sentence: str
    evidence: str
    """The kinds of evidence there are, as ``kvspec.evidence`` words them."""
    implemented_by: str
    kind: str
    """One of ``KINDS``."""


@frozen
class Chapter:
    """One file, read."""

    file: str
    title: str
    headings: tuple[str, ...]
    """Of the second level, in order, as often as they stand there."""
    sections: Mapping[str, str]
    """Heading to text, code included."""
    rows: tuple[Row, ...]
    links: tuple[Link, ...]
    """Of the whole file, code apart."""

    @property
    def number(self) -> str:
        """The number that the file's name begins with."""
        return self.file.partition("-")[0]

    @property
    def name(self) -> str:
        """The prefix of the ids of its proofs: the file's name, without number and ending."""
        return self.file.partition("-")[2].removesuffix(".md")

    def programs(self) -> list[tuple[str, str]]:
        """Every block of Python, with the heading that it stands under."""
        return [
            (heading, code)
            for heading, text in self.sections.items()
            for language, code in _FENCE.findall(text)
            if language == "python"
        ]


def prose(text: str) -> str:
    """``text`` without its code blocks."""
    return _FENCE.sub("", text)


def links(text: str) -> tuple[Link, ...]:
    """The links in the prose of ``text``."""
    return tuple(Link(*found) for found in _LINK.findall(prose(text)))


def anchors(text: str) -> set[str]:
    """The anchors of a page: its headings, as they are spelled in a link, and its own anchors."""
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    spelled = {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}
    return spelled | set(re.findall(r'<a id="([^"]+)">', text))


def parse(file: str, text: str) -> Chapter:
    """The chapter that ``text`` is.

    Raises:
        ValueError: a heading stands there twice, or a row in a table of statements is not a statement.
    """
    # A number sign in a block of code begins no heading.
    masked = _FENCE.sub(lambda fence: re.sub(r"^#", ".", fence[0], flags=re.MULTILINE), text)
    found = list(re.finditer(r"^## (.+)$", masked, re.MULTILINE))
    headings = tuple(heading[1] for heading in found)
    if len(set(headings)) < len(headings):
        raise ValueError(f"{file} has a heading twice: {', '.join(headings)}")
    ends = [*(heading.start() for heading in found[1:]), len(text)]
    sections = {heading[1]: text[heading.end() : end].strip() for heading, end in zip(found, ends, strict=True)}
    title = masked.partition("\n")[0].removeprefix("# ").strip()
    return Chapter(file, title, headings, sections, _rows(file, sections.get(STATEMENTS, "")), links(text))


def _rows(file: str, section: str) -> tuple[Row, ...]:
    rows = []
    kind = ""
    for line in prose(section).splitlines():
        if line.startswith("### "):
            kind = line.removeprefix("### ")
        elif kind != PROOFS and line.startswith("|") and not line.startswith(("| id |", "|---")):
            found = _ROW.fullmatch(line)
            if found is None or kind not in KINDS:
                raise ValueError(f"{file}: no statement, or neither safety nor scaffolding: {line}")
            statement, target, sentence, evidence, implemented_by = found.groups()
            rows.append(Row(statement, target, sentence, evidence, implemented_by, kind))
    return tuple(rows)


def read_all(home: Path = HOME) -> tuple[Chapter, ...]:
    """All chapters, in their order.

    Raises:
        FileNotFoundError: there is none, because this is not a clone of the repository.
    """
    files = sorted(home.glob("[0-9][0-9]-*.md"))
    if not files:
        raise FileNotFoundError(f"no chapters in {home}: they are in a clone of the repository")
    return tuple(parse(file.name, file.read_text(encoding="utf-8")) for file in files)


def subsections(text: str) -> Mapping[str, str]:
    """The parts of a section under headings of the third level, by heading, in order."""
    parts = re.split(r"^### (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))


def table(text: str) -> list[list[str]]:
    """The cells of the tables in ``text``, headings first, without the rules between them."""
    lines = [line for line in prose(text).splitlines() if line.startswith("|") and not line.startswith("|--")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def items(text: str) -> list[str]:
    """The items of the lists in ``text``, each on one line."""
    found: list[str] = []
    for line in prose(text).splitlines():
        if line.startswith("- ") or line == "-":
            found.append(line[2:].strip())
        elif line.startswith("  ") and found:
            found[-1] = f"{found[-1]} {line.strip()}".strip()
    return found


def chapter_of(chapters: Iterable[Chapter]) -> Mapping[str, Chapter]:
    """Per statement, the chapter that states it."""
    return {row.statement: chapter for chapter in chapters for row in chapter.rows}
