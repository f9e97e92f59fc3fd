"""Write what is proved into the chapters, and what is not onto one page: ``python -m kvspec.chapter_proofs``.

Two things in a chapter follow from the registry: the evidence of every statement, and the table of proofs with what
they leave over. Both are written here and nowhere else, so neither can promise more than is proved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from kvreference.statements import STATEMENTS
from kvspec.chapters import HOME, Chapter, parse, read_all
from kvspec.evidence import ASSUMED, EXPLORED, LEFT, LEMMAS, WITHOUT, chapter_name, evidence, proofs_of
from kvspec.obligation import Obligation
from kvspec.registry import obligations
from kvspec.simulation import EFFECTS, SIMULATION, Row

BEGIN, END = "<!-- proofs: python -m kvspec.chapter_proofs -->\n", "<!-- end of proofs -->"

ROWS_MAX = 10
"""A longer table of proofs is folded, so that the text after it is still found."""


def proofs_in(chapter: Chapter, known: Mapping[str, Obligation] | None = None) -> list[Obligation]:
    """The proofs that belong to ``chapter``: those whose ids begin with its name."""
    every = obligations() if known is None else known
    return [each for each in every.values() if chapter_name(each) == chapter.name]


def lemmas_section() -> str:
    """The text between the marks of the first page: the facts that proofs of all chapters use."""
    return "\n".join(("", *_rows([each for each in obligations().values() if chapter_name(each) in LEMMAS]), ""))


def proofs_section(
    chapter: Chapter, known: Mapping[str, Obligation] | None = None, left: Mapping[str, str] = LEFT
) -> str:
    """The text between the marks: the proofs, then what they leave out of each statement."""
    proofs = proofs_in(chapter, known)
    rows = _folded(proofs) if len(proofs) > ROWS_MAX else _rows(proofs)
    simulation = _simulation() if chapter.name == SIMULATED_IN else ()
    return "\n".join(("", *rows, *_remainders(chapter, known, left), *simulation, ""))


SIMULATED_IN = "blocks-and-references"
"""The chapter that shows which transitions each operation consists of."""


def _simulation() -> Iterator[str]:
    """What each operation consists of: operations of which the same is so stand together."""
    alike: list[tuple[Row, list[str]]] = []
    for kind, row in SIMULATION.items():
        name = "a step in flight is over" if kind is type(None) else f"`{kind.__name__}`"
        found = next((names for other, names in alike if other == row), None)
        if found is None:
            alike.append((row, [name]))
        else:
            found.append(name)
    yield "What each operation consists of: what it calls of the kernel, with the transitions that this makes; what its"
    yield "request counts, or another node writes; the proofs that perform it as a whole, unless it is only tested; and"
    yield "the proofs by which the transitions may happen then. Of each proof the last part of its id is given."
    yield ""
    yield "| operation | calls | counts | as a whole | guards | left to tests |"
    yield "|---|---|---|---|---|---|"
    for row, names in alike:
        calls = (f"`{name.rpartition(':')[2]}`{_named(': ', EFFECTS[name])}" for name in row.calls)
        guards = {each for its in (*row.calls.values(), *row.counts.values()) for each in its} - {*row.whole}
        left = row.left or ("nothing" if row.whole else "that it calls nothing else, and the other guards")
        cells = (", ".join(names), "; ".join(calls) or "none", _named("", row.counts) or "nothing")
        yield f"| {' | '.join((*cells, _ids(row.whole) or 'tested', _ids(sorted(guards)) or 'none', left))} |"
    yield ""


def _named(before: str, transitions: Iterable[type]) -> str:
    names = ", ".join(each.__name__ for each in transitions)
    return before + names if names else ""


def _ids(proofs: Iterable[str]) -> str:
    return ", ".join(f"`{each.rpartition('.')[2]}`" for each in proofs)


def _folded(proofs: list[Obligation]) -> Iterator[str]:
    # The empty lines and the attribute are what makes GitHub and the site read the table as one.
    yield '<details markdown="1">'
    yield f"<summary>{len(proofs)} proofs</summary>"
    yield ""
    yield from _rows(proofs)
    yield "</details>"
    yield ""


def _rows(proofs: list[Obligation]) -> Iterator[str]:
    if not proofs:
        yield "No proof belongs to this chapter."
        yield ""
        return
    yield "| proof | reaches | shows | for |"
    yield "|---|---|---|---|"
    for each in proofs:
        reach = f"B: {each.bound}" if each.bound else each.tier.value
        yield f"| `{each.id}` | {_cell(reach)} | {_cell(each.title)} | {_links(each.statements)} |"
    yield ""


def _remainders(chapter: Chapter, known: Mapping[str, Obligation] | None, left: Mapping[str, str]) -> Iterator[str]:
    any_left = False
    for row in chapter.rows:
        proofs = proofs_of(row.statement, known)
        parts = []
        if elsewhere := [each.id for each in proofs if chapter_name(each) != chapter.name]:
            parts.append(f"more of it is shown by {', '.join(f'`{each}`' for each in elsewhere)}.")
        if proofs and left.get(row.statement):
            parts.append(f"left to tests: {left[row.statement]}.")
        if proofs and row.statement in ASSUMED:
            parts.append(f"assumed: {ASSUMED[row.statement]}.")
        if EXPLORED.get(row.statement):
            parts.append(f"B: explored in every state of tiny models: {EXPLORED[row.statement]}.")
        if parts:
            any_left = True
            sentence = " ".join(part[0].upper() + part[1:] for part in parts)
            yield f"- **{row.statement}**. {sentence}"
    if any_left:
        yield ""


def _links(statements: tuple[str, ...]) -> str:
    return ", ".join(f"[{each}](statements.md#{each.lower()})" for each in statements) or "other proofs"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _around_evidence(now: str) -> Callable[[re.Match[str]], str]:
    """The text before and after the evidence in a row, around the current one."""
    return lambda found: f"{found[1]}{now}{found[2]}"


def written(
    chapter: Chapter, text: str, known: Mapping[str, Obligation] | None = None, left: Mapping[str, str] = LEFT
) -> str:
    """``text``, which ``chapter`` was read from, with its evidence and its proofs as they are now.

    Raises:
        ValueError: the marks are not there.
    """
    before, after = _around(chapter.file, text)
    for row in chapter.rows:
        now = evidence(row.statement, proofs_of(row.statement, known), left)
        line = re.compile(rf"^(\| \[{row.statement}\]\([^)]+\) \| [^|]+ \| )[^|]+( \| )", re.MULTILINE)
        before = line.sub(_around_evidence(now), before)
    return f"{before}{BEGIN}{proofs_section(chapter, known, left)}{END}{after}"


def first_page_written(text: str) -> str:
    """``text`` of the first page, with the lemmas as they are now.

    Raises:
        ValueError: the marks are not there.
    """
    before, after = _around("README.md", text)
    return f"{before}{BEGIN}{lemmas_section()}{END}{after}"


def _around(file: str, text: str) -> tuple[str, str]:
    """The text before and after the marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{file} has no place for its proofs")
    return before, after


NOT_PROVED = "not-proved.md"
_NOT_PROVED_HEAD = """\
# What is not proved

Generated by `python -m kvspec.chapter_proofs`; a test fails when this page is stale.

Of every guarantee, what no proof for all sizes covers. All of it is tested (T), some of it in every state of tiny
models (B). That vLLM does what the reference does is tested, and never proved. What every proof takes for granted is
in [TRUST.md](../TRUST.md).
"""


def not_proved() -> str:
    """The page of what is not proved: of each guarantee, and beyond the bound of each proof that has one."""
    rows = [
        f"| {_links((statement,))} | {evidence(statement, proofs_of(statement))} | {_cell(left)} |"
        for statement in STATEMENTS
        if (left := LEFT.get(statement) or WITHOUT.get(statement))
    ]
    bounds = [f"| `{each.id}` | {_cell(each.bound)} |" for each in obligations().values() if each.bound]
    parts = (
        _NOT_PROVED_HEAD,
        "| guarantee | evidence | not proved |",
        "|---|---|---|",
        *rows,
        "",
        "## What is assumed",
        "",
        "Of those with whom a block manager and its scheduler work.",
        "",
        "| guarantee | assumed |",
        "|---|---|",
        *(f"| {_links((statement,))} | {_cell(assumed)} |" for statement, assumed in ASSUMED.items()),
        "",
        "## Proofs with a bound",
        "",
    )
    return "\n".join((*parts, "| proof | proved up to |", "|---|---|", *bounds, ""))


def write(home: Path = HOME) -> None:
    """Write all chapters anew, the first page, and the page of what is not proved."""
    (home / NOT_PROVED).write_text(not_proved(), encoding="utf-8")
    for chapter in read_all(home):
        path = home / chapter.file
        text = path.read_text(encoding="utf-8")
        path.write_text(written(parse(chapter.file, text), text), encoding="utf-8")
    first = home / "README.md"
    first.write_text(first_page_written(first.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write()
