"""Rotation: a recording as several files, of which the oldest go when there is too much.

Each file begins with a checkpoint, so what is left can be checked. The files of engines that have ended are older,
and are deleted first. Where the disk is full, or does not answer as it
should, writing ends until the next checkpoint; the engine never knows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import evolve

from kvgate.shadow.calls import Checkpoint, End, Step, Written, records_in
from kvgate.shadow.disk_budget import RECORDING, remaining_recordings
from kvgate.shadow.recording import FILE_BYTES_MAX, FRAME_OVERHEAD_BYTES, SUFFIX, Header, Writer, encoded

SEGMENTS = 8
"""Into how many files the allowed size is divided, at least."""


class Rotation:
    """Writes one engine's recording into a folder, within a number of bytes."""

    def __init__(self, folder: Path, header: Header, bytes_max: int, report: Callable[[str], None]) -> None:
        self.folder = folder
        self.header = header
        self.bytes_max = bytes_max
        self.part_bytes = min(bytes_max // SEGMENTS, FILE_BYTES_MAX // 4)
        """A new part begins at the first checkpoint after so many bytes."""
        self.part_bytes_max = min(bytes_max, FILE_BYTES_MAX)
        """More than this, and it would not be read."""
        self.report = report
        self.written: list[Path] = []
        self.bytes_written = 0
        self.steps = 0
        self.lost = 0
        """Records that were not written."""
        self.records = 0
        """Records of the engine so far, written or not: a reader sees by their number what is missing."""
        self._writer: Writer | None = None
        self._sizes: dict[Path, int] = {}
        """Of the parts that nothing is written to any more."""
        self._remaining: dict[Path, int] = {}
        """Of the files of engines that have ended."""
        self._segment = 0
        self._was_reported = False

    def append(self, records: Sequence[Written]) -> None:
        """Write the calls of a step, if that is possible."""
        for start, end in _parts(records):
            self._append(records[start:end])

    def _append(self, records: Sequence[Written]) -> None:
        if not records:
            return
        begins = isinstance(records[0], Checkpoint)
        if begins and (self._writer is None or self._writer.bytes > self.part_bytes):
            self._open()
        count = records_in(records)
        self.records += count
        writer = self._writer
        if writer is None:
            # The first checkpoint also describes what came before it.
            self.lost += count if self._segment else 0
            return
        payload = encoded(records)
        self.steps += sum(isinstance(record, Step) for record in records)
        if writer.bytes + len(payload) + FRAME_OVERHEAD_BYTES > self.part_bytes_max:
            self._stop_until_checkpoint(
                f"a part would be larger than {self.part_bytes_max} bytes before its next checkpoint"
            )
            self.lost += count
            return
        try:
            before = writer.bytes
            writer.append(payload)
            self.bytes_written += writer.bytes - before
        except OSError as error:
            self._stop_until_checkpoint(f"{writer.path}: {error.strerror}")
            self.lost += count
        self._delete_oldest()

    def _open(self) -> None:
        self.close()
        self._remaining = remaining_recordings(self.folder, self.header.engine)
        path = self.folder / f"{RECORDING}{self.header.engine}-{self._segment:06d}{SUFFIX}"
        try:
            self._writer = Writer(path, evolve(self.header, segment=self._segment, first_record=self.records))
        except OSError as error:
            self._stop_until_checkpoint(f"{path}: {error.strerror}")
            return
        self._was_reported = False
        self._segment += 1
        self.written.append(path)

    def _stop_until_checkpoint(self, why: str) -> None:
        self.close()
        if not self._was_reported:
            self._was_reported = True
            self.report(f"nothing is recorded up to the next checkpoint: {why}")

    def _delete_oldest(self) -> None:
        """Delete the oldest parts for as long as all together are too large."""
        current = 0 if self._writer is None else self._writer.bytes
        budget_bytes = self.bytes_max - current - sum(self._sizes.values()) - sum(self._remaining.values())
        while budget_bytes < 0 and (kept := self._remaining or self._sizes):
            oldest = next(iter(kept))
            budget_bytes += kept.pop(oldest)
            try:
                oldest.unlink(missing_ok=True)
            except OSError as error:
                self.report(f"{oldest} stays: {error.strerror}")

    def close(self) -> None:
        """Nothing is written to the current part any more."""
        if self._writer is not None:
            self._sizes[self._writer.path] = self._writer.bytes
            self._writer.close()
            self._writer = None


def _parts(records: Sequence[Written]) -> list[tuple[int, int]]:
    """Where frames begin and end: at every checkpoint a new one, for a file may begin there."""
    starts = [0, *(index for index, record in enumerate(records) if index and isinstance(record, (Checkpoint, End)))]
    return list(zip(starts, [*starts[1:], len(records)], strict=True))
