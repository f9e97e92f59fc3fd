"""The lints of ``lints``: a sound chapter passes, and with one thing broken it does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvreference.statements import STATEMENTS
from kvspec import implemented_by
from kvspec.chapter_proofs import BEGIN, END, written
from kvspec.chapters import Chapter, chapter_of, parse
from kvspec.obligation import Count, Obligation

from .lints import (
    evidence_wrong,
    example_wrong,
    functions_missing,
    numbers_strange,
    operations_wrong,
    proofs_wrong,
    statements_wrong,
)

KNOWN = {each: STATEMENTS[each] for each in ("KV-INV-03", "KV-LEAK-01")}
UNWRITTEN = f"""# 07 Something

## Purpose and scope

It is there, see [the list](statements.md#kv-inv-03) and [above](https://example.org/nowhere).

## Words

- **word**: one.

## State

- Kept in [`free_queue.FreeQueue`](../reference/kvreference/free_queue.py).

## Statements

### Safety

| id | statement | evidence | implemented by |
|---|---|---|---|
| [KV-LEAK-01](statements.md#kv-leak-01) | {KNOWN["KV-LEAK-01"]} | T | the gate's monitor `leak` |

### Scaffolding

| id | statement | evidence | implemented by |
|---|---|---|---|
| [KV-INV-03](statements.md#kv-inv-03) | {KNOWN["KV-INV-03"]} | P in part, B, T | {implemented_by.links("KV-INV-03")} |

### Proofs

By hand.

{BEGIN}{END}

## Operations

| operation | precondition | effect | result | errors |
|---|---|---|---|---|
| to take | none | less | one | [`free_queue.FreeQueue.pop`](../reference/kvreference/free_queue.py): `LookupError` |

## Worked example

Of 100,000 tokens 16 are in block 3.

![a row of blocks](pictures/07-something.svg)

```python
# ## Not a heading, and [not](a-link.md)
from kvreference.free_queue import FreeQueue

tokens = 100_000
assert [3, 16] == list(FreeQueue([3, 16]))
```

## What vLLM does differently

### vLLM 0.20.2

- Nothing known, of 77 things.

### vLLM 0.22 and later

- Nothing known.

### vLLM-Ascend

- Nothing known.

## Known bugs

- [vllm-project/vllm#1](https://github.com/vllm-project/vllm/pull/1): gone
  (KV-INV-03).

## Not covered

The rest.
"""
PROOF = Obligation(
    id="something.whole",
    statements=("KV-INV-03",),
    title="It holds.",
    unknowns={"length": Count()},
    claim=lambda unknowns: unknowns.length >= 0,
    witnesses={},
    mutants=(),
)
PROOFS = {PROOF.id: PROOF}
LEFT = {"KV-INV-03": "the rest"}
SOUND = written(parse("07-something.md", UNWRITTEN), UNWRITTEN, PROOFS, LEFT)

LINTS: tuple[Callable[[Chapter, str], list[object]], ...] = (
    lambda chapter, _text: [*statements_wrong([chapter], KNOWN)],
    lambda chapter, _text: [*evidence_wrong([chapter], PROOFS, LEFT)],
    lambda _chapter, text: [*functions_missing(text)],
    lambda chapter, _text: [*example_wrong(chapter)],
    lambda chapter, _text: [*numbers_strange(chapter)],
    lambda chapter, text: [*proofs_wrong(chapter, text, PROOFS, LEFT)],
    lambda chapter, _text: [*operations_wrong(chapter)],
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
        ("[KV-INV-03]", "[KV-INV-02]", "KV-INV-03 is stated 0 times"),
        ("[KV-INV-03]", "[KV-INV-02]", "KV-INV-02 is not a statement"),
        ("[KV-INV-03]", "[KV-LEAK-01]", "KV-LEAK-01 is stated 2 times"),
        ("holds no block twice", "holds any block", "KV-INV-03 must read: The free queue holds no block twice,"),
        ("#kv-leak-01", "#kv-leak-02", "KV-LEAK-01 leads to statements.md#kv-leak-02"),
        ("_check_free_queue", "_check_pinned", "KV-INV-03 must be implemented by: [`snapshot._check_free_queue`]"),
        ("monitor `leak`", "monitor `drip`", "KV-LEAK-01 must be implemented by: a monitor"),
        ("| P in part, B, T |", "| P, B, T |", "KV-INV-03: P, B, T"),
        ("| P in part, B, T |", "| B, T |", "KV-INV-03: B, T"),
        ("| P in part, B, T |", "| T, P in part, B |", "KV-INV-03: T, P in part, B"),
        ("By hand.", "", "the proofs are not described"),
        ("It holds.", "It always holds.", "stale, run: python -m kvspec.chapter_proofs"),
        ("| P | It", "| B: 3 | It", "stale, run: python -m kvspec.chapter_proofs"),
        ("Left to tests: the rest.", "", "stale, run: python -m kvspec.chapter_proofs"),
        (BEGIN, "", "07-something.md has no place for its proofs"),
        ("| result | errors |", "| answer | errors |", "columns are operation, precondition, effect, answer, errors"),
        ("| to take | none |", "| to take | |", "incomplete: to take"),
        ("`LookupError`", "`KeyError`", "to take: KeyError is raised nowhere"),
        ("[`free_queue.FreeQueue.pop`]", "[`free_queue.FreeQueue.append`]", "to take: LookupError is raised nowhere"),
        ("- **word**: one.", "- **word**: 12 of them.", 12),
        ("FreeQueue`]", "FreeLine`]", "`free_queue.FreeLine`"),
        ("[`free_queue.", "[`settings.", "`settings.FreeQueue`"),
        ("list(FreeQueue([3, 16]))", "list(FreeQueue([16, 3]))", "the example fails in line 5: AssertionError"),
        ("import FreeQueue", "import FreeLine", "the example fails in line 2: ImportError"),
        ("assert [3, 16] ==", "[3, 16] ==", "the example asserts nothing"),
        ("from kvreference.free_queue import", "from kvspec import chapters\nimport", "the example asks nothing of"),
        ("```python", "```text", "0 programs"),
        ("The rest.", "```python\nassert True\n```", "a program stands under Not covered"),
        ("Of 100,000 tokens", "Of 100,001 tokens", 100_001),
        ("block 3.", "block 4.", 4),
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
def test_what_cannot_be_read_is_rejected(old: str, new: str, message: str) -> None:
    """Goal: a row that is not understood is not passed over. Method: two headings, a row without its link or kind."""
    with pytest.raises(ValueError, match=message):
        parse("07-something.md", SOUND.replace(old, new))
