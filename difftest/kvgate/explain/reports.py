"""Reports that people wrote, as data: the model, the flags, what they measured, and the cause that the thread found.

A report is a JSON file. ``rate`` is ``zero`` or ``not zero``; of a zero rate there is a ``cause``. ``prompts`` are
there where the thread gives them, and ``hit`` where it gives how many tokens a request hit. ``known`` says what of this
is from the thread, and what was filled in.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from attrs import field, frozen
from attrs.validators import matches_re, min_len

from kvgate.explain.best_hit import Prompts
from kvgate.explain.cause import Case
from kvgate.explain.dump import is_dump
from kvgate.explain.explanation import case_of
from kvgate.explain.load import of_document
from kvgate.explain.serving import Serving, speculation_of
from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import DOCUMENT_ERRORS, explain, read_bytes, strict_converter

FILE_BYTES_MAX = 200_000


@frozen
class Report:
    """One report."""

    format: Literal["kvgate-explained-report"]
    version: Literal[1]
    thread: str = field(validator=matches_re(r"[A-Za-z0-9-]+/[A-Za-z0-9_.-]+#\d+"))
    title: str = field(validator=min_len(1))
    """What was seen, in a few words of ours."""
    rate: Literal["zero", "not zero"]
    measured: str = field(validator=min_len(1))
    model: dict[str, Any]
    """A config.json, or a dump of a KVCacheConfig."""
    flags: dict[str, Any]
    """What was served with, by the names of ``Serving``; ``speculative_config`` as vLLM takes it."""
    known: str = field(validator=min_len(1))
    cause: str | None = None
    bug: int | None = None
    """Its number in the corpus of real defects, where it is there."""
    prompts: Prompts | None = None
    hit: int | None = None

    @property
    def is_dump(self) -> bool:
        """Whether its groups were written down by hand, where the thread has a model's name alone."""
        return is_dump(self.model)

    @property
    def link(self) -> str:
        """The thread's address."""
        repository, _, number = self.thread.partition("#")
        return f"https://github.com/{repository}/issues/{number}"

    @property
    def serving(self) -> Serving:
        """The flags.

        Raises:
            UsageError: there are no such flags.
        """
        flags = dict(self.flags)
        config = flags.pop("speculative_config", None)
        speculation = None if config is None else speculation_of(json.dumps(config))
        try:
            return Serving(speculation=speculation, **flags)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{self.thread}: {error}") from error

    def case(self, with_prompts: bool) -> Case:
        """What is explained: the flags alone, or with the prompts from the thread."""
        return case_of(
            lambda serving: of_document(self.model, Path(self.thread), serving),
            self.serving,
            self.prompts if with_prompts else None,
        )


def read(path: Path) -> Report:
    """The report in a file.

    Raises:
        UsageError: it is not a report.
    """
    try:
        report: Report = strict_converter().structure(json.loads(read_bytes(path, FILE_BYTES_MAX)), Report)
        if (report.rate == "zero") != (report.cause is not None):
            raise ValueError("a rate of zero has a cause, and no other rate has")
    except DOCUMENT_ERRORS as error:
        raise UsageError(f"{path}: {explain(error)}") from error
    return report


def read_all(folder: Path) -> list[Report]:
    """The reports of a folder, those of a zero rate first, by the corpus's numbers and then by thread.

    Raises:
        UsageError: the folder has none, or one of them is not a report.
    """
    reports = [read(path) for path in sorted(folder.glob("*.json"))]
    if not reports:
        raise UsageError(f"{folder}: no reports there")
    return sorted(reports, key=lambda report: (report.rate != "zero", report.bug or 1000, report.thread))
