"""What is kept of a run: what was tried so far, and every input that showed a defect. So a run can go on.

plan.json        the seed, and how many inputs each parser gets
tried.jsonl      a line for each batch: which inputs, how many were accepted, refused, or showed a defect
defects/…        for each defect one input as small as could be made, and what it did
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from attrs import asdict, field, frozen
from attrs.validators import ge, instance_of

from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import DOCUMENT_ERRORS, explain, json_object, read_bytes, strict_converter

FORMAT = "kvgate-parsers-tried"
VERSION = 1
PLAN_BYTES_MAX = 10_000
TRIED_BYTES_MAX = 50_000_000
_number = [instance_of(int), ge(0)]
_CONVERTER = strict_converter()


@frozen
class Plan:
    """What is tried."""

    seed: int = field(validator=_number)
    inputs: int = field(validator=_number)
    """How many for each parser."""
    format: str = FORMAT
    version: int = VERSION


@frozen
class Batch:
    """What came of some inputs of one parser, from ``first`` on."""

    entrance: str
    first: int = field(validator=_number)
    count: int = field(validator=_number)
    accepted: int = field(validator=_number)
    refused: int = field(validator=_number)
    failed: int = field(validator=_number)
    seconds: float = 0.0
    """Processor time."""


class Kept:
    """A folder of a run.

    Raises:
        UsageError: it is the folder of another run, or cannot be read.
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder = folder
        self.plan = plan
        self._tried = folder / "tried.jsonl"
        (folder / "defects").mkdir(parents=True, exist_ok=True)
        path = folder / "plan.json"
        if not path.exists():
            path.write_text(json.dumps(asdict(plan)) + "\n", encoding="utf-8")
        try:
            found = _CONVERTER.structure(json_object(read_bytes(path, PLAN_BYTES_MAX)), Plan)
        except DOCUMENT_ERRORS as error:
            raise UsageError(f"{path}: {explain(error)}") from error
        if found != plan:
            raise UsageError(
                f"{folder}: holds a run of {found.inputs} inputs with seed {found.seed}: give another folder"
            )

    def batches(self) -> Iterator[Batch]:
        """Those that are done. A line that was cut off is none."""
        if not self._tried.exists():
            return
        for line in read_bytes(self._tried, TRIED_BYTES_MAX).splitlines(keepends=True):
            if line.endswith(b"\n"):
                try:
                    yield _CONVERTER.structure(json_object(line), Batch)
                except DOCUMENT_ERRORS as error:
                    raise UsageError(f"{self._tried}: {explain(error)}") from error

    def add(self, batch: Batch) -> None:
        """One more is done."""
        with self._tried.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(batch)) + "\n")

    def keep(self, entrance: str, kind: str, told: str, data: bytes) -> Path | None:
        """Keep an input that shows a defect; None if one that shows the same is there."""
        name = f"{entrance}-{blake2b(kind.encode(), digest_size=4).hexdigest()}"
        path = self.folder / "defects" / name
        if path.exists():
            return None
        path.write_bytes(data)
        path.with_suffix(".txt").write_text(f"{entrance}: {kind}\n\n{told}\n", encoding="utf-8", errors="replace")
        return path

    def defects(self) -> list[str]:
        """The first line of what is told of each."""
        paths = sorted((self.folder / "defects").glob("*.txt"))
        return [path.read_text(encoding="utf-8").partition("\n")[0] for path in paths]
