"""Which versions have a defect: the corpus, its page and the findings agree.

Goal: no two pages contradict each other about a version. Method: defects and findings of the same upstream thread; each
version on which a finding was shown must be among those that the corpus names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvgate_mutants.corpus.bug import Bug
from kvgate_mutants.corpus.register import BUGS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "difftest" / "corpus" / "README.md").read_text(encoding="utf-8")
REGISTER = (ROOT / "difftest" / "kvgate" / "findings" / "README.md").read_text(encoding="utf-8")

OTHERS = {(20, "027")}
"""Two defects in one thread. The gate counted blocks that a window frees, which 0.20.2 fixed; this is another: a
request that can never fit is admitted.
"""


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def includes(affected: str, version: str) -> bool:
    """Whether the text before the first comma includes a release; "0.22" is all of 0.22."""
    said = affected.partition(",")[0]
    found = [numbers(each) for each in re.findall(r"(?<!vLLM-Ascend )\b\d+(?:\.\d+)+\b", said)]
    this = numbers(version)
    first = found[0] if found and not said.startswith("up to") else ()
    last = found[-1] if found and not said.startswith("from") else ()
    return first <= this and this[: len(last)] <= last


def thread(link: str) -> str:
    """A link as the register of findings writes it."""
    owner, repository, _, number = link.split("/")[-4:]
    mark = {"vllm-project/vllm": "", "vllm-project/vllm-ascend": "vllm-ascend"}.get(f"{owner}/{repository}", "other")
    return f"{mark}#{number}"


def reported_twice() -> Iterator[tuple[Bug, str, str]]:
    """Defects of the corpus, with the finding of the same thread, and the releases of vLLM on which that was shown."""
    for line in REGISTER.splitlines():
        if line.startswith("| ["):
            finding, _, _, versions, upstream, _ = (cell.strip() for cell in line.strip("|").split("|"))
            threads = set(re.findall(r"(?:vllm-ascend)?#\d+", upstream))
            for bug in BUGS.values():
                one = (bug.number, finding[1:4]) not in OTHERS and "nearest" not in upstream
                if one and thread(bug.link) in threads:
                    yield bug, finding[1:4], versions


def test_the_corpus_names_every_version_on_which_a_finding_was_shown() -> None:
    """Goal and method: see above."""
    reported = list(reported_twice())
    assert len(reported) > 5
    assert [] == [
        (bug.number, bug.affected, finding, version)
        for bug, finding, versions in reported
        for version in versions.split(", ")
        if not version.startswith("vLLM-Ascend") and not includes(bug.affected, version)
    ]


def test_the_page_names_the_versions_of_the_corpus() -> None:
    """Goal: the page is that of this corpus. Method: the line with a defect's link, and its rows of the table."""
    assert [] == [bug.id for bug in BUGS.values() if f"]({bug.link}) · {bug.kind.value} · {bug.affected}\n" not in PAGE]
    rows = re.findall(r"^\| (\d+) \| \[.*?\) \| .*? \| (.*?) \|", PAGE, re.MULTILINE)
    assert {(str(bug.number), bug.affected) for bug in BUGS.values()} == set(rows)


@pytest.mark.parametrize(
    ("affected", "version", "expected"),
    [
        ("0.14 to 0.22", "0.22.1", True),
        ("0.14 to 0.22", "0.23.0", False),
        ("0.21.0 to 0.22", "0.20.2", False),
        ("up to 0.22", "0.11.0", True),
        ("up to 0.22", "0.23.0", False),
        ("from 0.23 on, with a connector", "0.33.0", True),
        ("from 0.23 on", "0.22.1", False),
        ("0.22", "0.21.0", False),
        ("0.22", "0.22.1", True),
        ("0.20.2 to 0.22.1 executed, 0.14 to 0.23.0 by upstream's threads", "0.23.0", False),
        ("all of V1", "0.33.0", True),
    ],
)
def test_what_is_said_of_versions_is_read(affected: str, version: str, expected: bool) -> None:
    """Goal: the comparison can fail. Method: releases at both ends."""
    assert expected is includes(affected, version)
