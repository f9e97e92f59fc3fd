"""Checks recordings offline: a kept recording can be checked again by today's reference.

Each part of a recording says how many records came before it. Where some are missing (the disk was full, a part is gone
or cut off), the checks begin anew with the checkpoint after the gap. A gap is reported as a gap, never as a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import define, field

from kvgate.kernel.errors import UsageError
from kvgate.kernel.text import counted
from kvgate.shadow.calls import Restart, Stored
from kvgate.shadow.describe import format_finding
from kvgate.shadow.recording import SUFFIX, CutOffError, Header, Recording, is_recording, open_recording
from kvgate.shadow.shadow_checker import CALLS_SHOWN, Finding, ShadowChecker

LOST_SHOWN = 20
"""How many lost blocks are named with a difference."""
GAPS_MAX = 100
"""How many gaps are named; of all, the calls are counted."""
_UNNUMBERED = (
    "the parts have no record numbers, as older versions of kvgate wrote them: whether calls are missing between two "
    "is not known, and each is checked by itself"
)
FINDINGS_MAX = 100
"""How many differences are kept of one engine; all are counted."""
REPORT_EVERY_CALLS = 2000


@define
class Recheck:
    """The result of checking one engine's recording."""

    header: Header
    files: list[Path] = field(factory=list)
    endings: list[str] = field(factory=list)
    """What is missing at the end of files."""
    gaps: list[str] = field(factory=list)
    """What is missing before the end, and where."""
    found: list[Finding] = field(factory=list)
    stories: list[str] = field(factory=list)
    differences: int = 0
    checker: ShadowChecker = field(init=False)
    recent: list[Stored] = field(factory=list)
    _next_record: int | None = None
    """The number of the record that comes next, if it is known."""

    def __attrs_post_init__(self) -> None:
        self.checker = ShadowChecker(self.header.settings, self.header.system, self.header.system_version)

    @property
    def declared(self) -> dict[str, int]:
        """How often each known finding acted."""
        return self.checker.known.times

    def begin(self, header: Header, file: Path) -> None:
        """One more part, the first one or one after others; where it does not continue those, there is a gap."""
        first = header.first_record
        if self.files and (first is None or first != self._next_record):
            self.checker.restart(*self._gap(first, file.name))
        elif not self.files and header.segment:
            self.gaps.append(f"not here: the {counted(header.segment, 'part')} before {file.name}")
        self.files.append(file)
        self._next_record = first

    def _gap(self, first: int | None, name: str) -> tuple[int, str]:
        """How many calls are missing before a part, and why the checks begin anew."""
        if first is None or self._next_record is None:
            why = "a part of a recording without record numbers begins"
            if not self.gaps or self.gaps[-1] != _UNNUMBERED:
                self.gaps.append(_UNNUMBERED)
            return 0, why
        lost = first - self._next_record
        if lost < 0:
            self.gaps.append(f"{name} begins {_calls(-lost)} before the end of the part before it")
            return 0, "parts overlap"
        self.gaps.append(f"gap of {_calls(lost)} before {name}")
        return lost, "after a gap"

    def take(self, record: Stored, path: Path) -> None:
        """One more call."""
        if self._next_record is not None:
            self._next_record += 1
        if isinstance(record, Restart) and record.lost and len(self.gaps) < GAPS_MAX:
            self.gaps.append(f"gap of {_calls(record.lost)} or more in {path.name}: {record.because}")
        for finding in self.checker.follow(record):
            self.differences += 1
            if self.differences <= FINDINGS_MAX:
                self.found.append(finding)
                started = self.header.started_unix_ms
                again = f"kvgate replay {path}"
                self.stories.append(format_finding(finding, self.recent, again, started_unix_ms=started))
        lost = self.checker.take_lost()
        if lost and self.stories:
            self.stories[-1] += "".join(f"lost: {each}\n" for each in lost[:LOST_SHOWN])
        self.recent = [*self.recent[-(CALLS_SHOWN - 1) :], record]


def _calls(count: int) -> str:
    return f"{count:,} call{'s' if count != 1 else ''}"


def is_recorded(path: Path) -> bool:
    """Whether ``path`` is a recording, or a folder with some."""
    return any(path.glob(f"*{SUFFIX}")) if path.is_dir() else is_recording(path)


def recheck_recordings(path: Path, report: Callable[[str], None]) -> list[Recheck]:
    """Check a recording; or all in a folder, the parts of each engine in order.

    Raises:
        UsageError: a file is corrupted, or none; says where.
    """
    engines: dict[str, list[tuple[Header, Path]]] = {}
    unreadable: list[CutOffError] = []
    for file in _files(path):
        try:
            header = open_recording(file).header
        except CutOffError as error:
            unreadable.append(error)
            continue
        engines.setdefault(header.engine, []).append((header, file))
    if unreadable and not engines:
        raise unreadable[0]
    checked = [_recheck_engine(sorted(parts, key=lambda part: part[0].segment), report) for parts in engines.values()]
    # Of which engine such a file is, nothing in it says.
    checked[0].endings += map(str, unreadable) if unreadable else ()
    return checked


def _files(path: Path) -> Sequence[Path]:
    """Recordings themselves; what was dumped with a difference is a part of one, and is checked when it is named."""
    return sorted(path.glob(f"recording-*{SUFFIX}")) or sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]


def _recheck_engine(parts: Sequence[tuple[Header, Path]], report: Callable[[str], None]) -> Recheck:
    recheck = Recheck(parts[0][0])
    recording: Recording | None = None
    for header, file in parts:
        if header.settings != recheck.header.settings:
            raise UsageError(f"{file}: its settings are not those of {recheck.files[0]}, the part before it")
        recheck.begin(header, file)
        recording = open_recording(file)
        for record in recording.records():
            recheck.take(record, file)
            if recheck.checker.stats.calls % REPORT_EVERY_CALLS == 0:
                report(f"{file.name}: {recheck.checker.stats.calls} calls, {recheck.differences} differences")
        if recording.is_cut:
            recheck.endings.append(f"{file.name}: {recording.ended}")
    # Only the last part of an engine has an end.
    if recording is not None and recording.ended and not recording.is_cut:
        recheck.endings.append(f"{recording.path.name}: {recording.ended}")
    return recheck
