"""``kvgate status``: a person reads the state of a shadow. Goal and method: statuses by hand, and what is printed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from kvgate.shadow.status import Status, path_of, write

from .test_shadow_commands import Kvgate

AT, RAISED = "2026-11-28 12:00:03 UTC", "AssertionError in allocate_slots"
ENGINE = "20261128T120000-7"


def written(folder: Path, **others: object) -> None:
    """A status of an engine in a folder."""
    known = {"engine_index": 0, "started": "2026-11-28 12:00:00 UTC", "steps": 40, "calls": 300, "judged": 280}
    write(folder, Status(ENGINE, "check", 7, "here", **{**known, **others}))  # type: ignore[arg-type]  # of any field


@pytest.mark.parametrize(
    ("others", "code", "lines"),
    [
        ({}, 0, ["  watching", "  40 steps, 300 calls, 280 calls checked, 0 differences"]),
        (
            {"state": "ended", "reason": RAISED, "raised": f"{RAISED}: no"},
            1,
            [f"  ended: {RAISED}", f"  raised: {RAISED}: no"],
        ),
        (
            {"stalled": ["request 25: known for 12 s, in no queue"]},
            1,
            ["  stalled: request 25: known for 12 s, in no queue"],
        ),
        (
            {"differences": 1, "first": "KV-OP-07 at step 3", "first_at": AT, "lost": 9},
            1,
            [f"  first difference, {AT}: KV-OP-07 at step 3", "  9 calls left out, the shadow was too slow"],
        ),
        ({"lost_blocks": ["block 3"] * 12}, 1, ["  lost: block 3", "  lost: 2 more"]),
    ],
)  # fmt: skip
def test_a_status_in_words(
    kvgate: Kvgate, tmp_path: Path, others: dict[str, object], code: int, lines: list[str]
) -> None:
    written(tmp_path, **others)
    finished = kvgate("status", str(tmp_path))
    assert code == finished.code, finished.err
    printed = finished.out.splitlines()
    assert f"engine 0 ({ENGINE}), check, since 2026-11-28 12:00:00 UTC" == printed[0]
    assert [] == [line for line in lines if line not in printed]


def test_a_shadow_that_is_gone_is_not_watching(kvgate: Kvgate, tmp_path: Path) -> None:
    """The status of a killed process says "watching", but is older than any that a shadow writes."""
    written(tmp_path)
    for seconds in (-60, 60):
        os.utime(path_of(tmp_path, ENGINE), (time.time() + seconds,) * 2)
        assert "no status for a while: is process 7 on here still there?" in kvgate("status", str(tmp_path)).out


def test_a_folder_without_a_status(kvgate: Kvgate, tmp_path: Path) -> None:
    finished = kvgate("status", str(tmp_path))
    assert (2, True) == (finished.code, "no shadow has written a status there" in finished.err)


def test_a_status_for_programs(kvgate: Kvgate, tmp_path: Path) -> None:
    written(tmp_path, differences=2)
    finished = kvgate("status", str(tmp_path), "--format", "json")
    (document,) = json.loads(finished.out)
    assert (1, ENGINE, 2) == (finished.code, document["engine"], document["differences"])
