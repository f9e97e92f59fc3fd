"""Recordings judged offline: any that were kept can be judged again, by the reference of today."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from attrs import define, field

from kvgate.kernel.errors import UsageError
from kvgate.shadow.calls import Stored
from kvgate.shadow.recording import SUFFIX, Header, is_recording, open_recording
from kvgate.shadow.shadow_checker import CALLS_TOLD, Finding, Judge
from kvgate.shadow.story import told

FINDINGS_MAX = 100
"""How many differences are kept of one engine; all are counted."""
SAY_EVERY_CALLS = 2000


@define
class Rejudged:
    """What the reference says of one engine's recording."""

    header: Header
    files: list[Path] = field(factory=list)
    endings: list[str] = field(factory=list)
    """What is missing at the end of files."""
    found: list[Finding] = field(factory=list)
    stories: list[str] = field(factory=list)
    differences: int = 0
    """Differences that nothing explains."""
    declared: dict[str, int] = field(factory=dict)
    judge: Judge = field(init=False)
    recent: list[Stored] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.judge = Judge(self.header.settings)

    def take(self, record: Stored, path: Path) -> None:
        """One more call."""
        for finding in self.judge.follow(record):
            if finding.declared is not None:
                self.declared[finding.declared] = self.declared.get(finding.declared, 0) + 1
                continue
            self.differences += 1
            if self.differences <= FINDINGS_MAX:
                self.found.append(finding)
                self.stories.append(told(finding, self.recent, f"kvgate replay {path}"))
        self.recent = [*self.recent[-(CALLS_TOLD - 1) :], record]


def is_recorded(path: Path) -> bool:
    """Whether ``path`` is a recording, or a folder with some."""
    return any(path.glob(f"*{SUFFIX}")) if path.is_dir() else is_recording(path)


def judge(path: Path, say: Callable[[str], None]) -> list[Rejudged]:
    """Judge a recording; or all in a folder, the parts of each engine one behind the other.

    Raises:
        UsageError: a file is corrupted, or none; says where.
    """
    headers = [(open_recording(file).header, file) for file in _files(path)]
    engines: dict[str, list[tuple[Header, Path]]] = {}
    for header, file in headers:
        engines.setdefault(header.engine, []).append((header, file))
    return [_judged(sorted(parts, key=lambda part: part[0].segment), say) for parts in engines.values()]


def _files(path: Path) -> Sequence[Path]:
    """Recordings themselves; what was dumped with a difference is a part of one, and is judged when it is named."""
    return sorted(path.glob(f"recording-*{SUFFIX}")) or sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]


def _judged(parts: Iterable[tuple[Header, Path]], say: Callable[[str], None]) -> Rejudged:
    rejudged: Rejudged | None = None
    for header, file in parts:
        if rejudged is None:
            rejudged = Rejudged(header)
        elif header.settings != rejudged.header.settings:
            raise UsageError(f"{file}: its settings are not those of {rejudged.files[0]}, the part before it")
        rejudged.files.append(file)
        recording = open_recording(file)
        for record in recording.records():
            rejudged.take(record, file)
            if rejudged.judge.tally.calls % SAY_EVERY_CALLS == 0:
                say(f"{file.name}: {rejudged.judge.tally.calls} calls, {rejudged.differences} differences")
        if recording.ended:
            rejudged.endings.append(f"{file.name}: {recording.ended}")
    assert rejudged is not None, "an engine has a part at least"
    return rejudged
