"""The chapters: what they say is said once, in the reference's own words, and what they show was run.

A lint takes text and returns what is wrong with it. The same lints judge the chapters, a sound chapter made up here,
and that chapter with one thing broken.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from importlib import import_module
from pathlib import Path

import pytest

from kvgate.explorer.report import CLAIMED
from kvgate.runner import DETECTORS
from kvreference.statements import STATEMENTS
from kvspec import said_by
from kvspec.chapters import BUGS, EXAMPLE, HEADINGS, Chapter, Link, anchors, chapter_of, links, parse, prose, read_all

SPEC = Path(__file__).parents[2] / "spec"
REFERENCE = "../reference/kvreference/"
CHAPTERS = read_all()
PAGES = sorted(SPEC.glob("*.md"))
README = (SPEC / "README.md").read_text(encoding="utf-8")


# Lints


def headings_wrong(chapter: Chapter) -> list[str]:
    """Headings are the same in all chapters; one without content says so; the number is in title and name."""
    wrong = [f"{heading} says nothing" for heading, text in chapter.sections.items() if not text]
    if chapter.headings != HEADINGS:
        wrong.append(f"headings are {', '.join(chapter.headings)}")
    if not chapter.title.startswith(f"{chapter.number} "):
        wrong.append(f"{chapter.title} is not number {chapter.number}")
    return wrong


def statements_wrong(chapters: Iterable[Chapter], statements: Mapping[str, str] = STATEMENTS) -> list[str]:
    """Every statement once, word for word, under its anchor, with the functions that say it."""
    rows = [row for chapter in chapters for row in chapter.rows]
    stated = [row.statement for row in rows]
    wrong = [f"{each} is stated {stated.count(each)} times" for each in statements if stated.count(each) != 1]
    for row in rows:
        if row.statement not in statements:
            wrong.append(f"{row.statement} is no statement")
            continue
        if row.sentence != statements[row.statement]:
            wrong.append(f"{row.statement} must read: {statements[row.statement]}")
        if row.target != f"statements.md#{row.statement.lower()}":
            wrong.append(f"{row.statement} leads to {row.target}")
        functions = said_by.links(row.statement)
        watched = re.fullmatch(r"the gate's monitor `(\w+)`", row.said_by)
        if row.said_by != functions if functions else watched is None or watched[1] not in DETECTORS:
            wrong.append(f"{row.statement} must be said by: {functions or 'a monitor'}")
    return wrong


def evidence_wrong(chapters: Iterable[Chapter]) -> list[str]:
    """Kinds of evidence are known, in order, and nothing is called proved as long as nothing is."""
    found = {row.statement: row.tiers for chapter in chapters for row in chapter.rows}
    return [
        f"{statement}: {', '.join(tiers)}" for statement, tiers in found.items() if tiers not in {("T",), ("B", "T")}
    ]


def functions_missing(text: str) -> list[str]:
    """Code that a page names by a link is in the file that the link leads to."""
    return [link.text for link in links(text) if link.target.startswith(REFERENCE) and not _is_there(link)]


def _is_there(link: Link) -> bool:
    module = link.target.removeprefix(REFERENCE).removesuffix(".py").replace("/", ".")
    if link.text == "`reference/kvreference`":
        return True
    name = link.text.strip("`")
    if not name.startswith(f"{module}."):
        return False
    try:
        reduce(getattr, name.removeprefix(f"{module}.").split("."), import_module(f"kvreference.{module}"))
    except (ImportError, AttributeError):
        return False
    return True


def links_dead(text: str) -> list[str]:
    """Every relative link leads to a file, and to a place in it if it names one."""
    dead = []
    for link in links(text):
        file, _, anchor = link.target.partition("#")
        if "://" in file:
            continue
        path = SPEC / file
        if not path.is_file() or (anchor and anchor not in anchors(path.read_text(encoding="utf-8"))):
            dead.append(link.target)
    return dead


def example_wrong(chapter: Chapter) -> list[str]:
    """There is one worked example, it asks the reference, asserts, and holds."""
    programs = chapter.programs()
    wrong = [f"a program stands under {heading}" for heading, _ in programs if heading != EXAMPLE]
    if len(programs) != 1:
        return [*wrong, f"{len(programs)} programs"]
    tree = ast.parse(programs[0][1])
    nodes = list(ast.walk(tree))
    if not any(isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kvreference") for node in nodes):
        wrong.append("the example asks nothing of the reference")
    if not any(isinstance(node, ast.Assert) for node in nodes):
        wrong.append("the example asserts nothing")
    try:
        exec(compile(tree, f"{chapter.file}: {EXAMPLE}", "exec"), {"__name__": "example"})
    except Exception as error:
        lines = [] if error.__traceback__ is None else _lines(error, chapter)
        wrong.append(f"the example fails in line {lines[-1] if lines else 0}: {type(error).__name__}")
    return wrong


def _lines(error: Exception, chapter: Chapter) -> list[int]:
    """The lines of the example that an error passed through."""
    found = []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(chapter.file):
            found.append(trace.tb_lineno)
        trace = trace.tb_next
    return found


def numbers_strange(chapter: Chapter) -> list[int]:
    """Every number in the text of the example is a number in its code."""
    text = prose(chapter.sections.get(EXAMPLE, ""))
    told = re.findall(r"(?<![\w#.,-])(?:\d{1,3}(?:,\d{3})+|\d+)(?!\w)", text)
    nodes = [node for _, code in chapter.programs() for node in ast.walk(ast.parse(code))]
    known = {node.value for node in nodes if isinstance(node, ast.Constant)}
    return sorted({int(number.replace(",", "")) for number in told} - known)


def bugs_wrong(chapter: Chapter) -> list[str]:
    """Every known bug begins with the public thread that it is known from, under its own number."""
    items = re.findall(r"^- (.*)$", prose(chapter.sections.get(BUGS, "")), re.MULTILINE)
    thread = re.compile(r"\[([\w.-]+/[\w.-]+)#(\d+)\]\(https://github\.com/\1/(?:issues|pull)/\2\)[:,](?: .*)?")
    return [item for item in items if not thread.match(item)] if items else ["no bugs"]


def reading_order_wrong(readme: str, chapters: Iterable[Chapter]) -> list[str]:
    """The list of chapters is all of them, by title, in their order."""
    listed = [f"{number}. [{title}]({target})" for number, title, target in _listed(readme)]
    expected = [f"{int(each.number)}. [{each.title.partition(' ')[2]}]({each.file})" for each in chapters]
    return [] if listed == expected else [f"must list: {', '.join(expected)}"]


def _listed(readme: str) -> list[tuple[str, str, str]]:
    return re.findall(r"^(\d+)\. \[([^\]]+)\]\(([^)]+)\)", readme, re.MULTILINE)


# The chapters

each_chapter = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.number)
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@each_chapter
def test_headings(chapter: Chapter) -> None:
    """Goal: whoever knows one chapter knows where to look in all. Method: compare, in order."""
    assert [] == headings_wrong(chapter)


def test_every_statement_has_a_chapter() -> None:
    """Goal: what a chapter states is what the gate quotes and the functions do. Method: compare row by row."""
    assert [] == statements_wrong(CHAPTERS)


def test_evidence_is_told_apart() -> None:
    """Goal: nobody takes a test for a proof. Method: look at the kinds of evidence of every row."""
    assert [] == evidence_wrong(CHAPTERS)


def test_what_is_bounded_was_explored() -> None:
    """Goal: B is said only of what an explorer judges in every state. Method: compare with what its report claims.

    KV-LIVE-01 and KV-LIVE-02 are judged by the search of ``tests/reference/scheduler``.
    """
    claimed = {*re.findall(r"KV-[A-Z]+(?:-\d\d)?", " ".join(CLAIMED)), "KV-LIVE-01", "KV-LIVE-02"}
    bounded = [row.statement for chapter in CHAPTERS for row in chapter.rows if "B" in row.tiers]
    assert len(bounded) > 10
    assert [] == [each for each in bounded if not {each, each.rpartition("-")[0]} & claimed]


@each_page
def test_named_functions_are_there(page: Path) -> None:
    """Goal: whoever reads a name finds the code. Method: import and walk to it."""
    assert [] == functions_missing(page.read_text(encoding="utf-8"))


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    """Goal: no dead end. Method: every link of every page, places within pages included."""
    assert [] == links_dead(page.read_text(encoding="utf-8"))


@each_chapter
def test_worked_example(chapter: Chapter) -> None:
    """Goal: what a chapter shows is so. Method: run its program, which asserts the numbers."""
    assert [] == example_wrong(chapter)


@each_chapter
def test_numbers_of_the_example_are_its_programs(chapter: Chapter) -> None:
    """Goal: text and program tell one story. Method: every number in the text stands in the program."""
    assert [] == numbers_strange(chapter)


@each_chapter
def test_bugs_are_public(chapter: Chapter) -> None:
    """Goal: a reader can look a bug up. Method: every item begins with the link to its thread."""
    assert [] == bugs_wrong(chapter)


def test_reading_order() -> None:
    """Goal: the first page leads to every chapter. Method: compare titles and files, in order."""
    assert [] == reading_order_wrong(README, CHAPTERS)


def test_there_are_chapters_in_a_clone_only(tmp_path: Path) -> None:
    """Goal: an installed package says where the chapters are, instead of printing an empty page. Method: elsewhere."""
    with pytest.raises(FileNotFoundError, match="a clone of the repository"):
        read_all(tmp_path)


# The lints

KNOWN = {each: STATEMENTS[each] for each in ("KV-INV-03", "KV-LEAK-01")}
SOUND = f"""# 07 Something

## Purpose and scope

It is there, see [the list](statements.md#kv-inv-03) and [above](https://example.org/nowhere).

## Words

- **word**: one.

## State

- Kept in [`free_queue.FreeQueue`](../reference/kvreference/free_queue.py).

## Statements

### Safety

| id | statement | evidence | said by |
|---|---|---|---|
| [KV-LEAK-01](statements.md#kv-leak-01) | {KNOWN["KV-LEAK-01"]} | T | the gate's monitor `leak` |

### Scaffolding

| id | statement | evidence | said by |
|---|---|---|---|
| [KV-INV-03](statements.md#kv-inv-03) | {KNOWN["KV-INV-03"]} | B, T | {said_by.links("KV-INV-03")} |

## Operations

None.

## Worked example

Of 100,000 tokens 16 are in block 3.

```python
# ## Not a heading, and [not](a-link.md)
from kvreference.free_queue import FreeQueue

tokens = 100_000
assert [3, 16] == list(FreeQueue([3, 16]))
```

## What vLLM does differently

Nothing known.

## Known bugs

- [vllm-project/vllm#1](https://github.com/vllm-project/vllm/pull/1): gone.

## Not covered

The rest.
"""

LINTS: tuple[Callable[[Chapter, str], list[object]], ...] = (
    lambda chapter, _text: [*headings_wrong(chapter)],
    lambda chapter, _text: [*statements_wrong([chapter], KNOWN)],
    lambda chapter, _text: [*evidence_wrong([chapter])],
    lambda _chapter, text: [*functions_missing(text)],
    lambda _chapter, text: [*links_dead(text)],
    lambda chapter, _text: [*example_wrong(chapter)],
    lambda chapter, _text: [*numbers_strange(chapter)],
    lambda chapter, _text: [*bugs_wrong(chapter)],
)


def wrong(text: str) -> list[object]:
    """All that the lints find in a chapter of this text."""
    chapter = parse("07-something.md", text)
    return [fault for lint in LINTS for fault in lint(chapter, text)]


def test_a_sound_chapter_passes() -> None:
    """Goal: the lints do not find fault with everything. Method: a chapter made up for this; it is read rightly."""
    assert [] == wrong(SOUND)
    chapter = parse("07-something.md", SOUND)
    assert ["Safety", "Scaffolding"] == [row.kind for row in chapter.rows]
    assert dict.fromkeys(KNOWN, chapter) == chapter_of([chapter])


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("## Words\n", "## Terms\n", "headings are Purpose and scope, Terms, State,"),
        ("\n- **word**: one.\n", "", "Words says nothing"),
        ("# 07 Something", "# 08 Something", "08 Something is not number 07"),
        ("[KV-INV-03]", "[KV-INV-02]", "KV-INV-03 is stated 0 times"),
        ("[KV-INV-03]", "[KV-INV-02]", "KV-INV-02 is no statement"),
        ("[KV-INV-03]", "[KV-LEAK-01]", "KV-LEAK-01 is stated 2 times"),
        ("holds no block twice", "holds any block", "KV-INV-03 must read: The free queue holds no block twice,"),
        ("#kv-leak-01", "#kv-leak-02", "KV-LEAK-01 leads to statements.md#kv-leak-02"),
        ("_check_free_queue", "_check_pinned", "KV-INV-03 must be said by: [`snapshot._check_free_queue`]"),
        ("monitor `leak`", "monitor `drip`", "KV-LEAK-01 must be said by: a monitor"),
        ("| B, T |", "| P |", "KV-INV-03: P"),
        ("| B, T |", "| T, B |", "KV-INV-03: T, B"),
        ("FreeQueue`]", "FreeLine`]", "`free_queue.FreeLine`"),
        ("[`free_queue.", "[`settings.", "`settings.FreeQueue`"),
        ("kvreference/free_queue.py", "kvreference/free_line.py", "../reference/kvreference/free_line.py"),
        ("[the list](statements.md#kv-inv-03)", "[the list](statements.md#kv-inv-99)", "statements.md#kv-inv-99"),
        ("list(FreeQueue([3, 16]))", "list(FreeQueue([16, 3]))", "the example fails in line 5: AssertionError"),
        ("import FreeQueue", "import FreeLine", "the example fails in line 2: ImportError"),
        ("assert [3, 16] ==", "[3, 16] ==", "the example asserts nothing"),
        ("from kvreference.free_queue import", "from kvspec import chapters\nimport", "the example asks nothing of"),
        ("```python", "```text", "0 programs"),
        ("None.", "```python\nassert True\n```", "a program stands under Operations"),
        ("Of 100,000 tokens", "Of 100,001 tokens", 100_001),
        ("block 3.", "block 4.", 4),
        ("vllm/pull/1)", "vllm/pull/2)", "[vllm-project/vllm#1](https://github.com/vllm-project/vllm/pull/2): gone."),
        ("- [vllm-project/vllm#1]", "- Seen in [vllm-project/vllm#1]", "Seen in [vllm-project/vllm#1]"),
        ("- [vllm-project/vllm#1](https://github.com/vllm-project/vllm/pull/1): gone.", "None?", "no bugs"),
    ],
)
def test_a_broken_chapter_does_not(old: str, new: str, found: object) -> None:
    """Goal: every lint can fail. Method: break one thing in the sound chapter."""
    assert old in SOUND
    faults = wrong(SOUND.replace(old, new))
    assert any(fault == found or (isinstance(found, str) and str(fault).startswith(found)) for fault in faults), faults


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("## Words", "## State", "has a heading twice"),
        ("| [KV-LEAK-01]", "| KV-LEAK-01", "no statement, or neither safety nor scaffolding"),
        ("### Safety", "### Sanity", "no statement, or neither safety nor scaffolding"),
    ],
)
def test_what_cannot_be_read_is_refused(old: str, new: str, message: str) -> None:
    """Goal: a row that is not understood is not passed over. Method: two headings, a row without its link or kind."""
    with pytest.raises(ValueError, match=message):
        parse("07-something.md", SOUND.replace(old, new))


def test_a_wrong_reading_order_is_found() -> None:
    """Goal: a list that leaves one out, or has another title, is no list. Method: both."""
    chapter = parse("07-something.md", SOUND)
    assert [] == reading_order_wrong("7. [Something](07-something.md): it\n", [chapter])
    for listed in ("", "7. [Anything](07-something.md)\n", "8. [Something](07-something.md)\n"):
        assert ["must list: 7. [Something](07-something.md)"] == reading_order_wrong(listed, [chapter])
