"""The run directory: the manifest, a result for each shard that is done, and the traces of what was found.

    manifest.json        what is fuzzed
    shards/00000012.jsonl  the result of one shard: there whole, or not at all
    corpus/…jsonl        for each defect the smallest trace of those that some shards made; made anew whenever a run
                         ends

A shard without a result is run, or run again. So an interrupted run continues where it stopped.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvgate.campaigns.plan import FuzzPlan, manifest, read_manifest
from kvgate.campaigns.results import ShardResult, read, render
from kvgate.kernel.errors import UsageError

MANIFEST = "manifest.json"


class RunFolder:
    """A run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.corpus = path / "corpus"
        self._shards = path / "shards"

    def create(self, plan: FuzzPlan) -> None:
        """Make the directory for a new run.

        Raises:
            UsageError: it holds a run already, or cannot be written.
        """
        if (self.path / MANIFEST).exists():
            raise UsageError(f"--out {self.path}: holds a run already; continue it with --resume {self.path}")
        try:
            self._shards.mkdir(parents=True, exist_ok=True)
            _write(self.path / MANIFEST, manifest(plan))
        except OSError as error:
            raise UsageError(f"--out {self.path}: cannot be written: {error.strerror}") from error

    def discard(self) -> None:
        """Take back a run of which no shard was done: it could not be begun."""
        if not any(self._shards.glob("*.jsonl")):
            (self.path / MANIFEST).unlink(missing_ok=True)

    def plan(self) -> FuzzPlan:
        """What is fuzzed here.

        Raises:
            UsageError: the folder holds no run.
        """
        if not (self.path / MANIFEST).is_file():
            raise UsageError(f"--resume {self.path}: the folder has no {MANIFEST}, so it is not a run")
        self._shards.mkdir(exist_ok=True)
        return read_manifest(self.path / MANIFEST)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder against other runs; the system releases the lock when this process ends in any way.

        Raises:
            UsageError: another run holds the lock.
        """
        with (self.path / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise UsageError(f"{self.path}: another kvgate fuzz runs here") from error
            yield

    def _place(self, shard: int) -> Path:
        return self._shards / f"{shard:08}.jsonl"

    def keep(self, result: ShardResult) -> None:
        """Write the result of a shard, unless there is one."""
        if not self._place(result.shard).exists():
            _write(self._place(result.shard), render(result))

    def is_done(self, shard: int) -> bool:
        """Whether a shard has a result."""
        return self._place(shard).exists()

    def results(self) -> Iterator[ShardResult]:
        """All results, by shard.

        Raises:
            UsageError: one cannot be read, or is that of another shard.
        """
        for path in sorted(self._shards.glob("*.jsonl")):
            result = read(path)
            if path != self._place(result.shard):
                raise UsageError(f"{path}: is the result of shard {result.shard}; remove it")
            yield result


def _write(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all, even if the machine fails."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
