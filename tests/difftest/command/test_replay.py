"""``kvgate replay``.

Goal: a stored case is run again on the system that it names, or on another, and the exit code says whether it still
diverges. Method: traces of a case that a sound system passes and a faulty one does not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

from kvgate.adapters.registry import Loaded, load_system
from kvgate.gate.trace_codec import write
from kvgate.kernel.difference import Divergence
from kvgate.kernel.lockstep import Lockstep
from kvgate.levels.registry import read

from .stage import Ended, rows_of, stored

Kvgate = Callable[..., Ended]


def test_a_case_that_passes_is_exit_code_0(here: Path, kvgate: Kvgate) -> None:
    """With a report of this one case."""
    ended = kvgate("replay", str(stored(here)), "--format", "json")
    assert (0, "") == (ended.code, ended.err)
    verdict = json.loads(ended.out)
    assert ("reference", "replay", 7) == tuple(verdict["circumstances"][name] for name in ("system", "profile", "seed"))
    # The operations of the trace, and the one that takes the events at the end.
    (row,) = rows_of(ended.out)
    assert ("one group", "tiny", 1, 5) == tuple(row[name] for name in ("model", "preset", "cases", "operations"))


def test_a_case_that_diverges_is_exit_code_1(here: Path, kvgate: Kvgate) -> None:
    """On the system that it was found on."""
    trace = stored(here, "faulty:HeadFirst")
    ended = kvgate("replay", str(trace), "--sut", "faulty:HeadFirst")
    assert (1, "") == (ended.code, ended.err)
    assert "KV-OP-07: A request that ends" in ended.out
    assert f"  kvgate replay {trace} --sut faulty:HeadFirst\n" in ended.out


def test_a_trace_does_not_choose_what_code_is_run(here: Path, kvgate: Kvgate) -> None:
    """The trace comes from outside: only an explicit option runs the code that it names."""
    (here / "innocent.py").write_text("from pathlib import Path\nPath('ran').touch()", encoding="utf-8")
    ended = kvgate("replay", str(stored(here, "innocent:build")))
    assert 2 == ended.code
    assert ended.message.endswith(
        "written for the system 'innocent:build'; to run that code, say so with --sut innocent:build"
    )
    assert not (here / "ran").exists()
    assert 3 == kvgate("replay", str(stored(here, "innocent:build")), "--sut", "innocent:build").code
    assert (here / "ran").exists()


@pytest.mark.parametrize(("system", "code"), [("reference", 0), ("faulty:HeadFirst", 1)])
def test_another_system_may_be_named(system: str, code: int, here: Path, kvgate: Kvgate) -> None:
    """Instead of the one in the trace."""
    ended = kvgate("replay", str(stored(here, "stock")), "--sut", system)
    assert code == ended.code
    assert f"system {system}, version" in ended.out


def test_a_system_that_the_trace_does_not_name_is_named_to_see_it_again(
    here: Path, kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On standard output and on the page, though it is one that a trace may name."""
    faulty = load_system("faulty:HeadFirst").factory
    monkeypatch.setattr("kvgate.adapters.registry.load_system", lambda name, *_more: Loaded(name, "0", faulty))
    monkeypatch.setattr("kvgate.report.page.pages.load_system", lambda name: Loaded(name, "0", faulty))
    trace = stored(here, "stock")
    for options, named in ((("--sut", "reference"), " --sut reference"), ((), "")):
        ended = kvgate("replay", str(trace), *options, "--html", "page.html")
        assert 1 == ended.code
        assert f"  kvgate replay {trace}{named}\n" in ended.out
        assert f"kvgate replay {trace}{named}<" in (here / "page.html").read_text(encoding="utf-8")


def test_a_case_is_checked_by_the_detectors_that_found_it(here: Path, kvgate: Kvgate) -> None:
    """Monitors alone do not see this fault."""
    path = stored(here, "faulty:HeadFirst")
    trace = read(path)
    write(evolve(trace, header=evolve(trace.header, detectors=("check", "ghost"))), path)
    assert 0 == kvgate("replay", str(path), "--sut", "faulty:HeadFirst").code


def test_a_declared_difference_is_reported_as_such(here: Path, kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """It still diverges, which is what the exit code says."""

    def explain(_divergence: Divergence, _lockstep: Lockstep) -> str:
        return "000-known"

    monkeypatch.setattr("kvgate.levels.manager.explain", explain)
    ended = kvgate("replay", str(stored(here, "reference")), "--sut", "faulty:HeadFirst", "--format", "json")
    verdict = json.loads(ended.out)
    assert (1, ["000-known"], []) == (ended.code, [each["finding"] for each in verdict["found"]], verdict["known"])


def test_a_case_can_be_printed_as_a_test(here: Path, kvgate: Kvgate) -> None:
    """The source and nothing else, without a system; code that only the trace names is not written into it."""
    path = str(stored(here, "no_such_module:build"))
    assert 2 == kvgate("replay", path, "--as-pytest").code
    ended = kvgate("replay", path, "--as-pytest", "--sut", "no_such_module:build")
    assert (0, "") == (ended.code, ended.err)
    compile(ended.out, "test", "exec")
    assert "load_system('no_such_module:build')" in ended.out


@pytest.mark.parametrize("option", [("--format", "json"), ("--html", "page.html"), ("--chrome", "trace.json")])
def test_a_test_is_not_a_report(option: tuple[str, str], here: Path, kvgate: Kvgate) -> None:
    """A request for a report is not ignored."""
    ended = kvgate("replay", str(stored(here)), "--as-pytest", *option)
    assert 2 == ended.code
    assert "--as-pytest and --as-vllm-test print a test: they take no --format, --html or --chrome" == ended.message


def test_a_reference_that_has_changed_is_said_to_have(here: Path, kvgate: Kvgate) -> None:
    """On standard error, in one line that steers no terminal; the case is run all the same."""
    path = stored(here)
    trace = read(path)
    lines = (*trace.lines[:2], evolve(trace.lines[2], digest="0", answer="\x1b[2J\n"))
    write(evolve(trace, lines=lines), path)
    ended = kvgate("replay", str(path))
    assert 0 == ended.code
    expected = "kvgate: the reference has changed since this trace was written: operation 2: then \\x1b[2J\\n; now done"
    assert [expected] == ended.err.splitlines()
