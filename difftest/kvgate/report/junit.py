"""The report for test dashboards: JUnit's XML, one test case for each row of what was tested.

A story that belongs to no row gets a test case of its own, so that none is lost. A known finding is output, not a
failure.
"""

from __future__ import annotations

from xml.etree import ElementTree

from kvgate.kernel.output import FAULT
from kvgate.kernel.text import counted, printable
from kvgate.report.document import Report, Section

Place = tuple[str, ...]


def junit_report(report: Report) -> str:
    """The document, as text that is to be encoded in UTF-8."""
    suites = ElementTree.Element("testsuites", name="kvgate")
    subject = printable(str(report.circumstances.get("system", report.command)))
    suite = ElementTree.SubElement(suites, "testsuite", name=f"kvgate {subject}")
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in {**report.circumstances, "ended": report.ended}.items():
        ElementTree.SubElement(properties, "property", name=name, value=printable(str(value)))

    rows: dict[Place, list[str]] = {}
    for section in report.tested:
        for row in section.rows if section.shown else ():
            rows.setdefault(tuple(map(str, row[: section.keys])), []).append(_figures(section, row))
    stories = (*report.found, *report.known)
    places = list(dict.fromkeys([*rows, *(story.place for story in stories)]))
    failed = sum([_add_case(suite, report, subject, place, rows.get(place, [])) for place in places])
    if report.found_left_out:
        failed += 1
        places.append(())
        case = ElementTree.SubElement(suite, "testcase", classname=f"kvgate.{subject}", name="not shown")
        ElementTree.SubElement(case, "failure", type="not shown", message=report.more_found)

    counts = {"tests": len(places), "failures": failed, "errors": 0, "skipped": 0}
    for element in (suites, suite):
        for name, count in counts.items():
            element.set(name, str(count))
        element.set("time", f"{float(report.circumstances.get('seconds') or 0):.3f}")
    output = ElementTree.SubElement(suite, "system-out")
    output.text = "\n".join((report.outcome, *(f"not tested: {sentence}" for sentence in report.not_tested)))
    document = _document(suites)
    return with_error(document, report.outcome, f"kvgate.{subject}") if report.exit_code == FAULT else document


def _figures(section: Section, row: tuple[object, ...]) -> str:
    texts = section.texts(row)[section.keys :]
    return ", ".join(
        f"{text} {column.name}" for text, column in zip(texts, section.visible[section.keys :], strict=True)
    )


def _add_case(suite: ElementTree.Element, report: Report, subject: str, place: Place, figures: list[str]) -> bool:
    """Add the test case of one row; returns whether it fails."""
    *owner, name = map(printable, place or ("unplaced",))
    case = ElementTree.SubElement(suite, "testcase", classname=".".join(("kvgate", subject, *owner)), name=name)
    found = [story for story in report.found if story.place == place]
    for story in found:
        kind = story.statement or story.severity
        failure = ElementTree.SubElement(case, "failure", type=kind, message=story.headline)
        failure.text = story.text
    lines = figures + [
        f"known as {printable(story.finding or '')}, seen {counted(story.times, 'time')}: {story.headline}"
        for story in report.known
        if story.place == place
    ]
    ElementTree.SubElement(case, "system-out").text = "\n".join(lines)
    return bool(found)


def with_error(junit: str, error: str, classname: str) -> str:
    """The document with one more test case, which could not be run."""
    suites = ElementTree.fromstring(junit.encode())
    suite = suites.find("testsuite")
    assert suite is not None, "a report has a suite"
    case = ElementTree.SubElement(suite, "testcase", classname=classname, name="run")
    ElementTree.SubElement(case, "error", message=error)
    for element in (suites, suite):
        for count in ("tests", "errors"):
            element.set(count, str(int(element.get(count, "0")) + 1))
    return _document(suites)


def _document(suites: ElementTree.Element) -> str:
    ElementTree.indent(suites)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(suites, encoding="unicode")}\n'
