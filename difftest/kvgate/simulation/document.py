"""Results as documents: versioned, checked when they are read, bounded in size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import cattrs

from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import DOCUMENT_ERRORS, explain, read_bytes, strict_converter
from kvgate.simulation.cost import recomputed_tokens, relative_work
from kvgate.simulation.result import FORMAT, VERSION, Result

BYTES_MAX = 200_000_000
RESULTS_MAX = 10_000


@cache
def _converter() -> cattrs.Converter:
    return strict_converter()


def to_document(results: Sequence[Result], ended: str = "completed") -> dict[str, Any]:
    """All results, with what follows from them for those who read no formulas."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "ended": ended,
        "results": [{"summary": summary(result), "result": _converter().unstructure(result)} for result in results],
    }


def summary(result: Result) -> dict[str, Any]:
    """What one looks at first. Rates are between 0 and 1."""
    return {
        "arm": result.arm,
        "workload": result.workload,
        "model": result.model,
        "policy": result.policy,
        "blocks": result.blocks,
        "requests": len(result.counted),
        "hit_rate": result.hit_rate,
        "hit_rate_of_server": result.server.hit_rate,
        "prompt_tokens": result.prompt_tokens,
        "hit_tokens": result.hit_tokens,
        "computed_tokens": result.computed_tokens,
        "recomputed_tokens": recomputed_tokens(result),
        "copied_tokens": result.copied_tokens,
        "relative_work": relative_work(result),
        "evictions": result.evictions,
        "preemptions": result.preemptions,
        "sound": result.soundness.sound,
        "reads_judged": result.soundness.reads,
    }


def from_document(text: str | bytes, name: str) -> list[Result]:
    """The results in a document.

    Raises:
        UsageError: it is none of this format and version, or is not well formed; says what is wrong.
    """
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise UsageError(f"{name}: not a document of {FORMAT}")
        if document.get("version") != VERSION:
            raise UsageError(f"{name}: version {document.get('version')!r} of {FORMAT}; this kvgate reads {VERSION}")
        entries = document["results"]
        if not isinstance(entries, list) or len(entries) > RESULTS_MAX:
            raise UsageError(f'{name}: "results" is a list of at most {RESULTS_MAX:,} results')
        return [_converter().structure(entry["result"], Result) for entry in entries]
    except DOCUMENT_ERRORS as error:
        raise UsageError(f"{name}: {explain(error)}") from error


def read(path: Path) -> list[Result]:
    """The results in a file.

    Raises:
        UsageError: it cannot be read, or holds none.
    """
    return from_document(read_bytes(path, BYTES_MAX), str(path))
