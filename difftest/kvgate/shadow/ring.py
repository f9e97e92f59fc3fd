"""The ring: what was observed since the last checkpoints, kept in memory for the moment when something differs."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path

from kvgate.shadow.calls import Checkpoint, Written
from kvgate.shadow.recording import FRAME_OVERHEAD_BYTES, Header, Writer, beginning, encoded


class Ring:
    """The frames since the checkpoint before the last one, within a number of bytes."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._frames: deque[tuple[bytes, bool]] = deque()
        """Each frame, and whether it begins with a checkpoint."""
        self._bytes = 0
        self.is_whole = True
        """Whether it still begins with a checkpoint, so that it can be checked again."""

    def append(self, records: Sequence[Written]) -> None:
        """Remember the calls of a step."""
        starts = [0, *(index for index, record in enumerate(records) if index and isinstance(record, Checkpoint))]
        for start, end in zip(starts, [*starts[1:], len(records)], strict=True):
            if records[start:end]:
                self._append(encoded(records[start:end]), isinstance(records[start], Checkpoint))

    def _append(self, frame: bytes, begins: bool) -> None:
        if begins:
            # The one before is kept: a state that differs at a checkpoint was reached from there.
            while sum(each for _, each in self._frames) > 1 or (self._frames and not self._frames[0][1]):
                self._drop()
            self.is_whole = True
        self._frames.append((frame, begins))
        self._bytes += len(frame)
        while self._bytes > self.bytes_max and len(self._frames) > 1:
            self._drop()
            self.is_whole = self._frames[0][1]

    def _drop(self) -> None:
        self._bytes -= len(self._frames.popleft()[0])

    def dump_bytes(self, header: Header) -> int:
        """How large the recording is that ``dump`` writes."""
        return len(beginning(header)) + self._bytes + FRAME_OVERHEAD_BYTES * len(self._frames)

    def dump(self, path: Path, header: Header) -> None:
        """Write what is remembered as a recording.

        Raises:
            OSError: it cannot be written.
        """
        writer = Writer(path, header)
        try:
            for frame, _ in self._frames:
                writer.append(frame)
        finally:
            writer.close()
