"""The fetching of archives.

Goal: two test runs that fetch the same archive at once both find it complete, and leave nothing else in the cache.
Method: two fetches that wait for each other before each of them puts its folder in place; pip is replaced.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from . import archive

SECONDS_MAX = 60


def test_two_fetches_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both return the same folder; it has the tests once, without their conftest."""
    together, complete = Barrier(2, timeout=SECONDS_MAX), Barrier(2, timeout=SECONDS_MAX)
    move = shutil.move

    def download(_what: str, _options: Sequence[str], scratch: Path) -> str:
        tests = scratch / "pip-download-1" / "vllm_1" / "tests"
        tests.mkdir(parents=True)
        for name in ("conftest.py", "test_blocks.py"):
            (tests / name).touch()
        together.wait()
        return ""

    def move_together(*arguments: Any) -> None:
        move(*arguments)
        complete.wait()

    monkeypatch.setattr(archive, "cache", lambda: tmp_path)
    monkeypatch.setattr(archive, "download", download)
    monkeypatch.setattr(shutil, "move", move_together)
    with ThreadPoolExecutor(2) as pool:
        found = set(pool.map(archive.archive_of, ["0.20.2"] * 2))
    assert {tmp_path / "vllm-tests" / "0.20.2"} == found
    assert ["test_blocks.py", "tests"] == sorted(path.name for path in next(iter(found)).rglob("*"))
    assert ["0.20.2"] == [path.name for path in (tmp_path / "vllm-tests").iterdir()]


def test_a_folder_that_cannot_be_put_in_place_is_an_error(tmp_path: Path) -> None:
    """The existing path is not a folder."""
    (tmp_path / "kept").touch()
    with pytest.raises(NotADirectoryError), archive._filling(tmp_path / "kept"):
        pass
