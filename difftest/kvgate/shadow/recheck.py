"""Checks recordings offline: a kept recording can be checked again by today's reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from attrs import define, field

from kvgate.kernel.errors import UsageError
from kvgate.shadow.calls import Stored
from kvgate.shadow.describe import format_finding
from kvgate.shadow.recording import SUFFIX, Header, is_recording, open_recording
from kvgate.shadow.shadow_checker import CALLS_SHOWN, Finding, ShadowChecker

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
    found: list[Finding] = field(factory=list)
    stories: list[str] = field(factory=list)
    differences: int = 0
    checker: ShadowChecker = field(init=False)
    recent: list[Stored] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.checker = ShadowChecker(self.header.settings, self.header.system, self.header.system_version)

    @property
    def declared(self) -> dict[str, int]:
        """How often each known finding acted."""
        return self.checker.known.times

    def take(self, record: Stored, path: Path) -> None:
        """One more call."""
        for finding in self.checker.follow(record):
            self.differences += 1
            if self.differences <= FINDINGS_MAX:
                self.found.append(finding)
                self.stories.append(format_finding(finding, self.recent, f"kvgate replay {path}"))
        self.recent = [*self.recent[-(CALLS_SHOWN - 1) :], record]


def is_recorded(path: Path) -> bool:
    """Whether ``path`` is a recording, or a folder with some."""
    return any(path.glob(f"*{SUFFIX}")) if path.is_dir() else is_recording(path)


def recheck_recordings(path: Path, report: Callable[[str], None]) -> list[Recheck]:
    """Check a recording; or all in a folder, the parts of each engine in order.

    Raises:
        UsageError: a file is corrupted, or none; says where.
    """
    headers = [(open_recording(file).header, file) for file in _files(path)]
    engines: dict[str, list[tuple[Header, Path]]] = {}
    for header, file in headers:
        engines.setdefault(header.engine, []).append((header, file))
    return [_recheck_engine(sorted(parts, key=lambda part: part[0].segment), report) for parts in engines.values()]


def _files(path: Path) -> Sequence[Path]:
    """Recordings themselves; what was dumped with a difference is a part of one, and is checked when it is named."""
    return sorted(path.glob(f"recording-*{SUFFIX}")) or sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]


def _recheck_engine(parts: Iterable[tuple[Header, Path]], report: Callable[[str], None]) -> Recheck:
    recheck: Recheck | None = None
    for header, file in parts:
        if recheck is None:
            recheck = Recheck(header)
        elif header.settings != recheck.header.settings:
            raise UsageError(f"{file}: its settings are not those of {recheck.files[0]}, the part before it")
        recheck.files.append(file)
        recording = open_recording(file)
        for record in recording.records():
            recheck.take(record, file)
            if recheck.checker.stats.calls % REPORT_EVERY_CALLS == 0:
                report(f"{file.name}: {recheck.checker.stats.calls} calls, {recheck.differences} differences")
        if recording.ended:
            recheck.endings.append(f"{file.name}: {recording.ended}")
    assert recheck is not None, "an engine has a part at least"
    return recheck
