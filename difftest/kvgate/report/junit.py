"""The report for test dashboards: JUnit's XML, one test case for each model and generator preset.

A divergence that belongs to no tally gets a test case of its own, so that none is lost. What a finding explains is
output, not failure.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree

from kvgate.gate.story import headline
from kvgate.gate.verdict import Found
from kvgate.kernel.text import counted, printable
from kvgate.report.contents import DECLARED_MAX, Contents, Told


def junit_report(contents: Contents) -> str:
    """The document, as text that is to be encoded in UTF-8."""
    verdict = contents.verdict
    suites = ElementTree.Element("testsuites", name="kvgate")
    suite = ElementTree.SubElement(suites, "testsuite", name=f"kvgate {printable(verdict.system)}")
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(contents):
        ElementTree.SubElement(properties, "property", name=name, value=printable(value))

    everything = [*(told.found for told in contents.told), *contents.left_out, *verdict.declared]
    places = [(tally.model, tally.preset) for tally in verdict.tallies]
    # As keys of a dictionary they keep their order and come once.
    places = list(dict.fromkeys([*places, *map(_place, everything)]))
    failed = sum([_add_case(suite, contents, place) for place in places])

    counts = {"tests": len(places), "failures": failed, "errors": 0, "skipped": 0}
    for element in (suites, suite):
        for name, count in counts.items():
            element.set(name, str(count))
        element.set("time", f"{verdict.seconds:.3f}")
    output = ElementTree.SubElement(suite, "system-out")
    output.text = "\n".join((contents.outcome, *(f"not tested: {sentence}" for sentence in contents.not_tested)))
    ElementTree.indent(suites)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(suites, encoding="unicode")}\n'


def _properties(contents: Contents) -> Iterable[tuple[str, str]]:
    verdict = contents.verdict
    return (
        ("system", verdict.system),
        ("version", verdict.version),
        ("profile", verdict.profile),
        ("seed", str(verdict.seed)),
        ("detectors", ", ".join(verdict.detectors)),
        ("ended", verdict.ended),
    )


def _place(found: Found) -> tuple[str, str]:
    """The model and the preset that a divergence belongs to."""
    return found.case.model, found.case.preset


def _add_case(suite: ElementTree.Element, contents: Contents, place: tuple[str, str]) -> bool:
    """Add the test case of one model and preset; returns whether it fails."""
    verdict = contents.verdict
    model, preset = map(printable, place)
    case = ElementTree.SubElement(
        suite, "testcase", classname=f"kvgate.{printable(verdict.system)}.{model}", name=preset
    )
    told = [told for told in contents.told if _place(told.found) == place]
    left_out = sum(_place(found) == place for found in contents.left_out)
    for one in told:
        _add_failure(case, one)
    if left_out:
        more = f"{counted(left_out, 'divergence')} more, left out here"
        ElementTree.SubElement(case, "failure", type="left out", message=more)

    tallies = [tally for tally in verdict.tallies if (tally.model, tally.preset) == place]
    cases, operations = sum(tally.cases for tally in tallies), sum(tally.operations for tally in tallies)
    lines = [f"{counted(operations, 'operation')}, {counted(cases, 'case')}"]
    declared = [found for found in verdict.declared if _place(found) == place]
    lines += [
        f"declared as {printable(found.finding or '')}, seen {counted(found.times, 'time')}: {headline(found)}"
        for found in declared[:DECLARED_MAX]
    ]
    if declared[DECLARED_MAX:]:
        lines.append(f"{counted(len(declared) - DECLARED_MAX, 'declared difference')} more, left out here")
    output = ElementTree.SubElement(case, "system-out")
    output.text = "\n".join(lines)
    return bool(told or left_out)


def _add_failure(case: ElementTree.Element, told: Told) -> None:
    failure = ElementTree.SubElement(
        case, "failure", type=told.found.divergence.difference.statement, message=told.headline
    )
    failure.text = told.story
