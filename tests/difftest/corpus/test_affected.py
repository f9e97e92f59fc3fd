"""Which versions have a defect: the corpus, its page and the findings agree.

Goal: no two pages contradict each other about a version. Method: defects and findings of the same upstream thread; each
version on which a finding was shown must be among those that the corpus names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvgate.kernel.data_file import read_csv
from kvgate_mutants.corpus.bug import Bug
from kvgate_mutants.corpus.register import BUGS

ROOT = Path(__file__).parents[3]
TABLE = read_csv((ROOT / "difftest" / "corpus" / "corpus.csv").read_text(encoding="utf-8"))
REGISTER = read_csv((ROOT / "difftest" / "kvgate" / "findings" / "findings.csv").read_text(encoding="utf-8"))

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
    for row in REGISTER:
        threads = set(re.findall(r"(?:vllm-ascend)?#\d+", row["upstream"]))
        for bug in BUGS.values():
            one = (bug.number, row["id"][:3]) not in OTHERS and "nearest" not in row["upstream"]
            if one and thread(bug.link) in threads:
                yield bug, row["id"][:3], row["versions"]


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


def test_the_table_names_the_versions_of_the_corpus() -> None:
    """Goal: the table is that of this corpus. Method: what every row says of its defect, and the code of its cases."""
    names = ("#", "defect", "reported", "class", "affected", "what goes wrong")
    assert {
        (str(bug.number), bug.id, f"[{bug.thread}]({bug.link})", bug.kind.value, bug.affected, bug.title)
        for bug in BUGS.values()
    } == {tuple(row[name] for name in names) for row in TABLE}
    cases = Counter(row["defect"] for row in TABLE if row["code that was run"] != "none")
    assert {bug.id: len(bug.trials) for bug in BUGS.values() if bug.trials} == cases


def test_the_page_counts_the_rows() -> None:
    """Goal: no figure of the page is stale. Method: count the defects, and those that nothing catches."""
    page = (ROOT / "difftest" / "corpus" / "README.md").read_text(encoding="utf-8")
    left = sum(row["found by"] == "not caught" for row in TABLE)
    assert f" of {len({row['defect'] for row in TABLE})} defects caught: " in page
    assert f"- {left} not caught by anything, each with the reason" in page


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
