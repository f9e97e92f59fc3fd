"""``kvgate check``.

Goal: the exit code says whether the systems agree, standard output is the report in the format asked for and nothing
else, and what was found can be run again. Method: the reference as the system under test, and a faulty one.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from .stage import Ended, rows_of, run_kvgate

Kvgate = Callable[..., Ended]

REFERENCE = ("check", "--sut", "reference", "--time-budget", "0.3s")
FAULTY = ("check", "--sut", "faulty:HeadFirst", "--time-budget", "20s", "--model", "full")

PATCH = """
from kvgate.adapters.reference import Reference
from kvreference.operations import Finish

original = Reference.apply

def apply(self, operation):
    if isinstance(operation, Finish):
        self.tables[operation.request][0].blocks.reverse()
    return original(self, operation)

Reference.apply = apply
"""


def test_agreement_is_exit_code_0(tmp_path: Path) -> None:
    """As a process of its own: a report on standard output, nothing on standard error, no file."""
    ended = run_kvgate(tmp_path, "check", "--sut", "reference", "--profile", "quick", "--time-budget", "3s")
    assert (0, "") == (ended.code, ended.err)
    assert ended.out.startswith("no divergence in ")
    assert ", profile quick, seed 0, " in ended.out
    assert [] == list(tmp_path.iterdir())


def parse_text(report: str) -> str:
    return report.splitlines()[0]


def parse_json(report: str) -> str:
    outcome = json.loads(report)["outcome"]
    assert isinstance(outcome, str)
    return outcome


def parse_junit(report: str) -> str:
    root = ElementTree.fromstring(report.encode())
    assert "testsuites" == root.tag
    return (root.findtext("testsuite/system-out") or "").splitlines()[0]


def parse_github(report: str) -> str:
    lines = [line for line in report.splitlines() if line]
    assert all(line.startswith("::") for line in lines)
    return next(line for line in lines if line.startswith("::notice title=kvgate::")).rpartition("::")[2]


PARSERS = {"text": parse_text, "json": parse_json, "junit": parse_junit, "github": parse_github}


@pytest.mark.few(1)
@pytest.mark.parametrize(("name", "parse"), PARSERS.items(), ids=PARSERS)
def test_every_format_can_be_read(name: str, parse: Callable[[str], str], kvgate: Kvgate) -> None:
    """Of an agreement, and of a divergence."""
    sound, faulty = kvgate(*REFERENCE, "--format", name), kvgate(*FAULTY, "--format", name)
    assert ((0, ""), 1) == ((sound.code, sound.err), faulty.code)
    # The first finding is printed at once, for people.
    assert ("KV-OP-07" in faulty.err) == (name == "text")
    assert parse(sound.out).startswith("no divergence in ")
    assert parse(faulty.out).startswith("1 divergence in ")


@pytest.mark.ci
def test_a_divergence_is_exit_code_1_and_can_be_run_again(here: Path) -> None:
    """As processes of their own: the command that the story ends with finds it again; the reference does not."""
    found = run_kvgate(here, *FAULTY, "--time-budget", "1s")
    assert 1 == found.code
    assert "KV-OP-07: A request that ends" in found.out
    assert ["divergence-1.jsonl"] == [path.name for path in (here / "kvgate-report").iterdir()]
    (again,) = (shlex.split(line) for line in found.out.splitlines() if line.startswith("  kvgate replay "))
    replayed = run_kvgate(here, *again[1:])
    assert (1, "") == (replayed.code, replayed.err)
    assert "system faulty:HeadFirst, version 1.2.3" in replayed.out
    other = run_kvgate(here, *again[1:], "--sut", "reference")
    assert (0, "") == (other.code, other.err)


@pytest.mark.ci
def test_reports_are_written_where_they_are_asked_for(here: Path, kvgate: Kvgate) -> None:
    """All formats, a reproducer and a page for what was found; the folder has no other files."""
    assert 1 == kvgate(*FAULTY, "--report", "out/of/here").code
    found = [f"divergence-1.{kind}" for kind in ("html", "jsonl", "trace-events.json")]
    formats = ["index.html", "junit.xml", "report.txt", "summary.md", "verdict.json"]
    assert [*found, *formats] == sorted(path.name for path in (here / "out" / "of" / "here").iterdir())
    assert not (here / "kvgate-report").exists()
    verdict = json.loads((here / "out" / "of" / "here" / "verdict.json").read_text(encoding="utf-8"))
    assert ["out/of/here/divergence-1.jsonl"] == [found["reproducer"] for found in verdict["found"]]


def test_of_an_agreement_reports_are_written_as_well(here: Path, kvgate: Kvgate) -> None:
    """Without a reproducer, and without a page of its own."""
    assert 0 == kvgate(*REFERENCE, "--report", "out").code
    assert 5 == len(list((here / "out").iterdir()))


def test_monitors_may_check_alone(kvgate: Kvgate) -> None:
    """They ignore the order of the free queue; the report says that the reference did not check."""
    ended = kvgate(*FAULTY, "--monitors-only", "--format", "json")
    assert 0 == ended.code
    verdict = json.loads(ended.out)
    assert ["check", "ghost", "leak"] == [row["detector"] for row in rows_of(ended.out, "detectors")]
    assert verdict["tested"][0]["total"][3] > 0


def test_models_are_run_as_asked_for(here: Path, kvgate: Kvgate) -> None:
    """Presets and files."""
    document = {"groups": [{"kind": "sliding_window", "block_size_tokens": 8, "window_tokens": 24}]}
    (here / "mine.json").write_text(json.dumps(document), encoding="utf-8")
    ended = kvgate(*REFERENCE, "--model", "swa+eagle", "--model", "mine.json", "--format", "json")
    assert ["swa+eagle", "mine"] == list(dict.fromkeys(lane["model"] for lane in rows_of(ended.out)))


@pytest.mark.ci
def test_a_patch_is_tested_as_it_is(here: Path) -> None:
    """A preload that breaks the system; one that does nothing is the control. The story's command names the patch."""
    (here / "harmless.py").write_text("import kvgate.adapters.reference", encoding="utf-8")
    (here / "patch.py").write_text(PATCH, encoding="utf-8")
    assert 0 == run_kvgate(here, *REFERENCE, "--preload", "harmless.py").code
    ended = run_kvgate(here, *REFERENCE, "--preload", "patch.py")
    assert 1 == ended.code
    assert "system reference, version " in ended.out
    assert "  kvgate replay kvgate-report/divergence-1.jsonl --preload patch.py\n" in ended.out


@pytest.mark.ci
def test_a_seed_stands_for_what_is_found(kvgate: Kvgate) -> None:
    """However long the run takes; the next seed finds something else."""

    def found(seed: str) -> object:
        verdict = json.loads(kvgate(*FAULTY, "--seed", seed, "--format", "json").out)
        return verdict["tested"], verdict["found"]

    assert found("3") == found("3") != found("4")


@pytest.mark.parametrize("command", ["check", "fuzz"])
def test_a_release_for_stored_cases_alone_is_rejected(kvgate: Callable[..., Ended], command: str) -> None:
    """Goal: no failure inside kvgate where a release is too old. Method: 0.19.1, of which the corpus has traces."""
    ended = kvgate(command, "--sut", "native@0.19.1")
    assert 2 == ended.code
    said = " ".join(ended.err.split())
    assert "native@0.19.1 is described for what is stored" in said
    assert "cases are drawn for vLLM from 0.20.2 on" in said
