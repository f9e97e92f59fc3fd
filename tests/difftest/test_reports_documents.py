"""The reports for programs: JSON and JUnit's XML.

Goal: every document reads back, and no finding is lost. Method: each document is read with its format's own reader,
once with names that are hostile to it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from attrs import evolve

from kvgate.gate.verdict import Found, Tally, Verdict
from kvgate.kernel.difference import Difference, Divergence
from kvgate.kernel.errors import UsageError
from kvgate.kernel.output import Format
from kvgate.levels.manager import MANAGER
from kvgate.report.campaign import report_of
from kvgate.report.document import Column, Report, Section, Story, columns, from_json, to_json
from kvgate.report.formats import render
from kvreference.attention import Kind
from kvreference.content import Keys, Media
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode
from kvreference.operations import Admit, Arrive, Dispatch, Finish, Run, Transferred
from kvreference.settings import Settings

HOSTILE = "a<b>&%[red]\n::error::,\x1b[2J\ud800"
SETTINGS = Settings(Geometry((Group(Kind.FULL, 4), Group(Kind.SLIDING_WINDOW, 4, window_tokens=6))), blocks=16)
ARRIVAL = Arrive(0, (Run(0, 8),), Keys("salt", media=(Media("picture", 2, 3),)))
FOUND = Found(
    Divergence(2, Finish(0), "lockstep", Difference("KV-OP-07", "free queue at position 9", "3", "1")),
    MANAGER.case(SETTINGS, (ARRIVAL, Admit(0, 64), Finish(0)), model="flash", preset="tiny", seed=7),
)
DECLARED = evolve(FOUND, finding="F-3", times=12)
VERDICT = Verdict(
    system="stock",
    version="0.20.2",
    profile="exact",
    seed=7,
    detectors=("lockstep", "check", "ghost", "leak"),
    tallies=(Tally("flash", "tiny", 40, 1100), Tally("flash", "legal", 2, 100)),
    found=(FOUND,),
    declared=(DECLARED,),
    seconds=1.25,
)
MANY = evolve(VERDICT, found=(FOUND,) * 25, declared=(DECLARED,) * 25)
HOSTILE_CASE = MANAGER.case(
    SETTINGS, (evolve(ARRIVAL, keys=Keys(HOSTILE)), Admit(0, 64), Finish(0)), model=HOSTILE, preset=HOSTILE, seed=7
)
HOSTILE_VERDICT = evolve(
    VERDICT,
    system=HOSTILE,
    tallies=(Tally(HOSTILE, HOSTILE, 1, 3),),
    found=(evolve(FOUND, case=HOSTILE_CASE),),
    declared=(evolve(DECLARED, case=HOSTILE_CASE, finding=HOSTILE),),
)


def rendered(verdict: Verdict, format_name: str) -> str:
    """The report with one trace file and one thing that was not tested."""
    report = report_of(verdict, not_tested=("Pinned blocks.",), reproducers={0: Path("traces/0.jsonl")})
    return render(report, Format(format_name))


def test_the_json_report_is_a_contract() -> None:
    """Its keys, and every figure of a verdict."""
    document = json.loads(rendered(VERDICT, "json"))
    assert ("kvgate-verdict", 2, 1) == (document["format"], document["version"], document["exit_code"])
    keys = {"agrees", "command", "outcome", "ended", "circumstances", "claimed", "tested", "found", "found_left_out"}
    assert keys | {"known", "known_left_out", "not_tested"} <= set(document)
    assert document["agrees"] is False
    assert {"system": "stock", "version": "0.20.2", "profile": "exact", "seed": 7, "seconds": 1.25} == document[
        "circumstances"
    ]
    tested, detectors = document["tested"]
    figures = {"cases_ended_early": 0, "operations_not_followed": 0}
    assert tested["rows"][1] == {"model": "flash", "preset": "legal", "cases": 2, "operations": 100, **figures}
    assert ["all", None, 42, 1200, 0, 0] == tested["total"]
    assert ["lockstep", "check", "ghost", "leak"] == [row["detector"] for row in detectors["rows"]]
    (found,) = document["found"]
    details = found["details"]
    assert details["operation"] == {"type": "Finish", "request": 0, "sends": False}
    assert ("traces/0.jsonl", "kvgate replay traces/0.jsonl") == (found["reproducer"], found["again"])
    assert ("KV-OP-07", "lockstep", 2, "3", "1") == (
        *(found["statement"], found["detector"]),
        *(details["step"], details["expected"], details["got"]),
    )
    assert [operation["type"] for operation in details["case"]["operations"]] == ["Arrive", "Admit", "Finish"]
    assert details["case"]["operations"][0]["prompt"] == [{"first": 0, "length": 8}]
    assert details["case"]["settings"]["geometry"]["groups"][1]["kind"] == "sliding_window"
    assert ("F-3", 12) == (document["known"][0]["finding"], document["known"][0]["times"])
    assert "case" not in document["known"][0]["details"]


def test_the_json_report_reads_back() -> None:
    """Goal: nothing is lost. Method: an equal report of plain values; the same document of a real one."""
    story = Story("h", "t", "b", "warning", ("x",), "KV-OP-01", times=3, finding="F", details={"n": [1]})
    section = Section("s", (Column("x", ","), Column("y", shown=False)), (("a", 1.5), ("b", None)), ("all", 1), ("n",))
    report = Report("check", "o", 1, "e", {"seed": 7}, ("c",), (section,), (story,), 2, (story,), 1, ("not",))
    assert report == from_json(to_json(report), "x")
    for verdict in (VERDICT, MANY, HOSTILE_VERDICT):
        written = rendered(verdict, "json")
        assert written == to_json(from_json(written, "x"))


def test_a_report_that_is_not_well_formed_is_rejected() -> None:
    """Goal: a message that says what is wrong. Method: other formats, versions, keys and values."""
    document = json.loads(to_json(Report("check", tested=(Section("s", columns("x"), (("a",),)),))))
    for changes, message in (
        ({"format": "kvgate-trace"}, 'not a report: "format" is not "kvgate-verdict"'),
        ({"version": 1}, "version 1 of kvgate-verdict; this kvgate reads 2"),
        ({"exit_code": "1"}, "expected int"),
        ({"more": 1}, "more"),
        ({"agrees": False}, '"agrees" does not fit'),
        ({"tested": [{**document["tested"][0], "rows": [{"y": 1}]}]}, "the keys of a row are not the columns"),
        ({"tested": 3}, "not iterable"),
    ):
        with pytest.raises(UsageError, match=f"^x: .*{re.escape(message)}"):
            from_json(json.dumps(document | changes), "x")
    with pytest.raises(UsageError, match="x: "):
        from_json("{", "x")
    with pytest.raises(ValueError, match="another number of cells"):
        Section("s", columns("x"), (("a", "b"),))


def test_the_json_report_has_every_kind_of_operation_and_setting() -> None:
    """Attribute by attribute: transfers, dispatches, states, units and tiers."""
    states = Group(Kind.MAMBA, 4, states=StateMode.ALIGN, draft_states=1)
    settings = Settings(
        Geometry((states, Group(Kind.FULL, 8, compress_ratio=2, unit_tokens=4), Group(Kind.SLIDING_WINDOW, 4, 6))),
        blocks=16,
        retention_interval_tokens=8,
        scratch_first=True,
        pin_drop_blocks_min=2,
    )
    operations = (Admit(0, 64, external_tokens=3, loads=True), Dispatch(), Transferred(0, succeeded=False))
    case = evolve(FOUND.case, settings=settings, operations=operations)
    document = json.loads(rendered(evolve(VERDICT, found=(evolve(FOUND, case=case),)), "json"))
    details = document["found"][0]["details"]["case"]
    assert details["operations"] == [
        {"type": "Admit", "request": 0, "tokens": 64, "external_tokens": 3, "loads": True},
        {"type": "Dispatch"},
        {"type": "Transferred", "request": 0, "succeeded": False},
    ]
    groups = details["settings"].pop("geometry")["groups"]
    assert ("mamba", "align", 1) == (groups[0]["kind"], groups[0]["states"], groups[0]["draft_states"])
    assert (2, 4) == (groups[1]["compress_ratio"], groups[1]["unit_tokens"])
    assert (8, True, 2) == tuple(
        details["settings"][name] for name in ("retention_interval_tokens", "scratch_first", "pin_drop_blocks_min")
    )


def test_the_json_report_keeps_names_as_they_are() -> None:
    """Escaping is JSON's own."""
    document = json.loads(rendered(HOSTILE_VERDICT, "json"))
    assert document["circumstances"]["system"] == HOSTILE
    assert document["found"][0]["details"]["case"]["operations"][0]["keys"]["salt"] == HOSTILE


def test_the_json_report_drops_the_first_operations_of_a_huge_case() -> None:
    """And counts them; a finding at rest has no operation."""
    case = evolve(FOUND.case, operations=(Arrive(0, (Run(0, 8),)), *(Admit(0, 64),) * 5000))
    found = Found(Divergence(9, None, "leak", Difference("KV-LEAK-01", "x", "y" * 10**6, "z")), case)
    document = json.loads(rendered(evolve(VERDICT, found=(found,)), "json"))
    details = document["found"][0]["details"]
    assert details["operation"] is None
    assert len(details["expected"]) == 10_000
    assert details["case"]["operations_left_out"] + len(details["case"]["operations"]) == 5001
    assert details["case"]["operations_left_out"] > 0
    assert len(rendered(evolve(VERDICT, found=(found,)), "json")) < 600_000


def test_the_json_report_counts_what_it_leaves_out() -> None:
    """Divergences and declared differences."""
    document = json.loads(rendered(MANY, "json"))
    assert (len(document["found"]), document["found_left_out"]) == (20, 5)
    assert (len(document["known"]), document["known_left_out"]) == (20, 5)


def test_junit_has_a_test_case_for_each_tally() -> None:
    """The divergence fails its own, and what is declared is output."""
    suites = ElementTree.fromstring(rendered(VERDICT, "junit"))
    suite = suites.find("testsuite")
    assert suite is not None
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "time")} == {
        "tests": "2",
        "failures": "1",
        "errors": "0",
        "time": "1.250",
    }
    tiny, legal = suite.findall("testcase")
    assert (tiny.get("classname"), tiny.get("name")) == ("kvgate.stock.flash", "tiny")
    assert [failure.get("message") for failure in tiny.findall("failure")] == ["KV-OP-07 at step 2: Finish request 0"]
    assert "kvgate replay traces/0.jsonl" in (tiny.findtext("failure") or "")
    assert "known as F-3, seen 12 times: KV-OP-07, free queue" in (tiny.findtext("system-out") or "")
    assert legal.find("failure") is None
    assert legal.findtext("system-out") == "2 cases, 100 operations"
    assert "not tested: Pinned blocks." in (suite.findtext("system-out") or "")


def test_junit_loses_no_divergence() -> None:
    """Neither one without a tally, nor those that are not shown."""
    stray = evolve(FOUND, case=evolve(FOUND.case, model="another"))
    suites = ElementTree.fromstring(rendered(evolve(MANY, found=(stray, *MANY.found)), "junit"))
    tiny, _legal, another, not_shown = suites.iter("testcase")
    assert (19, 1) == (len(tiny.findall("failure")), len(another.findall("failure")))
    assert ["6 more divergences, not shown"] == [failure.get("message") for failure in not_shown.iter("failure")]
    assert "3" == suites.get("failures")


def test_junit_escapes_names() -> None:
    """Characters that XML cannot hold are written as escapes."""
    report = rendered(HOSTILE_VERDICT, "junit")
    suites = ElementTree.fromstring(report.encode())
    assert [case.get("name") for case in suites.iter("testcase")] == [
        r"a<b>&%[red]\n::error::,\x1b[2J\ud800",
    ]
